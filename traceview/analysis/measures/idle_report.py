"""Groups the idle time of each device by state, and lists its gaps with what the host did in them.

A gap is a maximal span without activity. The table of gaps has all that is known of them; the gaps of a report are rows of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.analysis.measures.context import Context, View
from traceview.analysis.rules.finding import OfDevice, Skipped
from traceview.base.ids import is_in, unique_inverse
from traceview.base.intervals import BoolArray, Int32Array, Int64Array
from traceview.base.record import (
    Activity,
    Count,
    EventName,
    Integer,
    Picoseconds,
    Record,
    SourceLine,
    ThreadName,
    Words,
    one_of,
)
from traceview.base.sweeping import SWEEPS
from traceview.base.units import PS_PER_US
from traceview.document import model as doc
from traceview.ledger.states import BY_KEY, IDLE_STATES, KEYS, State
from traceview.ledger.table import GapStates, Ledger, by_size, gap_states
from traceview.trace.columns import NONE
from traceview.trace.device.table import Column, Table, category, table, whole
from traceview.trace.host.gaps import Gaps
from traceview.trace.host.python_lines import PythonLine
from traceview.trace.model import StepBounds, Trace


class Gap(Record, frozen=True):
    """A maximal span without activity on one device inside the window.

    Attributes:
        start_ps: Start, picoseconds since the origin of the run.
        duration_ps: Length, picoseconds.
        state: The state with the largest part.
        states: Picoseconds by state, largest first; states that do not occur are left out.
        before: Op, or kernel without one, that ended where the gap begins; null at the start of the window.
        after: Op, or kernel without one, that starts where the gap ends; null at the end of the window.
        step: Number of the step in which most of it lies.
        thread: Thread of the host event, or without one the thread that was late.
        host_event: The host event that shows the state; null where nothing was recorded.
        previous_event: What the thread recorded last before the longest time in the state; null where an event shows
            it, and without any.
        next_event: What it recorded next.
        python: The line of the user's Python code that ran in the gap, from samples of its stack; null where no
            stack was sampled, or where the device did not wait for Python.
    """

    start_ps: Integer
    duration_ps: Picoseconds
    state: Annotated[str, one_of(*KEYS)]
    states: dict[Words, Count]
    before: Activity | None
    after: Activity | None
    step: Integer | None
    thread: ThreadName | None
    host_event: EventName | None
    previous_event: EventName | None = None
    next_event: EventName | None = None
    python: SourceLine | None = None


class IdleRow(OfDevice, frozen=True):
    """The idle time of one device in its host's window.

    Attributes:
        idle_ps: Time without activity in the window, picoseconds; the states sum to it.
        gap_count: Maximal spans without activity in the window.
        longest_gap_ps: Length of the longest of them, picoseconds.
        states: Picoseconds by state, largest first; states that do not occur are left out.
        gaps: The longest gaps, longest first.
    """

    idle_ps: Picoseconds
    gap_count: Count
    longest_gap_ps: Picoseconds
    states: dict[Words, Count]
    gaps: tuple[Gap, ...]


class Idle(Record, frozen=True):
    """The idle time of all devices.

    Attributes:
        devices: One entry per device whose host recorded device events, in the order of the device list.
    """

    devices: tuple[IdleRow, ...]


def compute(context: Context) -> Idle | Skipped:
    """The idle time of each device by state, with its longest gaps."""
    if not context.idle.gaps:
        return Skipped("the trace holds no device event")
    return Idle(tuple(_row(context, device) for device in context.idle.gaps))


def _row(context: Context, device: int) -> IdleRow:
    trace, gaps = context.trace, gaps_of(context, device)
    return IdleRow(
        *trace.identity(device),
        idle_ps=int(gaps.duration_ps.sum()),
        gap_count=gaps.number.size,
        longest_gap_ps=int(gaps.duration_ps.max(initial=0)),
        states=by_size({s.key: ps for s, ps in context.ledger.idle_by_state(device).items()}),
        gaps=_longest(context, gaps) if context.options.gaps else (),
    )


def _longest(context: Context, gaps: ChosenGaps) -> tuple[Gap, ...]:
    longest = longest_first(gaps.duration_ps, context.options.gaps)
    kept = np.sort(longest)
    return gap_rows(_table(context, [gaps.at(kept)], np.searchsorted(kept, longest)))


def longest_first(length: Int64Array, top: int | None) -> Int64Array:
    """Numbers of the `top` longest spans, longest first, of equal ones the earlier."""
    candidates = np.arange(length.size)
    if top is not None and 0 < top < length.size:
        candidates = np.flatnonzero(length >= np.partition(length, -top)[-top])
    return candidates[np.argsort(-length[candidates], kind="stable")][:top]


_COLUMN_OF_STATE: Final = {state.key: f"{state.key}_ps" for state in IDLE_STATES}


def gap_rows(rows: Table) -> tuple[Gap, ...]:
    """The rows of a table of gaps as records."""
    of_table = [field for field in Gap.__struct_fields__ if field != "states"]
    return tuple(
        Gap(
            **{field: row[field] for field in of_table},
            states=by_size({key: row[column] for key, column in _COLUMN_OF_STATE.items()}),
        )
        for row in rows.rows()
    )


# A document

MOST_GAPS: Final = 100
"""Gaps of all devices together that have a row, the longest ones."""

_NO_WORK: Final = State.NO_WORK.key


class NumberedGap(Struct, frozen=True):
    """A gap of a document: where it lies, and its number, from 1 on by length; 0 in a table of gaps without numbers."""

    gap: Gap
    span: doc.Span
    number: int = 0


def numbered_gaps(view: View) -> tuple[NumberedGap, ...]:
    """The longest gaps of the devices that were used, numbered as documents number them."""
    result = view.record("idle", Idle)
    starts = view.window_start_ps
    longest = sorted(
        (
            (gap, row)
            for row in (result.devices if result else ())
            if not is_without_work(row) and row.host in starts
            for gap in row.gaps
        ),
        key=lambda pair: -pair[0].duration_ps,
    )[:MOST_GAPS]
    return tuple(
        NumberedGap(gap, gap_span(row.device, gap, starts[row.host]), number)
        for number, (gap, row) in enumerate(longest, start=1)
    )


def gap_span(device: str, gap: Gap, window_ps: int) -> doc.Span:
    """Where a gap lies in the window of its device, which begins at `window_ps`."""
    begin = gap.start_ps - window_ps
    return doc.Span(device, begin, begin + gap.duration_ps)


def is_without_work(row: IdleRow) -> bool:
    """Whether it was idle for no other reason than that nobody gave it work."""
    return list(row.states) == [_NO_WORK]


# What is known of gaps

_LEAST_SAMPLED_PS: Final = 100 * PS_PER_US
"""Samples of stacks come every millisecond or so, and say little of shorter gaps."""


class ChosenGaps(Struct, frozen=True, eq=False, dict=True):
    """Some gaps of one device, by their numbers, ascending int64 `[n]`. Their states are only looked up where they are asked for."""

    ledger: Ledger
    gaps: Gaps
    number: Int64Array

    def at(self, places: npt.NDArray[np.integer] | BoolArray) -> ChosenGaps:
        """Those at some places."""
        return ChosenGaps(self.ledger, self.gaps, self.number[places])

    @cached_property
    def duration_ps(self) -> Int64Array:
        """The length of each."""
        return self.gaps.end_ps[self.number] - self.gaps.start_ps[self.number]

    @cached_property
    def states(self) -> GapStates:
        """Their states."""
        return gap_states(self.ledger, self.gaps, self.number)

    @property
    def state(self) -> Int64Array:
        """The state with the largest part of each."""
        return self.states.largest.astype(np.int64)

    def in_states(self, states: Iterable[int]) -> Int64Array:
        """How much of each is in some states, picoseconds."""
        of_state = self.states.by_state
        nothing = np.zeros(self.number.size, dtype=np.int64)
        return sum((of_state[state] for state in states if state in of_state), nothing)

    @property
    def has_no_work(self) -> BoolArray:
        """Which are there mostly because the device had no work, as few devices have."""
        own, columns = self.ledger.rows_of(self.gaps.device), self.ledger.columns
        if not (columns.state[own] == State.NO_WORK).any():
            return np.zeros(self.number.size, dtype=np.bool_)
        has_no_work: BoolArray = self.state == State.NO_WORK
        return has_no_work


def gaps_of(context: Context, device: int) -> ChosenGaps:
    """All gaps of a device in time order."""
    gaps = context.idle.gaps[device]
    return ChosenGaps(context.ledger, gaps, np.arange(gaps.count))


def evidence_rows(context: Context, part: ChosenGaps) -> Int64Array:
    """The host row that shows the state of each gap, `NONE` without one."""
    trace, gaps, chosen = context.trace, part.gaps, part.number
    state = part.state
    after = gaps.after[chosen]
    launch = np.where(after != NONE, trace.device_columns.launch[after], NONE)
    by_launch = is_in(state, (State.LATENCY, State.DEPENDENCY))
    row = np.full(chosen.size, NONE, dtype=np.int64)
    states = context.idle.states[trace.device_list[gaps.device].host]
    start, end = part.states.longest_parts()
    quarter = (end - start) // 4
    # Of what is done piece by piece no event need be in the middle.
    for begin, until in ((start + quarter, end - quarter), (start, start)):
        at = np.flatnonzero(~by_launch & (row == NONE))
        row[at] = states.shown_by(state[at], gaps.thread[chosen[at]], begin[at], until[at])
    by_launch |= (state == State.H2D) & (row == NONE)
    return np.where(by_launch, launch, row)


def surroundings(
    context: Context, part: ChosenGaps
) -> Iterator[tuple[str | None, str | None, str | None]]:
    """The thread that was late in each gap, and what it recorded before and after the longest time in the state of the gap.

    Nothing if none was late.
    """
    trace, gaps = context.trace, part.gaps
    states, names = (
        context.idle.states[trace.device_list[gaps.device].host],
        trace.host_columns.name,
    )
    start, end = part.states.longest_parts()
    is_before = start < gaps.handed_over_ps[part.number]
    thread = np.where(is_before, states.caller, gaps.thread[part.number])
    is_late = (part.state != State.NO_WORK) & (start < gaps.late_end_ps[part.number])
    is_late &= thread != NONE
    for late, number, *span in zip(
        is_late.tolist(), thread.tolist(), start.tolist(), end.tolist(), strict=True
    ):
        if not late:
            yield None, None, None
            continue
        before, after = (
            None if row == NONE else trace.names.text(int(names[row]))
            for row in states.around(number, *span)
        )
        yield trace.lines[number].name, before, after


def python_lines(context: Context, part: ChosenGaps) -> list[PythonLine | None]:
    """The line that ran in each gap while the device was in its state; None where none was sampled, or in short gaps."""
    host = context.trace.device_list[part.gaps.device].host
    python = context.idle.python.get(host)
    lines: list[PythonLine | None] = [None] * part.number.size
    if python is None:
        return lines
    is_long = part.duration_ps >= _LEAST_SAMPLED_PS
    for state in np.unique(part.state[is_long]).tolist():
        places = np.flatnonzero(is_long & (part.state == state))
        spans = part.states.parts_of(places)
        known = python.in_each(State(state), *spans, places.size)
        for place, line in zip(places.tolist(), known, strict=True):
            lines[place] = line
    return lines


def activity_names(trace: Trace, rows: Int32Array) -> list[str | None]:
    """The name of each device event: its op, or its kernel without one; None without an event."""
    columns, text = trace.device_columns, trace.names.text
    op, name = columns.names_at(rows)
    has_no_text = (op == NONE) | trace.names.matching(op, [b""])
    distinct, index = unique_inverse(np.where(has_no_text, name, op))
    names = [text(number) for number in distinct.tolist()]
    return [names[place] for place in index.tolist()]


# As a table


def gap_table(
    context: Context,
    *,
    devices: Collection[str],
    states: Collection[str] = (),
    least_ps: int = 0,
    top: int | None = None,
) -> tuple[Table, int]:
    """The gaps of the devices, longest first, those without work last, and how many rows `top` leaves out.

    `devices`: keys as in the report. `states`: only gaps that hold one of these, those that hold most of them first.
    `least_ps`: only gaps from this length on. The times by state of a gap add up to `duration_ps`. `previous_event`
    and `next_event`: what the thread recorded around the time in that state where no event shows it.
    """
    wanted = [BY_KEY[key] for key in states]
    parts = []
    for device in sorted(context.idle.gaps):
        if context.trace.device_key(device) in devices:
            every = gaps_of(context, device)
            part = every.at(every.duration_ps >= least_ps)
            parts.append(part.at(part.in_states(wanted) > 0) if states else part)
    nothing = np.empty(0, dtype=np.int64)
    lengths = (part.in_states(wanted) if states else part.duration_ps for part in parts)
    length = np.concatenate([nothing, *lengths])
    no_work = np.concatenate([nothing, *(part.has_no_work for part in parts)])
    # A device without work waited for nothing.
    shown = longest_first(length - no_work * (length.max(initial=0) + 1), top)
    kept = np.sort(shown)
    first = np.cumsum([0, *(part.number.size for part in parts)])
    chosen = [
        part.at(kept[low:high] - begin)
        for part, begin, (low, high) in zip(
            parts, first.tolist(), pairwise(np.searchsorted(kept, first).tolist()), strict=False
        )
    ]
    return _table(context, chosen, np.searchsorted(kept, shown)), length.size - shown.size


def _table(context: Context, parts: Sequence[ChosenGaps], order: Int64Array) -> Table:
    """A row per gap of the parts, one after the other, and then in this order."""
    made = [_values(context, part) for part in parts]

    def joined(name: str, dtype: type = np.int64) -> npt.NDArray[Any]:
        empty: npt.NDArray[Any] = np.empty(0, dtype=dtype)
        return np.concatenate([empty, *(values[name] for values in made)])[order]

    def named(*names: str) -> Iterator[Column]:
        for name in names:
            known: dict[str | None, int] = {None: NONE}
            codes = [
                known.setdefault(text, len(known) - 1) for values in made for text in values[name]
            ]
            labels = tuple(text for text in known if text is not None)
            yield Column(name, "category", np.array(codes, dtype=np.int32)[order], labels=labels)

    return table(
        "gaps",
        *named("device"),
        whole("start_ps", joined("start_ps")),
        whole("duration_ps", joined("duration_ps")),
        whole("step", joined("step"), joined("has_no_step", np.bool_)),
        category("state", joined("state"), KEYS),
        *named("before", "after", "thread", "host_event", "python"),
        *named("previous_event", "next_event"),
        *(whole(name, joined(name)) for name in _COLUMN_OF_STATE.values()),
    )


def longest_steps(gaps: Gaps, bounds: StepBounds) -> Int32Array:
    """The step with the longest piece of each gap, of several the first, int32 `[n]`; `NONE` outside of steps."""
    start, end, gap, place = SWEEPS.cut(gaps.start_ps, gaps.end_ps, bounds.time)
    order = np.lexsort((start, start - end, gap))
    result: Int32Array = bounds.step[place[order[np.diff(gap[order], prepend=NONE) != 0]]]
    return result


def _values(context: Context, part: ChosenGaps) -> dict[str, Any]:
    """The columns of the gaps of a device: arrays, and lists of texts."""
    trace, gaps, chosen = context.trace, part.gaps, part.number
    host = trace.device_list[gaps.device].host
    row = evidence_rows(context, part)
    shown, hidden = np.flatnonzero(row != NONE), np.flatnonzero(row == NONE)
    around = list(surroundings(context, part.at(hidden)))
    lines = trace.host_columns.line[row[shown]].tolist()
    of_step = longest_steps(gaps, StepBounds.of(context.selection.steps[host]))[chosen]
    steps = np.array([*(step.number for step in context.selection.steps[host]), 0], dtype=np.int64)
    nothing = np.zeros(chosen.size, dtype=np.int64)

    def texts(
        of_shown: Iterable[str | None], of_hidden: Iterable[str | None] = ()
    ) -> list[str | None]:
        cells: list[str | None] = [None] * chosen.size
        for places, known in ((shown, of_shown), (hidden, of_hidden)):
            for place, text in zip(places.tolist(), known, strict=False):
                cells[place] = text
        return cells

    return {
        "device": [trace.device_key(gaps.device)] * chosen.size,
        "start_ps": gaps.start_ps[chosen],
        "duration_ps": part.duration_ps,
        "step": steps[of_step],
        "has_no_step": of_step == NONE,
        "state": part.state,
        "before": activity_names(trace, gaps.before[chosen]),
        "after": activity_names(trace, gaps.after[chosen]),
        "thread": texts((trace.lines[line].name for line in lines), (of[0] for of in around)),
        "host_event": texts(map(trace.names.text, trace.host_columns.name[row[shown]].tolist())),
        "previous_event": texts((), (of[1] for of in around)),
        "next_event": texts((), (of[2] for of in around)),
        "python": [str(line) if line else None for line in python_lines(context, part)],
        **{
            _COLUMN_OF_STATE[state.key]: part.states.by_state.get(state, nothing)
            for state in IDLE_STATES
        },
    }
