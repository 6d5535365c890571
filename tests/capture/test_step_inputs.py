"""How many examples a step trains on, by what the recorded steps are given."""

from __future__ import annotations

import json
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from traceview.base.errors import NoAnswerError
from traceview.capture.steps.step_inputs import StepInputs


class Tensor:
    def __init__(self, *shape: int | None) -> None:
        self.shape, self.dtype = shape, "float32"


class Variable(Tensor):
    def assign(self) -> None: ...


class PerReplica:
    def __init__(self, *values: Any) -> None:
        self.values = values


class Dataset:
    def __init__(self, size: int, *inputs: Any) -> None:
        self.size, self._inputs = size, lambda: list(inputs)


class _PrefetchDataset(Dataset): ...


class _RebatchDataset(Dataset): ...


class _UnbatchDataset(Dataset): ...


class Calls(Dataset):
    """`called`: what the wrapper holds that TensorFlow makes of a function."""

    def __init__(self, called: Any, *inputs: Any) -> None:
        super().__init__(1, *inputs)
        self._map_func = SimpleNamespace(_func=called)


class _MapDataset(Calls): ...


class _ParallelMapDataset(Calls): ...


class _FlatMapDataset(Calls): ...


class OwnedIterator:
    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset


class DistributedIterator:
    def __init__(self, *datasets: Dataset) -> None:
        self._strategy = "strategy"
        self._iterators = [OwnedIterator(dataset) for dataset in datasets]


class DistributedDataset:
    def __init__(self, dataset: Dataset) -> None:
        self._strategy, self._cloned_datasets = "strategy", [dataset]


DISTRIBUTE = "tensorflow.python.data.experimental.ops.distribute"


@pytest.fixture(autouse=True)
def _tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(compute_batch_size=lambda dataset: dataset.size)
    monkeypatch.setitem(sys.modules, DISTRIBUTE, fake)


@pytest.mark.parametrize(
    ("arguments", "replicas", "local", "sizes"),
    [
        ([Tensor(8, 4), {"y": [Tensor(8)]}, Tensor(), 0.1, Variable(3)], 1, 1, ("arguments", 8, 8)),
        ([PerReplica(Tensor(4, 8), Tensor(4, 8))], 2, 2, ("arguments", 8, 4)),
        ([PerReplica(Tensor(4), Tensor(3))], 2, 2, ("arguments", 7, None)),
        # Three workers of two replicas each, and three workers of one.
        ([PerReplica(Tensor(4), Tensor(4))], 6, 2, ("arguments", 24, 4)),
        ([Tensor(4)], 3, 1, ("arguments", 12, 4)),
        # A tensor that is the same for all replicas.
        ([PerReplica(Tensor(4), Tensor(4)), Tensor(10)], 2, 2, ("arguments", 8, 4)),
        ([OwnedIterator(Dataset(16)), Tensor(3)], 1, 1, ("dataset", 16, 16)),
    ],
)
def test_the_arguments_show_the_batch(
    arguments: list[Any], replicas: int, local: int, sizes: Any
) -> None:
    inputs = StepInputs()
    inputs.given(*arguments)
    assert inputs.sizes(replicas, local) == sizes


def test_a_loop_that_gives_one_tensor_again_and_again_is_not_fed() -> None:
    first, second = Tensor(8), Tensor(8)
    for given, is_fed in (
        ([first], False),
        ([first, first], False),
        ([first, second], True),
        ([OwnedIterator(Dataset(16))], True),
    ):
        inputs = StepInputs()
        for each in given:
            inputs.given(each, 0.1)
        assert inputs.is_fed == is_fed


SPLIT = _PrefetchDataset(-1, _RebatchDataset(-1, _PrefetchDataset(16, Dataset(-1))))


