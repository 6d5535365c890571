"""Why was each device idle?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from traceview.analyses.finding import Skipped
from traceview.analyses.selection import Selection
from traceview.ids import unique_ids
from traceview.intervals import Int64Array
from traceview.trace.cause import Cause
from traceview.trace.gap_evidence import HostEvidence, evidence_at, evidence_of
from traceview.trace.gaps import Gaps, gaps_of_device
from traceview.trace.host_states import HostStates
from traceview.trace.model import NONE, Trace

TOP_GAPS: Final = 10
"""Gaps per device in a report; `traceview gaps` shows all."""


@dataclass(frozen=True)
class Gap:
    """A maximal span without activity on one device inside the window.

    `cause`: the one with the largest part; `causes`: all parts, which sum to `duration_ps`. `before`,
    `after`: the ops (or kernels without one) on either side, None at the ends of the window. `step`: the
    number of the step in which most of it lies. `thread`, `host_event`, `host_stack`: the event that shows
    the cause, and the names around it, outermost first; None where nothing was recorded.
    """

    start_ps: int
    duration_ps: int
    cause: str
    causes: dict[str, int]
    before: str | None
    after: str | None
    step: int | None
    thread: str | None
    host_event: str | None
    host_stack: tuple[str, ...]


@dataclass(frozen=True)
class StepCauses:
    """Idle time of one device in what the window holds of one step; `causes` sum to `idle_ps`."""

    number: int
    idle_ps: int
    causes: dict[str, int]


@dataclass(frozen=True)
class IdleRow:
    """The idle time of one device in its host's window.

    `causes`: picoseconds by cause; they sum to `idle_ps`. `causes_per_step`: the mean over the used steps.
    `gaps`: the longest, longest first; `left_out_gap_count` says how many more there are.
    """

    host: str
    device: str
    ordinal: int
    idle_ps: int
    gap_count: int
    longest_gap_ps: int
    causes: dict[str, int]
    causes_per_step: dict[str, int] | None
    gaps: tuple[Gap, ...]
    left_out_gap_count: int
    steps: tuple[StepCauses, ...]


@dataclass(frozen=True)
class Idle:
    """All devices of which the tracer recorded the host's device events, in the order of the device list."""

    devices: tuple[IdleRow, ...]


@dataclass(frozen=True, eq=False)
class IdleTime:
    """What the findings are made from: the gaps by device index, and the states of the hosts."""

    gaps: Mapping[int, Gaps]
    states: Mapping[int, HostStates]
    causes_of_steps: Mapping[int, Int64Array]
    """By device index: idle picoseconds by cause and step, int64 `[causes, steps of the host]`."""


def idle_time(trace: Trace, selection: Selection) -> IdleTime:
    """Attribute every gap of every device that could be recorded."""
    recorded = {trace.device_list[i].host for i in unique_ids(trace.device_columns.device)}
    states: dict[int, HostStates] = {}
    gaps: dict[int, Gaps] = {}
    of_steps: dict[int, Int64Array] = {}
    for device, entry in enumerate(trace.device_list):
        window = selection.window_of_device(trace, device)
        if window is None or entry.host not in recorded:
            continue
        if entry.host not in states:
            states[entry.host] = HostStates(trace, entry.host)
        steps = selection.steps[entry.host]
        bounds = (
            np.array([step.start_ps for step in steps], dtype=np.int64),
            np.array([step.end_ps for step in steps], dtype=np.int64),
        )
        gaps[device] = gaps_of_device(trace, device, window, bounds, states[entry.host])
        of_steps[device] = gaps[device].of_steps(*bounds)
    return IdleTime(gaps, states, of_steps)


def compute(
    trace: Trace, selection: Selection, found: IdleTime, top: int | None = TOP_GAPS
) -> Idle | Skipped:
    """Say for each device what its idle time was due to, with its `top` longest gaps, None for all."""
    if not found.gaps:
        return Skipped("no device recorded an event")
    return Idle(
        tuple(
            _row(trace, selection, device, gaps, found, top) for device, gaps in found.gaps.items()
        )
    )


