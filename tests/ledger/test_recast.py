"""Changes of states keep every picosecond, and cut only what they change."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.ledgers import Row, columns_of
from traceview.base.intervals import IntervalSet, union
from traceview.ledger.build import recast, recast_ends
from traceview.ledger.columns import By, Columns
from traceview.ledger.states import State

_states = st.sampled_from([State.COMPUTE, State.PYTHON, State.LAUNCH, State.INPUT])
_rows = st.lists(
    st.builds(Row, _states, st.integers(1, 6), st.integers(-1, 3), st.booleans()), max_size=8
)
_marks = st.sets(st.integers(-2, 40), max_size=12)


def marked(instants: set[int]) -> IntervalSet:
    start = np.array(sorted(instants), dtype=np.int64)
    return union(start, start + 1)


def listed(columns: Columns) -> list[tuple[int, int, str]]:
    rows = zip(
        columns.start_ps.tolist(),
        columns.duration_ps.tolist(),
        columns.state.tolist(),
        strict=True,
    )
    return [(start, length, State(state).key) for start, length, state in rows]


def instants(columns: Columns) -> list[tuple[Any, ...]]:
    """What each picosecond is."""
    return [
        (at, *(getattr(columns, name)[row] for name in ("state", "activity", "by_kind", "by")))
        for row in range(columns.count)
        for at in range(columns.start_ps[row], columns.end_ps[row])
    ]


@given(_rows, _marks, st.sets(_states))
def test_each_instant_changes_as_the_spans_say(
    rows: list[Row], inside: set[int], among: set[State]
) -> None:
    columns = columns_of(rows)
    changed = recast(columns, marked(inside), among, State.PYTHON_THREAD, (By.PYTHON, 3))
    expected = [
        (at, State.PYTHON_THREAD, activity, By.PYTHON, 3)
        if at in inside and state in among
        else (at, state, activity, kind, by)
        for at, state, activity, kind, by in instants(columns)
    ]
    assert instants(changed) == expected
    assert (changed.duration_ps > 0).all()
    # Bounds in rows that do not change leave them whole.
    kept = {row for row in listed(columns) if State[row[2].upper()] not in among}
    assert kept <= set(listed(changed))


@given(_rows, st.lists(st.integers(0, 7), min_size=8, max_size=8))
def test_each_instant_at_the_end_of_a_row_changes(rows: list[Row], lengths: list[int]) -> None:
    columns = columns_of(rows)
    length = np.array(lengths[: len(rows)], dtype=np.int64)
    changed = recast_ends(columns, length, State.INPUT)
    expected = [
        State.INPUT if at >= end - last else state
        for start, end, state, last in zip(
            columns.start_ps.tolist(),
            columns.end_ps.tolist(),
            columns.state.tolist(),
            lengths,
            strict=False,
        )
        for at in range(start, end)
    ]
    assert [state for _, state, *_ in instants(changed)] == expected
    assert int(changed.duration_ps.sum()) == int(columns.duration_ps.sum())
