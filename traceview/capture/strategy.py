"""Describes how the training is distributed: its strategy, and the batch size of each replica."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final

from traceview.capture.live_objects import LiveObjects, is_default_strategy
from traceview.capture.sidecar import Facts, NoAnswerError
from traceview.capture.step_objects import traces

_ITERATOR_SPECS: Final = ("DistributedIteratorSpec", "DistributedDatasetSpec", "IteratorSpec")
_PER_REPLICA: Final = "PerReplicaSpec"
_TENSOR: Final = "TensorSpec"


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
    facts.missing["class"] = "neither the step nor the script has a strategy"
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


def takes_distributed_input(functions: Sequence[Any]) -> bool:
    """Whether a step function was traced for one tensor per replica, or for an iterator of such tensors."""
    return any(
        type(leaf).__name__ == _PER_REPLICA
        for function in functions
        for trace in traces(function)
        for leaf in _leaves(trace)
    )


def describe_batch(functions: Sequence[Any], live: LiveObjects, strategy: Any) -> dict[str, Any]:
    """The group `batch` of the sidecar: global and per-replica batch size, in examples.

    They come from the shapes that the step functions were traced with or, where these leave it open, from the
    dataset whose elements have the same shapes.
    """
    facts = Facts()
    replicas = int(strategy.num_replicas_in_sync) if strategy is not None else 1
    sizes = facts.find("sizes", lambda: _sizes(functions, live, replicas))
    if sizes is None:
        reason = facts.missing.pop("sizes")
        facts.missing.update(dict.fromkeys(("global", "per_replica"), reason))
        return facts.as_group()
    found_by, total, each = sizes
    facts.values.update({"global": total, "per_replica": each, "found_by": found_by})
    if each is None:
        del facts.values["per_replica"]
        facts.missing["per_replica"] = f"{total} examples do not divide among {replicas} replicas"
    return facts.as_group()


Sizes = tuple[str, int, int | None]


def _sizes(functions: Sequence[Any], live: LiveObjects, replicas: int) -> Sizes:
    inputs = [list(_leaves(trace)) for function in functions for trace in traces(function)]
    if not any(inputs):
        raise NoAnswerError(
            "no argument of the step functions is a tensor or an iterator of tensors"
        )
    if any(_leading(leaf) is None for leaves in inputs for leaf in leaves):
        return _of_datasets(inputs, live, replicas)
    firsts = {tuple(_leading(leaf) or ()) for leaves in inputs for leaf in leaves if _leading(leaf)}
    if len(firsts) != 1:
        dimensions = sorted(sum(sizes) for sizes in firsts)
        raise NoAnswerError(f"the arguments differ in their first dimension: {dimensions}")
    (sizes,) = firsts
    if len(sizes) != replicas:
        raise NoAnswerError(
            f"each call gets {sizes[0]} examples; how replicas share them is unknown"
        )
    return "arguments", sum(sizes), sizes[0] if len(set(sizes)) == 1 else None


def _of_datasets(inputs: list[list[Any]], live: LiveObjects, replicas: int) -> Sizes:
    nest = import_module("tensorflow").nest
    wanted = [leaves for leaves in inputs if leaves]
    batches: set[tuple[int, int | None]] = set()
    for dataset in live.distributed_datasets:
        if _flat(nest, dataset.element_spec) in wanted:
            total = _batch_size(dataset._original_dataset)
            batches.add((total, total // replicas if total % replicas == 0 else None))
    for dataset in live.datasets_from_function:
        if _flat(nest, dataset.element_spec) in wanted:
            each = _batch_size(dataset._datasets[0])
            batches.add((each * replicas, each))
    if not batches and replicas == 1:
        for iterator in live.iterators:
            if iterator._dataset is not None and _flat(nest, iterator.element_spec) in wanted:
                size = _batch_size(iterator._dataset)
                batches.add((size, size))
    if not batches:
        raise NoAnswerError(
            "the step is traced for batches of any size, and the script no longer holds its dataset"
        )
    if len(batches) > 1:
        sizes = sorted(total for total, _ in batches)
        raise NoAnswerError(f"several datasets have the same shapes; their batch sizes are {sizes}")
    ((total, per_replica),) = batches
    return "dataset", total, per_replica


def _batch_size(dataset: Any) -> int:
    """The size by which TensorFlow divides batches among replicas (ComputeBatchSize)."""
    module = import_module("tensorflow.python.data.experimental.ops.distribute")
    size = int(module.compute_batch_size(dataset))
    if size <= 0:
        raise NoAnswerError("the dataset of the step has no fixed batch size")
    return size


def _leaves(trace: Any) -> Iterator[Any]:
    """The tensor specs, per replica or not, that one trace takes directly or through an iterator."""
    nest = import_module("tensorflow").nest
    for leaf in nest.flatten(trace.structured_input_signature):
        if type(leaf).__name__ in _ITERATOR_SPECS:
            yield from _flat(nest, leaf._element_spec)
        elif type(leaf).__name__ in (_PER_REPLICA, _TENSOR):
            yield leaf


def _flat(nest: Any, structure: Any) -> list[Any]:
    leaves: list[Any] = nest.flatten(structure)
    return leaves


def _leading(leaf: Any) -> tuple[int, ...] | None:
    """First dimensions, one per replica; empty for scalars, None where they are left open."""
    specs = leaf._value_specs if type(leaf).__name__ == _PER_REPLICA else (leaf,)
    shapes = [getattr(spec, "shape", None) for spec in specs]
    if any(shape is None or shape.rank is None for shape in shapes):
        return None
    sizes = [shape[0] for shape in shapes if shape is not None and shape.rank]
    return None if None in sizes else tuple(sizes)