@pytest.mark.parametrize(
    ("iterator", "replicas", "sizes"),
    [
        (DistributedIterator(SPLIT), 2, ("dataset", 16, 8)),
        (DistributedDataset(SPLIT), 2, ("dataset", 16, 8)),
        (DistributedIterator(SPLIT), 3, ("dataset", 16, None)),
        (DistributedIterator(_PrefetchDataset(8)), 4, ("dataset", 32, 8)),
        (OwnedIterator(Dataset(8)), 1, ("dataset", 8, 8)),
    ],
)
def test_an_iterator_shows_the_batch_of_its_dataset(
    iterator: Any, replicas: int, sizes: Any
) -> None:
    given, asked = StepInputs(), StepInputs()
    given.given(iterator)
    asked.asked(iterator, is_recorded=True)
    assert given.sizes(replicas, 2) == asked.sizes(replicas, 2) == sizes
    assert given.strategies() == (["strategy"] if replicas > 1 else [])
    given.forget()
    assert given.strategies() == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "no recorded step was given a tensor or an iterator"),
        ([Tensor()], "no recorded step was given a tensor or an iterator"),
        ([Tensor(4, 2), Tensor(3)], r"differ in their first dimension: \[3, 4\]"),
        ([OwnedIterator(_UnbatchDataset(-1, Dataset(8)))], "has no fixed batch size"),
        ([OwnedIterator(Dataset(8)), OwnedIterator(Dataset(4))], r"batch sizes are \[4, 8\]"),
    ],
)
def test_a_batch_size_that_is_not_seen_is_not_guessed(arguments: list[Any], reason: str) -> None:
    inputs = StepInputs()
    inputs.given(*arguments)
    with pytest.raises(NoAnswerError, match=reason):
        inputs.sizes(1, 1)


def test_replicas_that_share_a_tensor_are_not_guessed_either() -> None:
    inputs = StepInputs()
    inputs.given(Tensor(8))
    with pytest.raises(NoAnswerError, match="how replicas share them is unknown"):
        inputs.sizes(2, 2)
    inputs.asked(DistributedIterator(SPLIT), is_recorded=True)
    assert inputs.sizes(2, 2) == ("dataset", 16, 8)


def test_datasets_are_not_asked_for_their_size_while_steps_are_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def size_of(dataset: Dataset) -> int:
        asked.append(dataset)
        return dataset.size

    monkeypatch.setattr(sys.modules[DISTRIBUTE], "compute_batch_size", size_of)
    inputs = StepInputs()
    iterator = DistributedIterator(_PrefetchDataset(8))
    for _ in range(3):
        inputs.given(iterator)
        inputs.asked(iterator, is_recorded=True)
    assert asked == []
    assert inputs.sizes(2, 2) == ("dataset", 16, 8)
    assert len(asked) == 1


def cropped(image: Any) -> Any:
    return image


def padded(image: Any) -> Any:
    return image


def line_of(function: Any) -> str:
    return f"test_step_inputs.py:{function.__code__.co_firstlineno} in {function.__name__}"


SOURCE = _FlatMapDataset(cropped, _MapDataset(padded))
CROPPED, PADDED = line_of(cropped), line_of(padded)


@pytest.mark.parametrize(
    ("dataset", "functions"),
    [
        # What a flat map makes looks like what it reads: below it nothing is known.
        (_MapDataset(cropped, SOURCE), [[("Map", CROPPED), ("FlatMap", CROPPED)]]),
        (
            _PrefetchDataset(1, _ParallelMapDataset(cropped, _MapDataset(padded))),
            [[("ParallelMap", CROPPED), ("Map", PADDED)]],
        ),
        # A partial, and a tf.function.
        (_MapDataset(partial(padded, 1)), [[("Map", PADDED)]]),
        (_MapDataset(SimpleNamespace(python_function=padded)), [[("Map", PADDED)]]),
        # Of a library, and without code.
        (_MapDataset(json.dumps), [[("Map", None)]]),
        (_MapDataset(len), [[("Map", None)]]),
        (
            Dataset(1, _MapDataset(padded), _MapDataset(cropped)),
            [[("Map", CROPPED)], [("Map", PADDED)]],
        ),
    ],
)
def test_the_functions_that_a_pipeline_calls_are_named(
    dataset: Dataset, functions: list[list[tuple[str, str | None]]]
) -> None:
    inputs = StepInputs()
    inputs.asked(OwnedIterator(dataset), is_recorded=True)
    # The path depends on what Python was started with.
    found = [
        [
            (each["stage"], each["line"] and each["line"].rpartition("/")[2])
            for each in branch["functions"]
        ]
        for branch in inputs.branches()
    ]
    assert found == functions
