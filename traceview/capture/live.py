"""Which datasets and strategies does the script hold, without having told anyone?

TensorFlow keeps no list of them. The garbage collector does: it is asked once, after the window, for what
refers to their classes, which every object does to its own (20 to 30 ms in a process with 300 000 objects).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

_INPUT: Final = "tensorflow.python.distribute.input_lib"
_DISTRIBUTED_DATASET: Final = (_INPUT, "DistributedDataset")
_DATASETS_FROM_FUNCTION: Final = (_INPUT, "DistributedDatasetsFromFunction")
_ITERATOR: Final = ("tensorflow.python.data.ops.iterator_ops", "OwnedIterator")
_STRATEGY: Final = ("tensorflow.python.distribute.distribute_lib", "StrategyBase")


@dataclass(frozen=True)
class LiveObjects:
    """The input that the script holds, by kind."""

    distributed_datasets: tuple[Any, ...] = ()
    datasets_from_function: tuple[Any, ...] = ()
    iterators: tuple[Any, ...] = ()


def find_live() -> LiveObjects:
    """Look now. What is not imported is not there."""
    places = (_DISTRIBUTED_DATASET, _DATASETS_FROM_FUNCTION, _ITERATOR)
    classes = [_class(*place) for place in places]
    found = list(_instances({one for one in classes if one is not None}))
    # By the exact class: others may answer anything when asked what they are.
    datasets, from_function, iterators = (
        tuple(o for o in found if type(o) is one) for one in classes
    )
    return LiveObjects(datasets, from_function, iterators)


def find_strategies() -> list[Any]:
    """The strategies of the script, without the default that TensorFlow makes for itself."""
    base = _class(*_STRATEGY)
    if base is None:
        return []
    # Each class makes the search a millisecond longer; those of TensorFlow 1 are not used with functions.
    return list(_instances({one for one in _subclasses(base) if not _is_old(one)}))


def is_default_strategy(strategy: Any) -> bool:
    """Whether it stands for no strategy."""
    return type(strategy).__name__.startswith("_Default")


def _instances(classes: set[type]) -> Iterator[Any]:
    if not classes:
        return
    for found in gc.get_referrers(*classes):
        if type(found) in classes:
            yield found


def _is_old(strategy_class: type) -> bool:
    return strategy_class.__name__.endswith("V1") or strategy_class.__name__.startswith("_Default")


def _class(module: str, name: str) -> type | None:
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) else None


def _subclasses(base: type) -> Iterator[type]:
    yield base
    children: list[type] = base.__subclasses__()
    for child in children:
        yield from _subclasses(child)
