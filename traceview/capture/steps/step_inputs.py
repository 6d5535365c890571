"""Remembers what the recorded steps are given, and tells from it how many examples a step trains on.

A step that is called with tensors shows its size. One that is called with an iterator reads the batches in its graph,
where Python sees none of them; then the dataset of the iterator tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from traceview.capture.sidecar.file import NoAnswerError

_DEEPEST: Final = 8
"""Levels of lists and dicts in which tensors are looked for."""
_PER_REPLICA: Final = "PerReplica"
_SOURCES: Final[dict[str, Callable[[Any], list[Any]]]] = {
    "OwnedIterator": lambda iterator: [iterator._dataset],
    "DistributedIterator": lambda iterator: [part._dataset for part in iterator._iterators],
    "DistributedDataset": lambda dataset: list(dataset._cloned_datasets),
    "DistributedDatasetsFromFunction": lambda dataset: list(dataset._datasets),
}
"""The datasets of what a loop reads, by its class; one for each worker whose input this process prepares."""
_KEEP_BATCHES: Final = frozenset(
    f"_{kind}Dataset"
    for kind in (
        "AutoShard", "Cache", "Filter", "LegacyRebatch", "Map", "MaxIntraOpParallelism", "Options", "ParallelMap",
        "Prefetch", "PrivateThreadPool", "Rebatch", "Repeat", "Restructured", "Shard", "Shuffle", "Skip", "Take", "TakeWhile",
    )
)  # fmt: skip
"""Datasets whose elements are the batches of the dataset before them, or parts of these for the replicas."""
_SPLIT: Final = ("_RebatchDataset", "_LegacyRebatchDataset")
"""Divide the batches of all replicas into one for each (`experimental_distribute_dataset`)."""

Sizes = tuple[str, int, int | None]
"""What showed them, and the examples of a step: of all replicas, and of each."""


@dataclass(frozen=True)
class _Source:
    """A dataset that the steps read. `strategy`: the one that distributes it, or None."""

    dataset: Any
    strategy: Any


class StepInputs:
    """What the recorded steps are given, until `forget`."""

    def __init__(self) -> None:
        self._of_replicas: Counter[tuple[int, ...]] = Counter()
        self._of_tensors: Counter[frozenset[int]] = Counter()
        self.last_asked = self._input_of_steps = 0
        """The iterators that were asked last, and before the last step, by their `id`."""
        self._given: dict[int, _Source] = {}
        self._asked: dict[int, _Source] = {}

    # Called by the hooks; whatever the script hands over, nothing may be raised

    def given(self, *arguments: object) -> None:
        """A recorded step is called with these."""
        with suppress(Exception):
            self._note(arguments)

    def asked(self, iterator: object, *, is_recorded: bool) -> None:
        """The loop asks this iterator for a batch, of a recorded step or not."""
        self.last_asked = id(iterator)
        if is_recorded:
            with suppress(Exception):
                self._add(self._asked, iterator)

    def step_begins(self) -> None:
        """A step is called: what was asked for last was its input."""
        self._input_of_steps = self.last_asked

    @property
    def has_other_input(self) -> bool:
        """Whether another iterator than that of the steps was asked last."""
        return self.last_asked != self._input_of_steps

    def holds_source(self, *arguments: object) -> bool:
        """Whether an iterator or a distributed dataset is among these."""
        others: list[object] = []
        with suppress(Exception):
            list(_leading(arguments, _DEEPEST, others.append))
        return any(type(value).__name__ in _SOURCES for value in others)

    def forget(self) -> None:
        """Let go of the datasets."""
        self._given.clear()
        self._asked.clear()

    # Results

    def strategies(self) -> list[Any]:
        """The strategies that distribute what the steps read."""
        sources = (*self._given.values(), *self._asked.values())
        return [source.strategy for source in sources if source.strategy is not None]

    def sizes(self, replicas: int, local_replicas: int) -> Sizes:
        """Examples of one step of `replicas`, of which this process runs `local_replicas`; raises `NoAnswerError`."""
        ways: tuple[Callable[[], Sizes | None], ...] = (
            lambda: self._of_sources(self._given, replicas),
            lambda: self._of_arguments(replicas, local_replicas),
            lambda: self._of_sources(self._asked, replicas),
        )
        reasons = []
        for way in ways:
            try:
                found = way()
            except NoAnswerError as absent:
                reasons.append(str(absent))
                continue
            if found is not None:
                return found
        raise NoAnswerError(
            reasons[0] if reasons else "no recorded step was given a tensor or an iterator"
        )

    # Inside

    def _note(self, arguments: object) -> None:
        of_tensors: set[int] = set()
        of_replicas: set[tuple[int, ...]] = set()
        for sizes in _leading(arguments, _DEEPEST, self._given_source):
            if len(sizes) > 1:
                of_replicas.add(sizes)
            else:
                of_tensors.add(sizes[0])
        if len(of_replicas) == 1:
            self._of_replicas.update(of_replicas)
        elif of_tensors:
            self._of_tensors[frozenset(of_tensors)] += 1

    def _given_source(self, value: object) -> None:
        self._add(self._given, value)

    def _add(self, sources: dict[int, _Source], value: Any) -> None:
        for source in _sources(value):
            sources[id(source.dataset)] = source

    def _of_arguments(self, replicas: int, local_replicas: int) -> Sizes | None:
        if self._of_replicas:
            sizes = self._of_replicas.most_common(1)[0][0]
        elif self._of_tensors:
            firsts = self._of_tensors.most_common(1)[0][0]
            if len(firsts) != 1:
                dimensions = sorted(firsts)
                raise NoAnswerError(f"the arguments differ in their first dimension: {dimensions}")
            sizes = tuple(firsts)
        else:
            return None
        if len(sizes) != local_replicas:
            raise NoAnswerError(
                f"each call gets {sizes[0]} examples; how replicas share them is unknown"
            )
        # The other workers are given as much.
        total, rest = divmod(sum(sizes) * replicas, local_replicas)
        if rest:
            raise NoAnswerError(f"the replicas of this worker get {sum(sizes)} examples")
        return "arguments", total, sizes[0] if len(set(sizes)) == 1 else None

    def _of_sources(self, sources: Mapping[int, _Source], replicas: int) -> Sizes | None:
        found: set[Sizes] = set()
        for source in sources.values():
            size, is_split = _of_dataset(source.dataset)
            if source.strategy is None:
                found.add(("dataset", size, size if replicas == 1 else None))
            elif is_split:
                found.add(("dataset", size, None if size % replicas else size // replicas))
            else:
                found.add(("dataset", size * replicas, size))
        if len(found) > 1:
            totals = sorted({total for _, total, _ in found})
            raise NoAnswerError(f"the steps read several datasets; their batch sizes are {totals}")
        return next(iter(found), None)


def _of_dataset(dataset: Any) -> tuple[int, bool]:
    """The size of its batches, and whether replicas share a batch."""
    is_split = False
    while True:
        size = _batch_size(dataset)
        if size > 0:
            return size, is_split
        kind = type(dataset).__name__
        inputs: Any = dataset._inputs() if kind in _KEEP_BATCHES else ()
        if len(inputs) != 1:
            raise NoAnswerError("the dataset of the step has no fixed batch size")
        is_split |= kind in _SPLIT
        (dataset,) = inputs


def _sources(value: Any) -> Iterator[_Source]:
    """The datasets of an iterator or a distributed dataset; none of anything else."""
    datasets = _SOURCES.get(type(value).__name__)
    if datasets is not None:
        strategy = getattr(value, "_strategy", None)
        for dataset in datasets(value):
            yield _Source(dataset, strategy)


def _batch_size(dataset: Any) -> int:
    """The size by which TensorFlow divides batches among replicas (ComputeBatchSize); -1 where it knows none."""
    module = import_module("tensorflow.python.data.experimental.ops.distribute")
    try:
        return int(module.compute_batch_size(dataset))
    except IndexError:  # the elements are scalars
        return -1


def _leading(
    value: Any, depth: int, other: Callable[[object], None] | None = None
) -> Iterator[tuple[int, ...]]:
    """First dimensions of each tensor in a structure, one per replica; `other` is called with what is no tensor."""
    if isinstance(value, (list, tuple)):
        values: Any = value
    elif isinstance(value, dict):
        values = value.values()
    elif type(value).__name__ == _PER_REPLICA:
        sizes = tuple(size for part in value.values for size in _of_tensor(part))
        if len(sizes) == len(value.values):
            yield sizes
        return
    else:
        sizes = _of_tensor(value)
        if sizes:
            yield sizes
        elif other is not None:
            other(value)
        return
    if depth:
        for part in values:
            yield from _leading(part, depth - 1, other)


def _of_tensor(value: Any) -> tuple[int, ...]:
    """The first dimension; empty for scalars, for what is no tensor, and for variables."""
    shape = getattr(value, "shape", None)
    if shape is None or hasattr(value, "assign") or not hasattr(value, "dtype"):
        return ()
    sizes = tuple(shape)
    return (int(sizes[0]),) if sizes and sizes[0] is not None else ()
