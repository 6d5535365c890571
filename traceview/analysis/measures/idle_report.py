"""Groups the idle time of each device by state, and lists its longest gaps with what the host did in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Final

import numpy as np
from msgspec import Struct

from traceview.analysis.measures.context import Context, View
from traceview.analysis.measures.listed_gaps import (
    ChosenGaps,
    activity_names,
    evidence_rows,
    gaps_of,
    python_lines,
    surroundings,
)
from traceview.analysis.rules.finding import Skipped
from traceview.base.intervals import Int64Array
from traceview.base.record import (
    Activity,
    Count,
    DeviceKey,
    Hostname,
    Integer,
    Picoseconds,
    Record,
    Share,
    SourceLine,
    ThreadName,
    one_of,
)
from traceview.document import model as doc
from traceview.ledger.states import KEYS, State
from traceview.trace.host.gap_evidence import Surroundings
from traceview.trace.model import NONE

TOP_GAPS: Final = 10
"""Gaps per device in a report; `traceview show gaps` shows all."""


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
        host_stack: Names of the events around it on its thread, outermost first, and its own.
        previous_event: What the thread recorded last before the longest time in the state; null where an event shows
            it, and without any.
        next_event: What it recorded next.
        python: The line of the user's Python code that ran in the gap, from samples of its stack; null where no
            stack was sampled, or where the device did not wait for Python.
        python_inner: The line of a library, called from there, that ran; null where the user's own line did.
        python_ratio: Share of the sampled time in the gap that was in the function of that line.
    """

    start_ps: Integer
    duration_ps: Picoseconds
    state: Annotated[str, one_of(*KEYS)]
    states: dict[str, Count]
    before: Activity | None
    after: Activity | None
    step: Integer | None
    thread: ThreadName | None
    host_event: str | None
    host_stack: tuple[str, ...]
    previous_event: str | None = None
    next_event: str | None = None
    python: SourceLine | None = None
    python_inner: SourceLine | None = None
    python_ratio: Share | None = None


class IdleInStep(Record, frozen=True):
    """Idle time of one device in what the window holds of one step.

    Attributes:
        number: Number of the step.
        idle_ps: Idle time in the step, picoseconds; the states sum to it.
        states: Picoseconds by state, largest first; states that do not occur are left out.
    """

    number: Integer
    idle_ps: Picoseconds
    states: dict[str, Count]


class IdleRow(Record, frozen=True):
    """The idle time of one device in its host's window.

    Attributes:
        host: Host of the device.
        device: Device, as in device_time.
        ordinal: Number of the device on its host.
        window_ps: Length of the window, picoseconds.
        idle_ps: Time without activity in the window, picoseconds; the states sum to it.
        gap_count: Maximal spans without activity in the window.
        longest_gap_ps: Length of the longest of them, picoseconds.
        states: Picoseconds by state, largest first; states that do not occur are left out.
        states_per_step: Mean picoseconds by state over the used steps; null without any.
        gaps: The longest gaps, longest first.
        left_out_gap_count: Gaps that are not listed.
        steps: The same by step of the window.
    """

    host: Hostname
    device: DeviceKey
    ordinal: Integer
    window_ps: Picoseconds
    idle_ps: Picoseconds
    gap_count: Count
    longest_gap_ps: Picoseconds
    states: dict[str, Count]
    states_per_step: dict[str, Count] | None
    gaps: tuple[Gap, ...]
    left_out_gap_count: Count
    steps: tuple[IdleInStep, ...]


class Idle(Record, frozen=True):
    """What each device waited for.

    Attributes:
        devices: One entry per device whose host recorded device events, in the order of the device list.
    """

    devices: tuple[IdleRow, ...]


def compute(context: Context, top: int | None = TOP_GAPS) -> Idle | Skipped:
    """The idle time of each device by state, with its `top` longest gaps, None for all."""
    if not context.idle.gaps:
        return Skipped("the trace holds no device event")
    return Idle(tuple(_row(context, device, top) for device in context.idle.gaps))


