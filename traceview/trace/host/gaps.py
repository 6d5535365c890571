"""Finds the gaps of a device, and attributes every picosecond of them to a cause.

A gap is a maximal span without activity inside the window. The next device event e and its launch L on the host
(same correlation id) divide it into two parts. If several events begin when the gap ends, e is the one launched
first; events of zero length do not end a gap.

    device   ▕ kernel ▏······················ gap ·····················▕ e ▏
                      ┌──────── host late ────────┬────── queued ──────┐
    host              ▕ input ▏▕ FunctionRun ▕ op ▕ L ▏

Host late: L had not begun. Each instant takes its cause from the timeline of a thread (`host_states`): of the thread
that calls graphs until it handed over the work (`HostStates.handed_over`), then of the thread of L, or of the Python thread
that L was called from. A launch call
that takes `LATENCY_PS` or more was blocked itself: the host is late until it returns.

Queued: e was launched and had not begun. The cause is `h2d` if e is a kernel and a host-to-device copy ended when
the gap began; else `device_wait` while any other device was in a collective. The rest is `dependency`, or `latency` if the
queued part of the gap is shorter than `LATENCY_PS`. Such a short rest is `launch` if `launch` is the largest cause of
the host-late part; of equal causes the earlier in `Cause` counts. If e has no recorded launch, the whole gap is
`unknown`.

A gap at the end of the window has no next event. It is host late as a whole, with the timeline of the thread that
calls graphs. Replicas have no launches: their gaps are attributed as if the next op were its own launch. A device
without a kernel in the window is `no_work`. On a host without recorded threads, host-late time is `unknown`.

Gaps are cut at the bounds of steps, which does not change their causes.

Limits. A thread that records no event has a known state only between step markers (`between`), in short holes between
launches, and before what Python calls (`python`). The trace does not record what holds queued work back, so `dependency` does not name it. The clocks
of host and device differ by microseconds, which moves that much time between host late and queued.

Finds the host events that show the causes of gaps, and those around a span that nothing shows.

The event that shows a cause is the one that covers most of a span; of nearly equal ones the shortest, then the last begun.
The thread that was late and the one that calls graphs are searched first, then all other threads of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import astuple

from traceview.base.ids import labels, sorted_unique, unique_first, unique_ids, unique_inverse
from traceview.base.intervals import (
    BoolArray,
    Int32Array,
    Int64Array,
    IntervalSet,
    nesting,
    overlapping,
    union,
)
from traceview.base.sweeping import SWEEPS
from traceview.base.units import PS_PER_US
from traceview.trace.host.cause import Cause
from traceview.trace.host.host_events import ByStart
from traceview.trace.host.host_states import HostStates
from traceview.trace.host.state_timeline import stacked
from traceview.trace.model import NONE, Trace
from traceview.trace.windows import StepBounds, Window
from traceview.xplane.host_names import HostNameKind
from traceview.xplane.planes import ActivityClass

LATENCY_PS: Final = 20 * PS_PER_US
"""A launch takes 20 to 40 µs from call to kernel (TensorFlow's GPU performance guide)."""

_YIELDS_TO_PEERS: Final = (Cause.LAUNCH, Cause.LATENCY, Cause.DEPENDENCY)
_YIELDS: Final = np.array([cause in _YIELDS_TO_PEERS for cause in Cause], dtype=np.uint8)
"""By cause of queued time, whether it counts as `device_wait` while another device is in a collective."""
_NEVER_PS: Final = 1 << 62
"""Longer than any call."""


class IdleSpans(Struct, frozen=True, eq=False):
    """The causes of a device's idle time, instant by instant: the spans of each piece of a gap, which they fill.

    In time order, all `[n]`: int64 `start_ps`, `end_ps`; uint8 `cause`; int32 `piece`, the number of the piece. No two
    that follow each other in a piece have the same cause.
    """

    start_ps: Int64Array
    end_ps: Int64Array
    cause: npt.NDArray[np.uint8]
    piece: Int32Array


class Gaps(Struct, frozen=True, eq=False, dict=True):
    """The gaps of one device in time order, cut at the bounds of steps into pieces.

    Per piece, all `[n]`: int64 `start_ps`, `end_ps`; int32 `gap`, the number of its gap, and `step`, the index of its
    step (of several the one that began last), `NONE` outside of steps. Per gap, all `[m]`: int32 `before`, `after`, the
    device rows on either side, `NONE` where the window cuts the gap, and `thread`, the thread that was late.

    `handed`, ascending, int32 `[k]`: the gaps in which `thread` was late only from an instant on, `handed_over_ps`, int64 `[k]`;
    before it the timeline of the thread that calls graphs counts.
    """

    device: int
    start_ps: Int64Array
    end_ps: Int64Array
    gap: Int32Array
    step: Int32Array
    idle_spans: IdleSpans
    before: Int32Array
    after: Int32Array
    thread: Int32Array
    handed: Int32Array
    handed_over_ps: Int64Array

    @property
    def count(self) -> int:
        """Number of gaps."""
        return int(self.before.size)

    @property
    def _first(self) -> Int64Array:
        """The first piece of each gap."""
        begins = np.ones(self.gap.size, dtype=np.bool_)
        np.not_equal(self.gap[1:], self.gap[:-1], out=begins[1:])
        return np.flatnonzero(begins)

    @cached_property
    def spans(self) -> tuple[Int64Array, Int64Array]:
        """Start and end of each whole gap, int64 `[m]`."""
        first = self._first
        last = np.append(first, self.gap.size)[1:] - 1
        return self.start_ps[first], self.end_ps[last]

    def spans_with(self, cause: Cause) -> IntervalSet:
        """When the device is idle for a cause."""
        spans = self.idle_spans
        is_cause = spans.cause == cause
        return union(spans.start_ps[is_cause], spans.end_ps[is_cause])

    @cached_property
    def longest_steps(self) -> Int32Array:
        """The step of the longest piece of each gap, of several the first, int64 `[m]`; `NONE` outside of steps."""
        length = self.end_ps - self.start_ps
        longest = np.maximum.reduceat(length, self._first)
        rows = np.flatnonzero(length == longest[self.gap])
        result: Int32Array = self.step[rows[np.diff(self.gap[rows], prepend=NONE) != 0]]
        return result


def late_parts(trace: Trace, gaps: Gaps, chosen: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Until when the host was late in the gaps of these numbers, and from when on that was up to `Gaps.thread`; int64 both.

    In most gaps it was not late, and few gaps are asked for, so it is found anew.
    """
    start, end = (bound[chosen] for bound in gaps.spans)
    if (gaps.idle_spans.cause == Cause.NO_WORK).any():
        return start, start
    late_end, _ = _late_ends(trace, gaps.device, start, end, gaps.after[chosen])
    handed_over = late_end.copy()
    # Numbers of another type would convert the whole column.
    place = np.searchsorted(gaps.handed, chosen.astype(np.int32))
    is_handed = np.append(gaps.handed, NONE)[place] == chosen
    handed_over[is_handed] = gaps.handed_over_ps[place[is_handed]]
    return late_end, handed_over


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


def gaps_of_device(
    trace: Trace,
    device: int,
    window: Window,
    steps: StepBounds,
    states: HostStates,
) -> Gaps:
    """The gaps of a device in its host's window; `steps`: the bounds of the steps in it."""
    return _Finder(trace, device, window, states).gaps(steps)


class _Finder:
    def __init__(self, trace: Trace, device: int, window: Window, states: HostStates) -> None:
        self._trace = trace
        self._device = device
        self._window = window
        self._states = states
        self._rows = trace.device_columns.rows_of(device)

    def gaps(self, steps: StepBounds) -> Gaps:
        gap_start, gap_end, before, after = self._between()
        start, end, gap, place = SWEEPS.cut(gap_start, gap_end, steps.time)
        caller = self._states.caller
        thread = np.full(gap_start.size, caller, dtype=np.int32)
        if self._is_unused():
            no_work = np.full(start.size, Cause.NO_WORK, dtype=np.uint8)
            spans = IdleSpans(start, end, no_work, np.arange(start.size, dtype=np.int32))
            handed_over = late_end = gap_start
        else:
            late_end, launch = _late_ends(self._trace, self._device, gap_start, gap_end, after)
            launched = launch != NONE
            line = self._trace.host_columns.line
            thread[launched] = self._states.thread[line[launch[launched]]]
            handed_over, thread = self._handed_over(gap_start, late_end, launch, thread)
            is_short = gap_end - late_end < LATENCY_PS
            since, cause, piece = SWEEPS.attributed_spans(
                start,
                end,
                gap,
                late_end,
                handed_over,
                *self._lines_of_states(thread, late_end > gap_start),
                self._queued_causes(before, after, launched, is_short),
                *astuple(self._trace.collective_peers.of(self._device)),
                _YIELDS,
                Cause.DEVICE_WAIT,
                Cause.LATENCY,
                Cause.LAUNCH,
            )
            # Each lasts until the next of its piece, or until that ends.
            until = np.where(np.diff(piece, append=NONE), end.take(piece), np.append(since[1:], 0))
            spans = IdleSpans(since, until, cause, piece)
        handed = np.flatnonzero(handed_over != late_end)
        return Gaps(
            device=self._device,
            start_ps=start,
            end_ps=end,
            gap=gap,
            step=steps.step[place],
            idle_spans=spans,
            before=before,
            after=after,
            thread=thread,
            handed=handed.astype(np.int32),
            handed_over_ps=handed_over[handed],
        )

    def _between(self) -> tuple[Int64Array, Int64Array, Int32Array, Int32Array]:
        """Start and end of each gap, and the device rows on either side, `NONE` without one.

        Of several that end where a gap begins a copy to the device counts, then the one that began last; of several that
        begin where it ends the one launched first.
        """
        columns = self._trace.device_columns
        rows = self._rows
        is_copy = (columns.class_[rows] == ActivityClass.H2D).view(np.uint8)
        gap_start, gap_end, before, after = SWEEPS.gaps_between(
            columns.start_ps[rows],
            columns.duration_ps[rows],
            is_copy,
            columns.launch[rows],
            self._trace.host_columns.start_ps,
            self._window.start_ps,
            self._window.end_ps,
        )
        for beside in (before, after):
            beside[beside != NONE] += rows.start
        return gap_start, gap_end, before, after

    def _is_unused(self) -> bool:
        columns, rows, window = self._trace.device_columns, self._rows, self._window
        inside = overlapping(
            columns.start_ps[rows], columns.end_ps[rows], window.start_ps, window.end_ps
        )
        return not bool((columns.class_[rows][inside] <= ActivityClass.COLLECTIVE).any())

    def _handed_over(
        self, gap_start: Int64Array, late_end: Int64Array, launch: Int64Array, thread: Int32Array
    ) -> tuple[Int64Array, Int32Array]:
        """From when on another thread than the caller counts in the host-late part of each gap, and which."""
        late = np.flatnonzero(
            (launch != NONE) & (late_end > gap_start) & (thread != self._states.caller)
        )
        if not late.size:
            return late_end, thread
        handed_over, thread = late_end.copy(), thread.copy()
        since, thread[late] = self._states.handed_over(launch[late])
        handed_over[late] = np.clip(since, gap_start[late], late_end[late])
        return handed_over, thread

    def _lines_of_states(
        self, thread: Int32Array, is_late: BoolArray
    ) -> tuple[Int64Array, Int64Array, npt.NDArray[np.uint8], Int64Array]:
        """The line of states of each gap, of which the first is the caller's; their starts and causes, and where each begins."""
        caller = self._states.caller
        line = np.zeros(thread.size, dtype=np.int64)
        if caller == NONE:
            timelines = [stacked(())]
        else:
            launching = unique_ids(thread[is_late & (thread != caller)]).tolist()
            timelines = [self._states.timeline(one) for one in (caller, *launching)]
            for number, one in enumerate(launching, 1):
                line[thread == one] = number
        begin = np.append(0, np.cumsum([timeline.start.size for timeline in timelines]))
        return (
            line,
            np.concatenate([timeline.start for timeline in timelines]),
            np.concatenate([timeline.cause for timeline in timelines]),
            begin.astype(np.int64),
        )

    def _queued_causes(
        self, before: Int32Array, after: Int32Array, launched: BoolArray, is_short: BoolArray
    ) -> npt.NDArray[np.uint8]:
        """The cause of the queued part of each gap, where it is not `device_wait`; `latency` also where it may be `launch`."""
        class_ = self._trace.device_columns.class_
        cause = np.where(is_short, np.uint8(Cause.LATENCY), np.uint8(Cause.DEPENDENCY))
        copied = np.flatnonzero((class_[before] == ActivityClass.H2D) & (before != NONE))
        copied = copied[(after[copied] != NONE)]
        cause[copied[class_[after[copied]] <= ActivityClass.COLLECTIVE]] = Cause.H2D
        cause[(after != NONE) & ~launched] = Cause.UNKNOWN
        return cause


_Bits = npt.NDArray[np.uint16]

_SHOWN_BY: Final[dict[Cause, tuple[HostNameKind, ...]]] = {
    Cause.INPUT: (HostNameKind.INPUT, HostNameKind.ASYNC_INPUT),
    Cause.H2D: (HostNameKind.H2D,),
    Cause.COMPILE: (HostNameKind.COMPILE,),
    Cause.SYNC: (HostNameKind.SYNC, HostNameKind.D2H),
    Cause.CHECKPOINT: (HostNameKind.CHECKPOINT,),
    Cause.LAUNCH: (
        *(HostNameKind.OP, HostNameKind.OTHER),
        *(HostNameKind.DISPATCH, HostNameKind.LAUNCH),
    ),
    Cause.HOST_OPS: (
        *(HostNameKind.OP, HostNameKind.OTHER),
        *(HostNameKind.DISPATCH, HostNameKind.EXECUTOR),
    ),
    Cause.DEVICE_WAIT: (HostNameKind.OP,),
}
SHOWN_CAUSES: Final = np.array(
    [
        sum(1 << cause for cause in Cause if kind in _SHOWN_BY.get(cause, HostNameKind))
        for kind in HostNameKind
    ],
    dtype=np.uint16,
)
"""The causes that a kind of name shows, a bit for each; any kind shows those that `_SHOWN_BY` does not list."""
_LEAST_SHOWN_RATIO: Final = 0.1
"""Of a span between steps: an event that covers less does not show what the host did."""
NEARLY: Final = 0.8
"""An event that covers this share of what the longest one covers shows the same cause, more precisely."""


class Surroundings(Struct, frozen=True):
    """What a thread recorded around a span: names of events, None without any; all None without a thread.

    `inside`: the innermost event that was open when the span began; `before`, `after`: the last event that ended by
    then, and the first that began from its end on, of those that show what the thread does.
    """

    thread: str | None = None
    inside: str | None = None
    before: str | None = None
    after: str | None = None


def surroundings_of(
    trace: Trace, states: HostStates, thread: int, start_ps: int, end_ps: int
) -> Surroundings:
    """What a thread recorded around a span."""
    if thread == NONE:
        return Surroundings()
    columns = trace.host_columns
    open_ = states.open_in(thread, start_ps, start_ps + 1)
    open_ = open_[~states.is_marker(open_)]
    inside = int(open_[-1]) if open_.size else NONE
    rows = (inside, states.last_before(thread, start_ps), states.first_after(thread, end_ps))
    names = (None if row == NONE else trace.names.text(int(columns.name[row])) for row in rows)
    return Surroundings(trace.lines[thread].name, *names)


class ManyEvidence:
    """The evidence on one host, for many spans at once."""

    def __init__(self, trace: Trace, states: HostStates) -> None:
        self._trace = trace
        self._states = states

    def rows(
        self,
        cause: npt.NDArray[np.integer],
        thread: Int32Array,
        start_ps: Int64Array,
        end_ps: Int64Array,
    ) -> Int64Array:
        """The host row that shows the cause of each span, `NONE` without one."""
        result = np.full(start_ps.size, NONE, dtype=np.int64)
        wanted = (1 << cause.astype(np.int64)).astype(np.uint16)
        states = self._states
        for number in unique_ids(thread).tolist():
            chosen = np.flatnonzero(thread == number)
            spans = start_ps[chosen], end_ps[chosen], wanted[chosen]
            # The thread and the one that calls graphs are searched first.
            near = [states.by_start(each) for each in dict.fromkeys((number, states.caller))]
            result[chosen] = self._found(near, *spans)
        missing = np.flatnonzero(result == NONE)
        if missing.size:
            rest = start_ps[missing], end_ps[missing], wanted[missing]
            result[missing] = self._found([states.model_by_start], *rest)
        columns = self._trace.host_columns
        covered = np.minimum(columns.end_ps[result], end_ps) - np.maximum(
            columns.start_ps[result], start_ps
        )
        # Whatever runs between steps shows that the host is there, and a moment of it shows nothing more.
        is_short = (cause == Cause.BETWEEN) & (covered < _LEAST_SHOWN_RATIO * (end_ps - start_ps))
        result[is_short] = NONE
        return result

    def stacks(self, rows: Int64Array) -> tuple[list[tuple[str, ...]], Int64Array]:
        """The distinct stacks at some rows, and which one each row has.

        A stack has the names of the events around one on its thread, outermost first, and its own last.
        """
        distinct, place_of_row = unique_inverse(rows)
        names = self._outer_names(distinct)
        index = labels(*names.T)
        _, first, _ = unique_first(index)
        text = self._trace.names.text
        stacks = [
            tuple(text(name) or "" for name in names[place].tolist() if name != NONE)
            for place in first.tolist()
        ]
        return stacks, index[place_of_row]

    def _outer_names(self, rows: Int64Array) -> Int32Array:
        """The names around each row and its own, `NONE` before them, int32 `[rows, depth]`."""
        columns, states = self._trace.host_columns, self._states
        chains: list[Int64Array] = []
        thread = states.thread[columns.line[rows]]
        for number in unique_ids(thread).tolist():
            chosen = np.flatnonzero(thread == number)
            own = sorted_unique(np.concatenate((states.rows_of_thread(number), rows[chosen])))
            nest = nesting(columns.start_ps[own], columns.end_ps[own])
            end_ps = columns.end_ps[rows[chosen]]
            depth = 0
            above = nest.parent[np.searchsorted(own, rows[chosen])]
            while (above != NONE).any():
                if depth == len(chains):
                    chains.append(np.full(rows.size, NONE, dtype=np.int64))
                outer = own[above]
                is_outer = (above != NONE) & (columns.end_ps[outer] >= end_ps)
                chains[depth][chosen[is_outer]] = outer[is_outer]
                above = np.where(above == NONE, NONE, nest.parent[above])
                depth += 1
        names = np.stack([*reversed(chains), rows], axis=1)
        return np.where(names == NONE, NONE, columns.name[names])

    def _found(
        self,
        searched: Sequence[ByStart],
        start_ps: Int64Array,
        end_ps: Int64Array,
        wanted: _Bits,
    ) -> Int64Array:
        """The row that shows what is wanted of each span, of several the first searched; `NONE` without one."""
        columns, spans = self._trace.host_columns, union(start_ps, end_ps)
        # What events show is asked for a few gaps out of many.
        rows = np.concatenate([events.touching(spans.start, spans.end) for events in searched])
        if len(searched) > 1:
            rows = rows[np.argsort(columns.start_ps[rows], kind="stable")]
        order = np.argsort(start_ps, kind="stable")
        end_of_row = columns.end_ps[rows]
        found = np.empty(order.size, dtype=np.int64)
        found[order] = SWEEPS.clearest(
            columns.start_ps[rows],
            end_of_row,
            SWEEPS.reaches(end_of_row),
            self._shown_by(rows),
            start_ps[order],
            end_ps[order],
            wanted[order],
            NEARLY,
        )
        return np.append(rows, NONE)[found]

    def _shown_by(self, rows: Int64Array) -> _Bits:
        """The causes that each row shows, a bit for each."""
        states = self._states
        bits = SHOWN_CAUSES[states.kind_of(rows)]
        for cause, is_shown in (
            (Cause.BETWEEN, ~states.is_in_step(rows)),
            (Cause.PYTHON, ~states.is_spoken(rows)),
        ):
            bit = np.uint16(1 << cause)
            bits = np.where(is_shown, bits | bit, bits & ~bit)
        has_call = self._trace.host_columns.stat("tf_function_call").has(rows)
        bits = np.where(has_call, bits | np.uint16(1 << Cause.COMPILE), bits)
        return np.where(states.is_marker(rows), np.uint16(0), bits)
