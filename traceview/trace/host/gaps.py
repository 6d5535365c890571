"""Finds the gaps of a device, and attributes every picosecond of them to a cause (docs/method.md, "Idle causes").

    device   ▕ kernel ▏······················ gap ·····················▕ e ▏
                      ┌──────── host late ────────┬────── queued ──────┐
    host              ▕ input ▏▕ FunctionRun ▕ op ▕ L ▏

The clocks of host and device differ by microseconds, which moves that much time between host late and queued.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.ids import unique_ids
from traceview.base.intervals import (
    BoolArray,
    Int32Array,
    Int64Array,
    IntervalSet,
    overlapping,
    places,
    union,
)
from traceview.base.sweeping import SWEEPS
from traceview.base.units import PS_PER_US
from traceview.trace.columns import NONE
from traceview.trace.host.host_states import HostStates
from traceview.trace.host.state_timeline import StateTimeline, stacked
from traceview.trace.model import Recording, Trace, Window
from traceview.trace.state import State
from traceview.xplane.planes import ActivityClass

LATENCY_PS: Final = 20 * PS_PER_US
"""A launch takes 20 to 40 µs from call to kernel (TensorFlow's GPU performance guide)."""

_YIELDS_TO_PEERS: Final = (State.LAUNCH, State.LATENCY, State.DEPENDENCY)
_YIELDS: Final = np.array([state in _YIELDS_TO_PEERS for state in State], dtype=np.bool_)
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
        late_spans = _late_spans(states, thread, start, handed_over, late_end)
        queued = _queued_causes(columns.class_, before, after, launched, is_short)
        queued[(queued == State.LATENCY) & _mostly_launching(late_spans, late_end)] = State.LAUNCH
        peers = trace.once(collective_times)
        spans = _joined_spans([late_spans, _queued_spans(queued, peers, late_end, end)], end)
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

    Of several that end where a gap begins a copy to the device counts, then the one that began last, then the first; of
    several that begin where it ends the one launched first, then the first.
    """
    columns = trace.device_columns
    event = np.flatnonzero(columns.duration_ps[rows] > 0) + rows.start
    begin, end, launch = columns.start_ps[event], columns.end_ps[event], columns.launch[event]
    inside = (end > window.start_ps) & (begin < window.end_ps)
    # What ended before an event begins; the window is covered before its start.
    gap_start = np.maximum.accumulate(np.append(window.start_ps, end[inside]))
    gap_end = np.append(begin[inside], window.end_ps)
    is_open = gap_end > gap_start
    gap_start, gap_end = gap_start[is_open], gap_end[is_open]
    launched_ps = np.full(event.size, np.iinfo(np.int64).max)
    launched_ps[launch != NONE] = trace.host_columns.start_ps[launch[launch != NONE]]
    is_other = columns.class_[event] != ActivityClass.H2D
    before = _first_at(gap_start, end, (-begin, is_other))
    after = _first_at(gap_end, begin, (launched_ps,))
    after[gap_end >= window.end_ps] = NONE
    number = np.append(event, NONE).astype(np.int32)
    return gap_start, gap_end, number[before], number[after]


def _first_at(
    times: Int64Array, moments: Int64Array, ranks: tuple[npt.NDArray[Any], ...]
) -> Int64Array:
    """The event whose moment is each of the sorted times, of several that of the least rank, the last of `ranks` first; `NONE` without."""
    place = places(times, moments)
    hit = np.flatnonzero((place < times.size) & (np.append(times, 0)[place] == moments))
    order = hit[np.lexsort(tuple(rank[hit] for rank in ranks))][::-1]
    found = np.full(times.size, NONE, dtype=np.int64)
    # Of equal places the last assignment remains.
    found[place[order]] = order
    return found


_Stretches: TypeAlias = tuple[Int64Array, npt.NDArray[np.uint8], Int64Array]
"""Stretches of time: when each begins, the state, and the number of the gap; each lasts until the next in its gap."""


def _late_spans(
    states: HostStates,
    thread: Int32Array,
    start: Int64Array,
    handed_over: Int64Array,
    late_end: Int64Array,
) -> _Stretches:
    """What the host does while it is late: the thread that calls graphs until it handed over, then the one that was late."""
    caller, every = states.caller, np.arange(start.size)
    of_caller = stacked(()) if caller == NONE else states.timeline(caller)
    found = [_inside(of_caller, start, handed_over, every)]
    is_late = late_end > handed_over
    for number in unique_ids(thread[is_late]).tolist():
        own = every[is_late & (thread == number)]
        timeline = of_caller if caller == NONE else states.timeline(number)
        found.append(_inside(timeline, handed_over[own], late_end[own], own))
    return _in_order(found)


def _inside(
    timeline: StateTimeline, start: Int64Array, end: Int64Array, gap: Int64Array
) -> _Stretches:
    """The stretches of a timeline that lie inside of spans of gaps."""
    edges = timeline.start
    first = places(edges, start, right=True) - 1
    count = np.where(end > start, places(edges, end) - first, 0)
    span = np.repeat(np.arange(start.size), count)
    place = np.arange(span.size) + np.repeat(first - np.cumsum(count) + count, count)
    return np.maximum(edges[place], start[span]), timeline.state[place], gap[span]


def _in_order(parts: list[_Stretches]) -> _Stretches:
    start, state, gap = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(start, kind="stable")
    return start[order], state[order], gap[order]


def _until(start: Int64Array, gap: Int64Array, end: Int64Array) -> Int64Array:
    """Where stretches end that fill spans of gaps: where the next of the gap begins, or with the span."""
    result: Int64Array = end[gap]
    goes_on = np.flatnonzero(gap[1:] == gap[:-1])
    result[goes_on] = start[goes_on + 1]
    return result


def _mostly_launching(late: _Stretches, late_end: Int64Array) -> BoolArray:
    """In which gaps the host launches for most of the time in which it is late."""
    start, state, gap = late
    length, count = _until(start, gap, late_end) - start, late_end.size
    most, launching = np.zeros((2, count), dtype=np.int64)
    for each in unique_ids(state).tolist():
        of_state = state == each
        ps = SWEEPS.totals(gap[of_state], length[of_state], count)
        if each == State.LAUNCH:
            launching = np.where(ps > most, ps, 0)
        np.maximum(most, ps, out=most)
    result: BoolArray = (launching > 0) & (launching == most)
    return result


def _queued_spans(
    queued: npt.NDArray[np.uint8], peers: IntervalSet, start: Int64Array, end: Int64Array
) -> _Stretches:
    """The queued part of each gap: with its cause, or as a wait for another device while that is in a collective."""
    edges = np.append(np.iinfo(np.int64).min, np.stack((peers.start, peers.end), axis=1))
    in_peer = StateTimeline(edges, (np.arange(edges.size) % 2).astype(np.uint8))
    begin, is_wait, gap = _inside(in_peer, start, end, np.arange(start.size))
    cause = queued[gap]
    waits = (is_wait == 1) & _YIELDS[cause]
    return begin, np.where(waits, np.uint8(State.DEVICE_WAIT), cause), gap


def _joined_spans(parts: list[_Stretches], end: Int64Array) -> IdleSpans:
    """The spans of gaps that stretches of these fill; what goes on with the same state is one."""
    start, state, gap = _in_order(parts)
    opens = np.ones(start.size, dtype=np.bool_)
    opens[1:] = (state[1:] != state[:-1]) | (gap[1:] != gap[:-1])
    start, gap = start[opens], gap[opens]
    return IdleSpans(start, _until(start, gap, end), state[opens], gap.astype(np.int32))


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
