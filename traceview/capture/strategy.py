"""Describes how the training is distributed: its strategy, and the batch size of each replica."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from traceview.capture.live_strategies import is_default_strategy
from traceview.capture.sidecar import Facts, NoAnswerError
from traceview.capture.step_inputs import StepInputs


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
    facts.ask("bytes_per_pack", lambda: _of_options(options, "bytes_per_pack"))
    facts.ask("implementation", lambda: str(_of_options(options, "implementation")))


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


def _of_options(options: Any, name: str) -> Any:
    if options is None or not hasattr(options, name):
        raise NoAnswerError("the cross-device ops have no such option")
    return getattr(options, name)


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
