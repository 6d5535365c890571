"""The report of idle time says what was around each gap; the longest come first, of equal ones the earlier."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.cuda_trace import MS, CudaTrace
from scripts.scenarios.model import ORIGIN_PS, Step, marked_steps, new_trace
from traceview.analysis.facts.selection import select
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.idle_report import (
    Gap,
    Idle,
    IdleRow,
    compute,
    gaps_of,
    longest_first,
)
from traceview.trace.reading.load import load


def row_of(trace: CudaTrace, folder: Path) -> IdleRow:
    """The idle time of GPU:0."""
    trace.write(folder)
    loaded = load(folder)
    selection = select(loaded)
    result = compute(Context(loaded, selection))
    assert isinstance(result, Idle)
    return result.devices[0]


def one_gap(request: str = "IteratorGetNext:IteratorGetNext", until_ms: float = 38) -> CudaTrace:
    """Two steps of 50 ms; between 20 and 40 ms of the first the GPU waits for input."""
    trace = new_trace()
    for step in marked_steps(trace, count=2, marker_ms=50):
        step.host("fit", 0, 45)
        step.host("next_batch", 21, 39)
        step.host(request, 22, until_ms)
        step.kernel(0, 0, 20, op="model/first:MatMul", launch_ms=0)
        step.kernel(0, 40, 50, name="second", op=None, launch_ms=39)
    return trace


def test_a_gap_says_what_was_around_it(tmp_path: Path) -> None:
    row = row_of(one_gap(), tmp_path)
    gap, _ = row.gaps
    assert gap == Gap(
        start_ps=ORIGIN_PS + 20 * MS,
        duration_ps=20 * MS,
        state="input",
        states={"input": 16 * MS, "unknown": 3 * MS, "dependency": MS},
        before="model/first:MatMul",
        after="second",
        step=0,
        thread="python3",
        host_event="IteratorGetNext:IteratorGetNext",
    )
    assert (row.gap_count, row.longest_gap_ps) == (2, 20 * MS)


@pytest.mark.parametrize(
    ("makes", "length_ms", "input_ms"), [(True, 1, 1), (True, 0.999, 0), (False, 16, 0)]
)
def test_to_delete_an_iterator_waits_for_its_pipeline(
    makes: bool, length_ms: float, input_ms: float, tmp_path: Path
) -> None:
    trace = one_gap("TFE_DeleteTensorHandle", 22 + length_ms)
    if makes:
        Step(trace, 0).host("EagerLocalExecute: MakeIterator", 1, 2)
    [gap, _] = row_of(trace, tmp_path).gaps
    assert gap.states.get("input", 0) == input_ms * MS


@pytest.mark.parametrize("most", [3, 10**9])
@given(
    st.integers(0, 700), st.sampled_from([None, 0, 1, 2, 5, 10]), st.randoms(use_true_random=False)
)
def test_longest_first_is_a_sort(most: int, count: int, top: int | None, random: Random) -> None:
    draw = np.random.default_rng(random.randrange(2**32))
    lengths = draw.integers(0, most, count)
    expected = sorted(range(count), key=lambda place: -lengths[place])
    assert longest_first(lengths, top).tolist() == expected[:top]


@pytest.mark.parametrize("seed", range(20))
def test_states_of_some_gaps_are_those_among_all(seed: int, tmp_path: Path) -> None:
    choice, trace = Random(seed), new_trace()
    for step in marked_steps(trace, count=8, marker_ms=50):
        step.host("fit", 0, 45)
        step.host("IteratorGetNext:IteratorGetNext", 12, choice.randrange(13, 38))
        step.kernel(0, 0, choice.randrange(1, 20), op="model/first:MatMul", launch_ms=0)
        step.kernel(0, 40, 50, name="second", op=None, launch_ms=choice.randrange(20, 40))
    trace.write(tmp_path)
    loaded = load(tmp_path)
    every = gaps_of(Context(loaded, select(loaded)), 0)
    numbers = sorted(choice.sample(range(every.number.size), choice.randrange(every.number.size)))
    some, chosen = every.at(np.array(numbers, dtype=np.int64)), np.array(numbers, dtype=np.int64)
    assert some.state.tolist() == every.state[chosen].tolist()
    assert some.duration_ps.tolist() == every.duration_ps[chosen].tolist()
    for state, in_state in every.states.by_state.items():
        nothing = np.zeros(chosen.size, dtype=np.int64)
        assert some.states.by_state.get(state, nothing).tolist() == in_state[chosen].tolist()
    for found, of_all in zip(
        some.states.longest_parts(), every.states.longest_parts(), strict=True
    ):
        assert found.tolist() == of_all[chosen].tolist()
    assert sum(ps.sum() for ps in every.states.by_state.values()) == every.duration_ps.sum()
