"""Remembers what the recorded steps are given: tensors, or iterators with their datasets. These show how many examples a step has,
and which functions of the script the pipeline calls.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from itertools import islice
from typing import Any, Final, TypeAlias
from weakref import ref

from traceview.base.errors import NoAnswerError
from traceview.capture.process.python_code import CodePlaces
from traceview.capture.steps.op_lines import OpLines
from traceview.graphs.calls import calls_of

_DEEPEST: Final = 8
_SOURCES: Final[dict[str, Callable[[Any], list[Any]]]] = {
    "OwnedIterator": lambda iterator: [iterator._dataset],
    "DistributedIterator": lambda iterator: [part._dataset for part in iterator._iterators],
    "DistributedDataset": lambda dataset: list(dataset._cloned_datasets),
    "DistributedDatasetsFromFunction": lambda dataset: list(dataset._datasets),
}
_KEEP_BATCHES: Final = frozenset(
    f"_{kind}Dataset"
    for kind in (
        "AutoShard", "Cache", "Filter", "LegacyRebatch", "Map", "MaxIntraOpParallelism", "Options", "ParallelMap",
        "Prefetch", "PrivateThreadPool", "Rebatch", "Repeat", "Restructured", "Shard", "Shuffle", "Skip", "Take", "TakeWhile",
    )
)  # fmt: skip
"""Datasets whose elements are the batches of the dataset before them, or parts of these for the replicas."""
_MADE_BY: Final = ("_FlatMapDataset", "_InterleaveDataset", "_ParallelInterleaveDataset")
"""What their functions return are datasets, too, whose stages look like those that these read."""
_MOST_DATASETS: Final = 200
_MOST_OPS: Final = 1_000
Sizes = tuple[str, int, int | None]
"""What showed them, and the examples of a step: of all replicas, and of each."""


class StepInputs:
    """What the recorded steps are given, until `forget`; whatever that is, nothing is raised into the script."""

    def __init__(self) -> None:
        self._of_replicas: Counter[tuple[int, ...]] = Counter()
        self._of_tensors: Counter[frozenset[int]] = Counter()
        self.is_fed = False
        """Whether a recorded step was given an iterator, or another tensor than that before it."""
        self._tensors: list[Any] = []
        self.last_asked = self._input_of_steps = 0
        """The iterators that were asked last, and before the last step, by their `id`."""
        # Datasets with the strategy that distributes them, or None, by their `id`.
        self._given: dict[int, tuple[Any, Any]] = {}
        self._asked: dict[int, tuple[Any, Any]] = {}

    def given(self, *arguments: object) -> None:
        """A recorded step is called with these."""
        with suppress(Exception):
            leaves = list(_leaves(arguments, _DEEPEST))
            sizes = list(map(_sizes_of, leaves))
            for leaf in leaves:
                self._given.update(_sources(leaf))
            of_replicas = {each for each in sizes if len(each) > 1}
            of_tensors = frozenset(each[0] for each in sizes if len(each) == 1)
            if len(of_replicas) == 1:
                self._of_replicas.update(of_replicas)
            elif of_tensors:
                self._of_tensors[of_tensors] += 1
            tensors = [leaf for leaf, of_leaf in zip(leaves, sizes, strict=True) if of_leaf]
            before = [tensor() for tensor in self._tensors]
            self.is_fed |= bool(self._given) or (
                bool(before) and any(all(leaf is not each for each in before) for leaf in tensors)
            )
            self._tensors = [ref(tensor) for tensor in tensors]

    def asked(self, iterator: object, *, is_recorded: bool) -> None:
        """The loop asks this iterator for a batch, of a recorded step or not."""
        self.last_asked = id(iterator)
        if is_recorded:
            with suppress(Exception):
                self._asked.update(_sources(iterator))

    def step_begins(self) -> None:
        """A step is called: what was asked for last was its input."""
        self._input_of_steps = self.last_asked

    @property
    def has_other_input(self) -> bool:
        """Whether another iterator than that of the steps was asked last."""
        return self.last_asked != self._input_of_steps

    def holds_source(self, *arguments: object) -> bool:
        """Whether an iterator or a distributed dataset is among these."""
        with suppress(Exception):
            return any(type(leaf).__name__ in _SOURCES for leaf in _leaves(arguments, _DEEPEST))
        return False

    def branches(self) -> list[dict[str, Any]]:
        """What the stages of the pipelines call in each branch, from the last on: the `stage`, the `line` of a function of the user,
        whether it `draws` random numbers, and the line that made each of its ops, `line_of`.
        """
        found: dict[_Branch, None] = {}
        lines: dict[str, dict[str, str]] = {}
        places, rest = CodePlaces(), _MOST_DATASETS
        sources = (*self._given.values(), *self._asked.values())
        waiting: list[tuple[Any, _Branch]] = [(dataset, ()) for dataset, _ in sources]
        while waiting and rest:
            (dataset, branch), rest = waiting.pop(), rest - 1
            kind = type(dataset).__name__
            called = next(filter(None, (getattr(dataset, each, None) for each in _FUNCTIONS)), None)
            if called is not None:
                stage = kind.strip("_").removesuffix("Dataset")
                line = _line_of(called, places)
                branch = (*branch, (stage, line, _draws(called)))
                if line and line not in lines:
                    lines[line] = _lines_of_ops(called)
            inputs = () if kind in _MADE_BY else dataset._inputs()
            waiting += [(each, branch) for each in inputs]
            if branch and not inputs:
                found[branch] = None
        return [
            {
                "functions": [
                    {
                        "stage": stage,
                        "line": line,
                        "draws": draws,
                        "line_of": lines.get(line or "", {}),
                    }
                    for stage, line, draws in branch
                ]
            }
            for branch in found
        ]

    def forget(self) -> None:
        """Let go of the datasets."""
        self._given.clear()
        self._asked.clear()

    def strategies(self) -> list[Any]:
        """The strategies that distribute what the steps read."""
        sources = (*self._given.values(), *self._asked.values())
        return [strategy for _, strategy in sources if strategy is not None]

    def sizes(self, replicas: int, local_replicas: int) -> Sizes:
        """Examples of one step of `replicas`, of which this process runs `local_replicas`; raises `NoAnswerError`."""
        reasons: list[NoAnswerError] = []
        ways: tuple[Callable[[], Sizes | None], ...] = (
            lambda: _of_sources(self._given, replicas),
            lambda: self._of_arguments(replicas, local_replicas),
            lambda: _of_sources(self._asked, replicas),
        )
        for way in ways:
            try:
                if sizes := way():
                    return sizes
            except NoAnswerError as absent:
                reasons.append(absent)
        raise [*reasons, NoAnswerError("no recorded step was given a tensor or an iterator")][0]

    def _of_arguments(self, replicas: int, local_replicas: int) -> Sizes | None:
        if self._of_replicas:
            sizes = self._of_replicas.most_common(1)[0][0]
        elif self._of_tensors:
            sizes = tuple(sorted(self._of_tensors.most_common(1)[0][0]))
            if len(sizes) > 1:
                raise NoAnswerError(f"the arguments differ in their first dimension: {list(sizes)}")
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


def _of_sources(sources: Mapping[int, tuple[Any, Any]], replicas: int) -> Sizes | None:
    found: set[Sizes] = set()
    for dataset, strategy in sources.values():
        size, is_split = _of_dataset(dataset)
        if strategy is None:
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
    # By this TensorFlow divides batches among replicas (ComputeBatchSize); -1 where it knows none.
    module = import_module("tensorflow.python.data.experimental.ops.distribute")
    is_split = False
    while True:
        # The elements may be scalars.
        with suppress(IndexError):
            size = int(module.compute_batch_size(dataset))
            if size > 0:
                return size, is_split
        kind = type(dataset).__name__
        inputs: Any = dataset._inputs() if kind in _KEEP_BATCHES else ()
        if len(inputs) != 1:
            raise NoAnswerError("the dataset of the step has no fixed batch size")
        is_split |= kind in ("_RebatchDataset", "_LegacyRebatchDataset")
        (dataset,) = inputs


_FUNCTIONS: Final = ("_map_func", "_predicate")
"""The attributes that hold what a dataset calls."""


_Branch: TypeAlias = tuple[tuple[str, str | None, bool | None], ...]
_RANDOM: Final = re.compile(
    r"(?:Stateless)?(?:Random|TruncatedNormal|ParameterizedTruncated|Multinomial)\w*"
)
"""Types of ops that draw random numbers (TensorFlow 2.21)."""


def _draws(called: Any) -> bool | None:
    """Whether ops of the function that a dataset calls draw random numbers; None where that cannot be asked."""
    try:
        calls = calls_of([called.function.graph])
        return any(_RANDOM.match(op.type) for call in calls for op in call.ops)
    except Exception:
        # Another release may hold its functions otherwise.
        return None


def _lines_of_ops(called: Any) -> dict[str, str]:
    """The line that made each op of the function that a dataset calls."""
    with suppress(Exception):  # Another release may hold its functions otherwise.
        return dict(islice(OpLines().by_name(called.function.graph), _MOST_OPS))
    return {}


def _line_of(called: Any, places: CodePlaces) -> str | None:
    """The first line of the user's function that a dataset calls; None for one of a library, and for what has no code."""
    function = getattr(called, "_func", None)
    for inner in ("python_function", "func", "__wrapped__"):
        function = getattr(function, inner, function)
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    origin = places.origin_of(code)
    is_user = origin.kind == "user"
    return f"{origin.file}:{code.co_firstlineno} in {origin.function}" if is_user else None


def _sources(value: Any) -> dict[int, tuple[Any, Any]]:
    datasets = _SOURCES.get(type(value).__name__)
    strategy = getattr(value, "_strategy", None)
    return {id(each): (each, strategy) for each in (datasets(value) if datasets else ())}


def _leaves(value: Any, depth: int) -> Iterator[Any]:
    if not isinstance(value, (list, tuple, dict)):
        yield value
    elif depth:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _leaves(part, depth - 1)


def _sizes_of(value: Any) -> tuple[int, ...]:
    """The first dimension of a tensor, one for each replica; empty for scalars, for what is no tensor, and for variables."""
    if type(value).__name__ == "PerReplica":
        sizes = tuple(size for part in value.values for size in _sizes_of(part))
        return sizes if len(sizes) == len(value.values) else ()
    shape = getattr(value, "shape", None)
    if shape is None or hasattr(value, "assign") or not hasattr(value, "dtype"):
        return ()
    first = next(iter(tuple(shape)), None)
    return () if first is None else (int(first),)