def _row(
    trace: Trace,
    selection: Selection,
    device: int,
    gaps: Gaps,
    found: IdleTime,
    top: int | None,
) -> IdleRow:
    entry = trace.device_list[device]
    start, end = gaps.spans
    length = end - start
    longest = _longest(length, top)
    steps = selection.steps[entry.host]
    of_steps = found.causes_of_steps[device]
    used = np.array([step.excluded is None for step in steps], dtype=np.bool_)
    return IdleRow(
        host=trace.hosts[entry.host].name,
        device=trace.device_key(device),
        ordinal=entry.ordinal,
        idle_ps=int(length.sum()),
        gap_count=gaps.count,
        longest_gap_ps=int(length.max(initial=0)),
        causes=_by_cause(gaps.cause_ps.sum(axis=1)),
        causes_per_step=_by_cause(of_steps[:, used].sum(axis=1) // int(used.sum()))
        if used.any()
        else None,
        gaps=tuple(gap_rows(trace, selection, gaps, found.states[entry.host], longest)),
        left_out_gap_count=gaps.count - longest.size,
        steps=tuple(
            StepCauses(step.number, int(of_steps[:, i].sum()), _by_cause(of_steps[:, i]))
            for i, step in enumerate(steps)
        ),
    )


def _longest(length: Int64Array, top: int | None) -> Int64Array:
    """Numbers of the `top` longest gaps, longest first, of equal ones the earlier."""
    candidates = np.arange(length.size)
    if top is not None and 0 < top < length.size:
        candidates = np.flatnonzero(length >= np.partition(length, -top)[-top])
    return candidates[np.argsort(-length[candidates], kind="stable")][:top]


def _by_cause(picoseconds: Int64Array) -> dict[str, int]:
    """The causes that occur, largest first."""
    order = np.argsort(-picoseconds, kind="stable").tolist()
    return {Cause(i).key: int(picoseconds[i]) for i in order if picoseconds[i]}


def gap_rows(
    trace: Trace, selection: Selection, gaps: Gaps, states: HostStates, chosen: Int64Array
) -> Iterator[Gap]:
    """The gaps of the numbers `chosen`, with their context."""
    start, end = gaps.spans
    causes = gaps.causes_of(chosen)
    steps = selection.steps[trace.device_list[gaps.device].host]
    for place, index in enumerate(chosen.tolist()):
        cause = Cause(int(causes[:, place].argmax()))
        evidence = _evidence(trace, gaps, states, index, cause, int(start[index]), int(end[index]))
        pieces = slice(*np.searchsorted(gaps.gap, [index, index + 1]).tolist())
        longest = int((gaps.end_ps[pieces] - gaps.start_ps[pieces]).argmax())
        step = int(gaps.step[pieces][longest])
        yield Gap(
            start_ps=int(start[index]),
            duration_ps=int(end[index] - start[index]),
            cause=cause.key,
            causes=_by_cause(causes[:, place]),
            before=_name(trace, int(gaps.before[index])),
            after=_name(trace, int(gaps.after[index])),
            step=None if step == NONE else steps[step].number,
            thread=evidence.thread if evidence else None,
            host_event=evidence.event if evidence else None,
            host_stack=evidence.stack if evidence else (),
        )


def _evidence(
    trace: Trace,
    gaps: Gaps,
    states: HostStates,
    index: int,
    cause: Cause,
    start_ps: int,
    end_ps: int,
) -> HostEvidence | None:
    if cause in (Cause.UNUSED, Cause.UNATTRIBUTED):
        return None
    after = int(gaps.after[index])
    launch = int(trace.device_columns.launch[after]) if after != NONE else NONE
    if cause in (Cause.LATENCY, Cause.DEPENDENCY) or (cause is Cause.H2D and launch != NONE):
        found = (
            evidence_of(trace, states, cause, int(gaps.thread[index]), start_ps, end_ps)
            if cause is Cause.H2D
            else None
        )
        return found or (evidence_at(trace, states, launch) if launch != NONE else None)
    return evidence_of(trace, states, cause, int(gaps.thread[index]), start_ps, end_ps)


def _name(trace: Trace, row: int) -> str | None:
    if row == NONE:
        return None
    columns = trace.device_columns
    return trace.names.text(int(columns.op[row])) or trace.names.text(int(columns.name[row]))
