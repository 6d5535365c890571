"""Is the evidence of many gaps at once that of each gap alone?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from traceview.analysis.facts.selection import select
from traceview.analysis.measures.context import Context
from traceview.trace.host.cause import Cause
from traceview.trace.host.gaps import (
    NEARLY,
    SHOWN_CAUSES,
    ManyEvidence,
)
from traceview.trace.host.host_states import HostStates
from traceview.trace.model import NONE, Trace
from traceview.trace.reading.load import load

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def evidence_of(
    trace: Trace, states: HostStates, cause: Cause, thread: int, start_ps: int, end_ps: int
) -> int:
    """The row that shows the cause of one span, by looking at every event; `NONE` without one."""
    columns = trace.host_columns
    near = [states.open_in(one, start_ps, end_ps) for one in {thread: 0, states.caller: 0}]
    every = states.rows_of_model
    open_ = (columns.start_ps[every] < end_ps) & (columns.end_ps[every] > start_ps)
    for rows in (np.concatenate(near), every[open_]):
        shows = (SHOWN_CAUSES[states.kind_of(rows)] >> cause & 1).astype(np.bool_)
        if cause is Cause.BETWEEN:
            shows = ~states.is_in_step(rows)
        elif cause is Cause.PYTHON:
            shows = ~states.is_spoken(rows)
        elif cause is Cause.COMPILE:
            shows |= columns.stat("tf_function_call").has(rows)
        rows = rows[shows & ~states.is_marker(rows)]
        if rows.size:
            start, end = columns.start_ps[rows], columns.end_ps[rows]
            overlap = np.minimum(end, end_ps) - np.maximum(start, start_ps)
            most = np.flatnonzero(overlap >= NEARLY * overlap.max())
            first = most[np.lexsort((-start[most], (end - start)[most]))[0]]
            return int(rows[first])
    return NONE


def stack_of(trace: Trace, states: HostStates, row: int) -> tuple[str | None, ...]:
    """The names of the events of a thread that last for all of an event, outermost first, and its own."""
    columns = trace.host_columns
    own = states.rows_of_thread(int(states.thread[columns.line[row]]))
    rows = np.union1d(own, [row])
    lasts = (columns.start_ps[rows] <= columns.start_ps[row]) & (
        columns.end_ps[rows] >= columns.end_ps[row]
    )
    rows = rows[lasts]
    rows = rows[np.lexsort((-columns.end_ps[rows], columns.start_ps[rows]))]
    # Of events with the same bounds the later one is inside.
    around = rows[: int(np.flatnonzero(rows == row)[0]) + 1]
    return tuple(trace.names.text(int(columns.name[each])) for each in around)


@pytest.mark.parametrize("name", ["custom-loop-2", "keras-fit-4", "no-markers-2", "slow-input-2"])
def test_evidence_of_every_gap(name: str) -> None:
    trace = load(FIXTURES / name)
    idle = Context(trace, select(trace)).idle
    for device, gaps in idle.gaps.items():
        states = idle.states[trace.device_list[device].host]
        many = ManyEvidence(trace, states)
        start, end = gaps.spans
        # Every cause is asked for in every gap, whatever its own is.
        for cause in Cause:
            asked = np.full(gaps.count, cause)
            rows = many.rows(asked, gaps.thread, start, end)
            shown = np.flatnonzero(rows != NONE)
            stacks, index = many.stacks(rows[shown])
            found = dict(zip(shown.tolist(), index.tolist(), strict=True))
            for gap in range(0, gaps.count, 7):
                thread = int(gaps.thread[gap])
                alone = evidence_of(trace, states, cause, thread, int(start[gap]), int(end[gap]))
                assert alone == rows[gap]
                if alone != NONE and gap % 5 == 0:
                    assert stacks[found[gap]] == stack_of(trace, states, alone)
