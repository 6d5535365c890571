"""Computes the idle time of each device by cause, and its longest gaps with what the host did in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import numpy as np
from msgspec import field

from traceview.analysis.base import Skipped
from traceview.analysis.idle_attribution import IdleAttribution
from traceview.analysis.idle_python import PythonShare, python_by_cause, python_in_gaps
from traceview.analysis.selection import Selection
from traceview.intervals import Int64Array
from traceview.record import (
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
from traceview.trace.cause import Cause
from traceview.trace.gap_evidence import (
    HostEvidence,
    Surroundings,
    evidence_at,
    evidence_of,
    surroundings_of,
)
from traceview.trace.gap_spans import cause_spans
from traceview.trace.gaps import Gaps, late_parts
from traceview.trace.host_states import HostStates
from traceview.trace.model import NONE, Trace

TOP_GAPS: Final = 10
"""Gaps per device in a report; `traceview gaps` shows all."""


class Gap(Record, frozen=True):
    """A maximal span without activity on one device inside the window.

    Attributes:
        start_ps: Start, picoseconds since the origin of the run.
        duration_ps: Length, picoseconds.
        cause: The cause with the largest part.
        causes: Picoseconds by cause, largest first; causes that do not occur are left out.
        before: Op, or kernel without one, that ended where the gap begins; null at the start of the window.
        after: Op, or kernel without one, that starts where the gap ends; null at the end of the window.
        step: Number of the step in which most of it lies.
        thread: Thread of the host event, or without one the thread that was late.
        host_event: The host event that shows the cause; null where nothing was recorded.
        host_stack: Names of the events around it on its thread, outermost first, and its own.
        previous_event: What the thread recorded last before the longest part of the cause; null where an event shows
            the cause, and without any.
        next_event: What it recorded next.
        python: The line of the user's Python code that ran in the gap, from samples of its stack; null where no
            stack was sampled, or where the device did not wait for Python.
        python_inner: The line of a library, called from there, that ran; null where the user's own line did.
        python_ratio: Share of the sampled time in the gap that was in the function of that line.
    """

    start_ps: Integer
    duration_ps: Picoseconds
    cause: Annotated[str, one_of(*(cause.key for cause in Cause))]
    causes: dict[str, Count]
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


class StepCauses(Record, frozen=True):
    """Idle time of one device in what the window holds of one step.

    Attributes:
        number: Number of the step.
        idle_ps: Idle time in the step, picoseconds; the causes sum to it.
        causes: Picoseconds by cause, largest first; causes that do not occur are left out.
    """

    number: Integer
    idle_ps: Picoseconds
    causes: dict[str, Count]


class IdleRow(Record, frozen=True):
    """The idle time of one device in its host's window.

    Attributes:
        host: Host of the device.
        device: Device, as in device_time.
        ordinal: Number of the device on its host.
        idle_ps: Time without activity in the window, picoseconds; the causes sum to it.
        gap_count: Maximal spans without activity in the window.
        longest_gap_ps: Length of the longest of them, picoseconds.
        causes: Picoseconds by cause, largest first; causes that do not occur are left out.
        python: The Python that ran in idle time of each cause, by cause; without those where none was sampled.
        causes_per_step: Mean picoseconds by cause over the used steps; null without any.
        gaps: The longest gaps, longest first.
        left_out_gap_count: Gaps that are not listed.
        steps: The same by step of the window.
    """

    host: Hostname
    device: DeviceKey
    ordinal: Integer
    idle_ps: Picoseconds
    gap_count: Count
    longest_gap_ps: Picoseconds
    causes: dict[str, Count]
    causes_per_step: dict[str, Count] | None
    gaps: tuple[Gap, ...]
    left_out_gap_count: Count
    steps: tuple[StepCauses, ...]
    python: dict[str, PythonShare] = field(default_factory=dict)


class Idle(Record, frozen=True):
    """What each device waited for.

    Attributes:
        devices: One entry per device whose host recorded device events, in the order of the device list.
    """

    devices: tuple[IdleRow, ...]


def compute(
    trace: Trace, selection: Selection, attribution: IdleAttribution, top: int | None = TOP_GAPS
) -> Idle | Skipped:
    """The idle time of each device by cause, with its `top` longest gaps, None for all."""
    if not attribution.gaps:
        return Skipped("the trace holds no device event")
    return Idle(
        tuple(_row(trace, selection, attribution, device, top) for device in attribution.gaps)
    )


def _row(
    trace: Trace, selection: Selection, attribution: IdleAttribution, device: int, top: int | None
) -> IdleRow:
    entry, gaps = trace.device_list[device], attribution.gaps[device]
    start, end = gaps.spans
    length = end - start
    longest = longest_first(length, top)
    steps = selection.steps[entry.host]
    of_steps = attribution.causes_of_steps[device]
    used = np.array([step.excluded is None for step in steps], dtype=np.bool_)
    return IdleRow(
        host=trace.hosts[entry.host].name,
        device=trace.device_key(device),
        ordinal=entry.ordinal,
        idle_ps=int(length.sum()),
        gap_count=gaps.count,
        longest_gap_ps=int(length.max(initial=0)),
        causes=_by_cause(gaps.total_ps),
        causes_per_step=_by_cause(of_steps[:, used].sum(axis=1) // int(used.sum()))
        if used.any()
        else None,
        gaps=tuple(gap_rows(trace, selection, gaps, attribution, longest)),
        left_out_gap_count=gaps.count - longest.size,
        steps=tuple(
            StepCauses(step.number, int(of_steps[:, i].sum()), _by_cause(of_steps[:, i]))
            for i, step in enumerate(steps)
        ),
        python=python_by_cause(
            trace, gaps, attribution.states[entry.host], attribution.python.get(entry.host)
        ),
    )


_KEYS: Final = tuple(cause.key for cause in Cause)


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


def _by_cause(picoseconds: Int64Array) -> dict[str, int]:
    """The causes that occur, largest first."""
    values = picoseconds.tolist()
    order = sorted((i for i, value in enumerate(values) if value), key=lambda i: -values[i])
    return {_KEYS[i]: values[i] for i in order}


def gap_rows(
    trace: Trace,
    selection: Selection,
    gaps: Gaps,
    attribution: IdleAttribution,
    chosen: Int64Array,
) -> Iterator[Gap]:
    """The gaps with the numbers `chosen`: their causes, what was before and after, and the evidence on the host."""
    start, end = (bound.tolist() for bound in gaps.spans_of(chosen))
    causes = gaps.causes_of(chosen)
    host = trace.device_list[gaps.device].host
    steps, states = selection.steps[host], attribution.states[host]
    lines = python_in_gaps(
        trace, gaps, states, attribution.python.get(host), chosen, causes.argmax(axis=0)
    )
    for place, index in enumerate(chosen.tolist()):
        cause = Cause(int(causes[:, place].argmax()))
        evidence = evidence_in_gap(trace, gaps, states, index, cause, start[place], end[place])
        around = Surroundings()
        if not evidence:
            (around,) = surroundings(trace, gaps, states, chosen[[place]], np.array([cause]))
        pieces = gaps.pieces_of(index)
        longest = int((gaps.end_ps[pieces] - gaps.start_ps[pieces]).argmax())
        step = int(gaps.step[pieces][longest])
        line = lines[place]
        yield Gap(
            start_ps=start[place],
            duration_ps=end[place] - start[place],
            cause=cause.key,
            causes=_by_cause(causes[:, place]),
            before=activity_name(trace, int(gaps.before[index])),
            after=activity_name(trace, int(gaps.after[index])),
            step=None if step == NONE else steps[step].number,
            thread=evidence.thread if evidence else around.thread,
            host_event=evidence.event if evidence else None,
            host_stack=evidence.stack if evidence else (),
            previous_event=around.before,
            next_event=around.after,
            python=str(line) if line else None,
            python_inner=str(line.inner) if line and line.inner else None,
            python_ratio=line.ratio if line else None,
        )


def surroundings(
    trace: Trace, gaps: Gaps, states: HostStates, chosen: Int64Array, causes: Int64Array
) -> Iterator[Surroundings]:
    """What was recorded around the longest part of its cause in each gap; nothing if the host was not late in it."""
    if not chosen.size:
        return
    spans = cause_spans(trace, gaps, states, np.sort(chosen))
    first, last = np.searchsorted(spans.gap, [chosen, chosen + 1]).tolist()
    for index, cause, low, high in zip(chosen.tolist(), causes.tolist(), first, last, strict=True):
        start_ps, end_ps = spans.start_ps[low:high], spans.end_ps[low:high]
        length = np.where(spans.cause[low:high] == cause, end_ps - start_ps, 0)
        if cause == Cause.UNUSED or not length.any():
            yield Surroundings()
        else:
            longest = int(length.argmax())
            start, end = int(start_ps[longest]), int(end_ps[longest])
            yield around_part(trace, gaps, states, index, start, end)


def around_part(
    trace: Trace, gaps: Gaps, states: HostStates, index: int, start_ps: int, end_ps: int
) -> Surroundings:
    """What the thread that was late recorded around a part of the gap with the number `index`.

    Nothing where the host was not late.
    """
    late_end, handed_over = late_parts(trace, gaps, np.array([index]))
    if start_ps >= late_end[0]:
        return Surroundings()
    thread = states.caller if start_ps < handed_over[0] else int(gaps.thread[index])
    return surroundings_of(trace, states, thread, start_ps, end_ps)


def evidence_in_gap(
    trace: Trace,
    gaps: Gaps,
    states: HostStates,
    index: int,
    cause: Cause,
    start_ps: int,
    end_ps: int,
) -> HostEvidence | None:
    """What the host did in a part of the gap with the number `index` that has this cause; None if nothing shows it."""

    def of_thread() -> HostEvidence | None:
        return evidence_of(trace, states, cause, int(gaps.thread[index]), start_ps, end_ps)

    if cause in (Cause.UNUSED, Cause.UNATTRIBUTED):
        return None
    after = int(gaps.after[index])
    launch = int(trace.device_columns.launch[after]) if after != NONE else NONE
    if cause in (Cause.LATENCY, Cause.DEPENDENCY) or (cause is Cause.H2D and launch != NONE):
        evidence = of_thread() if cause is Cause.H2D else None
        return evidence or (evidence_at(trace, states, launch) if launch != NONE else None)
    return of_thread()


def activity_name(trace: Trace, row: int) -> str | None:
    """The op of a device event, or its kernel without one; None without an event."""
    if row == NONE:
        return None
    columns = trace.device_columns
    return trace.names.text(int(columns.op[row])) or trace.names.text(int(columns.name[row]))
