"""Finds the gaps of a device, and attributes every picosecond of them to a cause (docs/method.md, "Idle causes").

    device   ▕ kernel ▏······················ gap ·····················▕ e ▏
                      ┌──────── host late ────────┬────── queued ──────┐
    host              ▕ input ▏▕ FunctionRun ▕ op ▕ L ▏

The clocks of host and device differ by microseconds, which moves that much time between host late and queued.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import astuple

from traceview.base.ids import unique_ids
from traceview.base.intervals import (
    BoolArray,
    Int32Array,
    Int64Array,
    IntervalSet,
    overlapping,
    union,
)
from traceview.base.sweeping import compiled_or_reference
from traceview.base.units import PS_PER_US
from traceview.trace.columns import NONE
from traceview.trace.host.host_states import HostStates
from traceview.trace.host.state_timeline import stacked
from traceview.trace.model import Recording, Trace, Window
from traceview.trace.state import State
from traceview.xplane.planes import ActivityClass

STATE_SWEEPS: Final = compiled_or_reference("traceview.trace.host.state_sweeps")
"""The sweeps in use that give each instant of a device its state."""

LATENCY_PS: Final = 20 * PS_PER_US
"""A launch takes 20 to 40 µs from call to kernel (TensorFlow's GPU performance guide)."""

_YIELDS_TO_PEERS: Final = (State.LAUNCH, State.LATENCY, State.DEPENDENCY)
_YIELDS: Final = np.array([state in _YIELDS_TO_PEERS for state in State], dtype=np.uint8)
"""By state of queued time, whether it counts as `device_wait` while another device is in a collective."""
_NEVER_PS: Final = 1 << 62
"""Longer than any call."""


class IdleSpans(Struct, frozen=True, eq=False):
    """The causes of a device's idle time, instant by instant: the spans of each gap, which they fill.

    In time order, all `[n]`: int64 `start_ps`, `end_ps`; uint8 `state`, the cause; int32 `gap`, the number of the gap. No two
    that follow each other in a gap have the same state.
    """

    start_ps: Int64Array
    end_ps: Int64Array
    state: npt.NDArray[np.uint8]
    gap: Int32Array


class Gaps(Struct, frozen=True, eq=False, dict=True):
    """The gaps of one device in time order, all arrays `[n]`.

    int64 `start_ps`, `end_ps`; int32 `before`, `after`, the device rows on either side, `NONE` where the window cuts the gap,
    and `thread`, the thread that was late; int64 `late_end_ps`, until when it was, and `handed_over_ps`: before it the timeline
    of the thread that calls graphs counts.
    """

    device: int
    start_ps: Int64Array
    end_ps: Int64Array
    idle_spans: IdleSpans
    before: Int32Array
    after: Int32Array
    thread: Int32Array
    late_end_ps: Int64Array
    handed_over_ps: Int64Array

    @property
    def count(self) -> int:
        """Number of gaps."""
        return int(self.start_ps.size)

    @cached_property
    def is_handed(self) -> BoolArray:
        """Whether `thread` was late from an instant in the gap on, bool `[n]`."""
        result: BoolArray = self.handed_over_ps != self.late_end_ps
        return result

    def spans_with(self, state: State) -> IntervalSet:
        """When the device is idle in a state."""
        spans = self.idle_spans
        is_one = spans.state == state
        return union(spans.start_ps[is_one], spans.end_ps[is_one])


def _late_ends(
    trace: Trace, device: int, gap_start: Int64Array, gap_end: Int64Array, after: Int32Array
) -> tuple[Int64Array, Int64Array]:
    """Where the host stops being late in gaps of a device, and the launch of the event after each, `NONE` without.

    That is at the launch, or after it where the call itself blocked.
    """
    host = trace.host_columns
    is_replica = trace.device_list[device].kind == "replica"
    launches = np.full(after.size, NONE, dtype=np.int64)
    has_after = after != NONE
    launches[has_after] = trace.device_columns.launch[after[has_after]]
    late_end = np.where(has_after, gap_start, gap_end)
    has_launch = launches != NONE
    row = launches[has_launch]
    took = host.duration_ps[row]
    begun = host.start_ps[row] + np.where(
        took >= (_NEVER_PS if is_replica else LATENCY_PS), took, 0
    )
    late_end[has_launch] = np.clip(begun, gap_start[has_launch], gap_end[has_launch])
    return late_end, launches


def gaps_of_device(trace: Trace, device: int, window: Window, states: HostStates) -> Gaps:
    """The gaps of a device in its host's window."""
    columns, rows = trace.device_columns, trace.device_columns.rows_of(device)
    start, end, before, after = _between(trace, rows, window)
    thread = np.full(start.size, states.caller, dtype=np.int32)
    inside = overlapping(
        columns.start_ps[rows], columns.end_ps[rows], window.start_ps, window.end_ps
    )
    if not (columns.class_[rows][inside] <= ActivityClass.COLLECTIVE).any():
        no_work = np.full(start.size, State.NO_WORK, dtype=np.uint8)
        spans = IdleSpans(start, end, no_work, np.arange(start.size, dtype=np.int32))
        handed_over = late_end = start
    else:
        late_end, launch = _late_ends(trace, device, start, end, after)
        handed_over, launched = late_end.copy(), launch != NONE
        thread[launched] = states.thread[trace.host_columns.line[launch[launched]]]
        # From when on another thread than the caller was late, and which.
        late = np.flatnonzero(launched & (late_end > start) & (thread != states.caller))
        if late.size:
            since, thread[late] = states.handed_over(launch[late])
            handed_over[late] = np.clip(since, start[late], late_end[late])
        is_short = end - late_end < LATENCY_PS
        since, cause, gap = STATE_SWEEPS.attributed_spans(
            start,
            end,
            # A gap is one piece.
            np.arange(start.size, dtype=np.int32),
            late_end,
            handed_over,
            *_lines_of_states(states, thread, late_end > start),
            _queued_causes(columns.class_, before, after, launched, is_short),
            *astuple(trace.once(collective_times)),
            _YIELDS,
            State.DEVICE_WAIT,
            State.LATENCY,
            State.LAUNCH,
        )
        # Each lasts until the next of its gap, or until that ends.
        until = np.where(np.diff(gap, append=NONE), end.take(gap), np.append(since[1:], 0))
        spans = IdleSpans(since, until, cause, gap)
    return Gaps(
        device=device,
        start_ps=start,
        end_ps=end,
        idle_spans=spans,
        before=before,
        after=after,
        thread=thread,
        late_end_ps=late_end,
        handed_over_ps=handed_over,
    )


def _between(
    trace: Trace, rows: slice, window: Window
) -> tuple[Int64Array, Int64Array, Int32Array, Int32Array]:
    """Start and end of each gap, and the device rows on either side, `NONE` without one.

    Of several that end where a gap begins a copy to the device counts, then the one that began last; of several that
    begin where it ends the one launched first.
    """
    columns = trace.device_columns
    gap_start, gap_end, before, after = STATE_SWEEPS.gaps_between(
        columns.start_ps[rows],
        columns.duration_ps[rows],
        (columns.class_[rows] == ActivityClass.H2D).view(np.uint8),
        columns.launch[rows],
        trace.host_columns.start_ps,
        window.start_ps,
        window.end_ps,
    )
    for beside in (before, after):
        beside[beside != NONE] += rows.start
    return gap_start, gap_end, before, after


def _lines_of_states(
    states: HostStates, thread: Int32Array, is_late: BoolArray
) -> tuple[Int64Array, Int64Array, npt.NDArray[np.uint8], Int64Array]:
    """The line of states of each gap, of which the first is the caller's; their starts and causes, and where each begins."""
    caller = states.caller
    line = np.zeros(thread.size, dtype=np.int64)
    timelines = [stacked(()) if caller == NONE else states.timeline(caller)]
    launching = unique_ids(thread[is_late & (thread != caller)]).tolist()
    for number, other in enumerate(launching if caller != NONE else (), 1):
        timelines.append(states.timeline(other))
        line[thread == other] = number
    return (
        line,
        np.concatenate([timeline.start for timeline in timelines]),
        np.concatenate([timeline.state for timeline in timelines]),
        np.cumsum([0, *(timeline.start.size for timeline in timelines)], dtype=np.int64),
    )


def _queued_causes(
    class_: npt.NDArray[np.uint8],
    before: Int32Array,
    after: Int32Array,
    launched: BoolArray,
    is_short: BoolArray,
) -> npt.NDArray[np.uint8]:
    """The cause of the queued part of each gap, where it is not `device_wait`; `latency` also where it may be `launch`."""
    cause = np.where(is_short, np.uint8(State.LATENCY), np.uint8(State.DEPENDENCY))
    copied = np.flatnonzero((class_[before] == ActivityClass.H2D) & (before != NONE))
    copied = copied[(after[copied] != NONE)]
    cause[copied[class_[after[copied]] <= ActivityClass.COLLECTIVE]] = State.H2D
    cause[(after != NONE) & ~launched] = State.UNKNOWN
    return cause


def collective_times(recording: Recording) -> IntervalSet:
    """When any device was in a collective. In a gap of a device that is another one: it does nothing itself."""
    columns = recording.device_columns
    rows = np.flatnonzero(columns.class_ == ActivityClass.COLLECTIVE)
    return union(columns.start_ps[rows], columns.end_ps[rows])
