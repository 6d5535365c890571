"""Describes how the training is distributed: its strategy, and the batch size of each replica.

TensorFlow keeps no list of strategies. The garbage collector is asked once, after the window, for what refers to their
classes, as every object does to its own (20 to 30 ms in a process with 300 000 objects).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from traceview.capture.sidecar.file import Facts, NoAnswerError
from traceview.capture.steps.step_inputs import StepInputs


def describe_strategy(
    of_variables: Iterable[Any], of_input: Iterable[Any], others: Callable[[], Iterable[Any]]
) -> tuple[dict[str, Any], Any]:
    """The group `strategy` of the sidecar, and the strategy itself, None without one.

    The strategy of the variables that the step uses comes first, then that of its input. Only without both is
    another strategy of the script taken: the script made it, though nothing in the step shows it.
    """
    facts = Facts()
    sources: dict[str, Callable[[], Iterable[Any]]] = {
        "variables": lambda: of_variables,
        "input": lambda: of_input,
        "memory": others,
    }
    for found_by, candidates in sources.items():
        strategies = _distinct(candidates())
        if len(strategies) > 1:
            names = ", ".join(sorted(type(strategy).__name__ for strategy in strategies))
            facts.missing["class"] = f"several strategies: {names}"
            return facts.as_group(), None
        if strategies:
            facts.values["found_by"] = found_by
            _describe(facts, strategies[0])
            return facts.as_group(), strategies[0]
    facts.missing["class"] = "no strategy of tf.distribute is in use"
    return facts.as_group(), None


def _distinct(strategies: Iterable[Any]) -> list[Any]:
    return list(
        {id(s): s for s in strategies if s is not None and not is_default_strategy(s)}.values()
    )


def _describe(facts: Facts, strategy: Any) -> None:
    extended = strategy.extended
    facts.values["class"] = type(strategy).__name__
    facts.ask("replicas", lambda: int(strategy.num_replicas_in_sync))
    facts.ask("devices", lambda: list(extended.worker_devices))
    facts.ask("parameter_devices", lambda: list(extended.parameter_devices))
    operations = facts.ask("cross_device_ops", lambda: _cross_device_ops(extended))
    if operations is None:
        return
    facts.values["cross_device_ops"] = type(operations).__name__
    facts.ask("packs", lambda: _packs(operations))
    options = getattr(operations, "_options", None) or getattr(
        extended, "_communication_options", None
    )
    # 0: TensorFlow chooses.
    facts.ask("bytes_per_pack", lambda: getattr(options, "bytes_per_pack", None))


def _cross_device_ops(extended: Any) -> Any:
    for name in ("_cross_device_ops", "_inferred_cross_device_ops", "_collective_ops"):
        operations = getattr(extended, name, None)
        if operations is not None:
            return operations
    raise NoAnswerError("this strategy has no cross-device ops so far")


def _packs(operations: Any) -> int:
    for name in ("_num_packs", "num_packs"):
        if hasattr(operations, name):
            return int(getattr(operations, name))
    raise NoAnswerError(f"{type(operations).__name__} packs by bytes")


def describe_batch(inputs: StepInputs, strategy: Any) -> dict[str, Any]:
    """The group `batch` of the sidecar: global and per-replica batch size, in examples."""
    facts = Facts()
    sizes = facts.find("sizes", lambda: inputs.sizes(*_replica_counts(strategy)))
    if sizes is None:
        reason = facts.missing.pop("sizes")
        facts.missing.update(dict.fromkeys(("global", "per_replica"), reason))
        return facts.as_group()
    found_by, total, each = sizes
    facts.values.update({"global": total, "per_replica": each, "found_by": found_by})
    if each is None:
        del facts.values["per_replica"]
        facts.missing["per_replica"] = f"{total} examples do not divide among the replicas"
    return facts.as_group()


def _replica_counts(strategy: Any) -> tuple[int, int]:
    """Replicas of the job, and those that this process runs."""
    if strategy is None:
        return 1, 1
    return int(strategy.num_replicas_in_sync), len(strategy.extended.worker_devices)


_MODULE: Final = "tensorflow.python.distribute.distribute_lib"
_BASE: Final = "StrategyBase"


def find_strategies() -> list[Any]:
    """The strategies of the script, without TensorFlow's own default."""
    base = getattr(sys.modules.get(_MODULE), _BASE, None)
    if not isinstance(base, type):
        return []
    # Each class makes the search a millisecond longer; those of TensorFlow 1 are not used with functions.
    classes = {cls for cls in _subclasses(base) if not _is_excluded(cls)}
    # By the exact class: others may answer anything when asked what they are.
    return [thing for thing in gc.get_referrers(*classes) if type(thing) in classes]


def is_default_strategy(strategy: Any) -> bool:
    """Whether it is the one that TensorFlow uses without a strategy."""
    return type(strategy).__name__.startswith("_Default")


def _is_excluded(cls: type) -> bool:
    return cls.__name__.endswith("V1") or cls.__name__.startswith("_Default")


def _subclasses(base: type) -> Iterator[type]:
    yield base
    children: list[type] = base.__subclasses__()
    for child in children:
        yield from _subclasses(child)