def _row(context: Context, device: int, top: int | None) -> IdleRow:
    trace, ledger, gaps = context.trace, context.ledger, gaps_of(context, device)
    entry = trace.device_list[device]
    longest = gaps.at(longest_first(gaps.duration_ps, top))
    own = ledger.steps_of(device)
    of_steps = ledger.states_of_steps(device, only_idle=True)
    used_count = ledger.steps_of_device[device]
    window = context.selection.window_of_device(trace, device)
    return IdleRow(
        host=trace.hosts[entry.host].name,
        device=trace.device_key(device),
        ordinal=entry.ordinal,
        window_ps=window.length_ps if window else 0,
        idle_ps=int(gaps.duration_ps.sum()),
        gap_count=gaps.number.size,
        longest_gap_ps=int(gaps.duration_ps.max(initial=0)),
        states=_by_state({s: int(ps.sum()) for s, ps in gaps.states.by_state.items()}),
        states_per_step=_by_state(
            dict(enumerate((of_steps[:, ledger.is_used[own]].sum(axis=1) // used_count).tolist()))
        )
        if used_count
        else None,
        gaps=tuple(gap_rows(context, longest)),
        left_out_gap_count=gaps.number.size - longest.number.size,
        steps=tuple(
            IdleInStep(
                step.number, sum(states), _by_state({s: ps for s, ps in enumerate(states) if ps})
            )
            for step, states in zip(ledger.steps[own], of_steps.T.tolist(), strict=True)
        ),
    )


def _by_state(picoseconds: Mapping[int, int]) -> dict[str, int]:
    """The states that occur, largest first."""
    order = sorted(
        (state for state, ps in picoseconds.items() if ps), key=lambda s: -picoseconds[s]
    )
    return {KEYS[state]: picoseconds[state] for state in order}


_BLOCK: Final = 64
"""Spans of which the longest is looked at first; of fewer blocks than wanted spans every span is."""


def longest_first(length: Int64Array, top: int | None) -> Int64Array:
    """Numbers of the `top` longest spans, longest first, of equal ones the earlier."""
    candidates = np.arange(length.size)
    if top is not None and 0 < top <= length.size // _BLOCK:
        # So many blocks have a span of that length or more.
        longest = length[: length.size // _BLOCK * _BLOCK].reshape(-1, _BLOCK).max(axis=1)
        candidates = np.flatnonzero(length >= np.sort(longest)[-top])
    return candidates[np.argsort(-length[candidates], kind="stable")][:top]


def gap_rows(context: Context, part: ChosenGaps) -> Iterator[Gap]:
    """Some gaps of a device: their states, what was before and after, and the evidence on the host."""
    trace, gaps, chosen = context.trace, part.gaps, part.number
    host = trace.device_list[gaps.device].host
    steps = context.selection.steps[host]
    starts = gaps.spans_of(chosen)[0].tolist()
    before, before_of = activity_names(trace, gaps.before[chosen])
    after, after_of = activity_names(trace, gaps.after[chosen])
    rows = evidence_rows(context, part)
    shown = np.flatnonzero(rows != NONE)
    stacks, index = context.idle.evidence[host].stacks(rows[shown])
    stack_of = dict(zip(shown.tolist(), index.tolist(), strict=True))
    hidden = np.flatnonzero(rows == NONE)
    around_of = dict(zip(hidden.tolist(), surroundings(context, part.at(hidden)), strict=True))
    step_of = gaps.longest_steps[chosen].tolist()
    for place, line in enumerate(python_lines(context, part)):
        stack = stacks[stack_of[place]] if place in stack_of else ()
        around = around_of.get(place, Surroundings())
        thread = trace.lines[trace.host_columns.line[rows[place]]].name if stack else around.thread
        number, step = int(chosen[place]), step_of[place]
        yield Gap(
            start_ps=starts[place],
            duration_ps=int(part.duration_ps[place]),
            state=KEYS[int(part.state[place])],
            states=_by_state({s: int(ps[number]) for s, ps in part.states.by_state.items()}),
            before=before[before_of[place]],
            after=after[after_of[place]],
            step=None if step == NONE else steps[step].number,
            thread=thread,
            host_event=stack[-1] if stack else None,
            host_stack=stack,
            previous_event=around.before,
            next_event=around.after,
            python=str(line) if line else None,
            python_inner=str(line.inner) if line and line.inner else None,
            python_ratio=line.ratio if line else None,
        )


MOST_GAPS: Final = 100
"""Gaps of all devices together that have a row, the longest ones."""

_NO_WORK: Final = State.NO_WORK.key


class NumberedGap(Struct, frozen=True):
    """A gap of a document: its number, from 1 on by length, and where it lies."""

    number: int
    gap: Gap
    span: doc.Span


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
        NumberedGap(number, gap, _span(row.device, gap, starts[row.host]))
        for number, (gap, row) in enumerate(longest, start=1)
    )


def _span(device: str, gap: Gap, window_ps: int) -> doc.Span:
    begin = gap.start_ps - window_ps
    return doc.Span(device, begin, begin + gap.duration_ps)


def is_without_work(row: IdleRow) -> bool:
    """Whether it was idle for no other reason than that nobody gave it work."""
    return list(row.states) == [_NO_WORK]
