"""Which functions, models, datasets and strategies does the script hold, without having told anyone?

TensorFlow keeps no list of them. The garbage collector does: it is asked once, after the window, for what
refers to their classes, which every object does to its own (20 to 30 ms in a process with 300 000 objects).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

_FUNCTION: Final = ("tensorflow.python.eager.polymorphic_function.polymorphic_function", "Function")
_INPUT: Final = "tensorflow.python.distribute.input_lib"
_DISTRIBUTED_DATASET: Final = (_INPUT, "DistributedDataset")
_DATASETS_FROM_FUNCTION: Final = (_INPUT, "DistributedDatasetsFromFunction")
_ITERATOR: Final = ("tensorflow.python.data.ops.iterator_ops", "OwnedIterator")
_STRATEGY: Final = ("tensorflow.python.distribute.distribute_lib", "StrategyBase")
_DEPTH: Final = 5
"""Closures between Keras' train function and the `tf.function` in it; Keras 3.15 has two, and we add one."""


@dataclass(frozen=True)
class LiveObjects:
    """What the script holds, by kind."""

    functions: tuple[Any, ...] = ()
    distributed_datasets: tuple[Any, ...] = ()
    datasets_from_function: tuple[Any, ...] = ()
    iterators: tuple[Any, ...] = ()

    def step_functions(self, name: str) -> list[Any]:
        """The traced `tf.function`s called `name`, or that a Keras model of this name trains with."""
        named = [f for f in self.functions if getattr(f, "_name", None) == name and traces(f)]
        if named:
            return named
        for model in self.models():
            if getattr(model, "name", None) == name:
                return _traced_within(model.train_function)
        return []

    def models(self) -> list[Any]:
        """Keras models whose training is a `tf.function`."""
        found = {
            id(model): model
            for function in self.functions
            for name, model in _closure(_unwrapped(getattr(function, "_python_function", None)))
            if name == "self" and getattr(model, "train_function", None) is not None
        }
        return list(found.values())


def find_live() -> LiveObjects:
    """Look now. What is not imported is not there."""
    places = (_FUNCTION, _DISTRIBUTED_DATASET, _DATASETS_FROM_FUNCTION, _ITERATOR)
    classes = [_class(*place) for place in places]
    found = list(_instances({one for one in classes if one is not None}))
    # By the exact class: others may answer anything when asked what they are.
    functions, datasets, from_function, iterators = (
        tuple(o for o in found if type(o) is one) for one in classes
    )
    return LiveObjects(functions, datasets, from_function, iterators)


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


def traces(function: Any) -> list[Any]:
    """The graphs of a `tf.function`, as concrete functions, oldest first; asking traces nothing."""
    cache = getattr(function, "_function_cache", None)
    return list(cache.values()) if cache is not None else []


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


def _traced_within(outer: Any) -> list[Any]:
    """The outermost traced `tf.function` in a Python function's closures, or none."""
    level = [outer]
    for _ in range(_DEPTH):
        traced = [found for found in level if traces(found)]
        if traced:
            # In order of their names: Keras' multi_step_on_iterator calls its one_step_on_data.
            return traced[:1]
        level = [value for found in level for value in _inner(found)]
    return []


def _inner(function: Any) -> Iterable[Any]:
    yield from (value for _, value in _closure(function) if callable(value))
    if hasattr(function, "__wrapped__"):
        yield function.__wrapped__


def _unwrapped(function: Any) -> Any:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def _closure(function: Any) -> Iterator[tuple[str, Any]]:
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None)
    if code is None or not cells:
        return
    for name, cell in zip(code.co_freevars, cells, strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # a name that has no value yet
