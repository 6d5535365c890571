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
the gap began; else `peer` while any other device was in a collective. The rest is `dependency`, or `latency` if the
queued part of the gap is shorter than `LATENCY_PS`. Such a short rest is `launch` if `launch` is the largest cause of
the host-late part; of equal causes the earlier in `Cause` counts. If e has no recorded launch, the whole gap is
`unattributed`.

A gap at the end of the window has no next event. It is host late as a whole, with the timeline of the thread that
calls graphs. Replicas have no launches: their gaps are attributed as if the next op were its own launch. A device
without a kernel in the window is `unused`. On a host without recorded threads, host-late time is `unattributed`.

Gaps are cut at the bounds of steps, which does not change their causes.

Limits. A thread that records no event has a known state only between step markers (`callback`), in short holes between
launches, and before what Python calls (`python`). The trace does not record what holds queued work back, so `dependency` does not name it. The clocks
of host and device differ by microseconds, which moves that much time between host late and queued.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.ids import is_in, sorted_unique, unique_ids
from traceview.intervals import BoolArray, Int32Array, Int64Array, nesting, places, union
from traceview.sweeping import SWEEPS
from traceview.trace.cause import Cause
from traceview.trace.host_events import LONG_AGO_PS
from traceview.trace.host_states import HostStates
from traceview.trace.model import NONE, Trace
from traceview.trace.state_timeline import StateTimeline
from traceview.trace.windows import Window
from traceview.units import PS_PER_US
from traceview.xplane.planes import ActivityClass

LATENCY_PS: Final = 20 * PS_PER_US
"""A launch takes 20 to 40 µs from call to kernel (TensorFlow's GPU performance guide)."""

YIELDS_TO_PEERS: Final = (Cause.LAUNCH, Cause.LATENCY, Cause.DEPENDENCY)
"""Causes of queued time that count as `peer` while another device is in a collective."""


class Gaps(Struct, frozen=True, eq=False, dict=True):
    """The gaps of one device in time order, cut at the bounds of steps into pieces.

    Per piece, all `[n]`: int64 `start_ps`, `end_ps`; int32 `gap`, the number of its gap, and `step`, the index of its
    step (of several the one that began last), `NONE` outside of steps. `by_cause`: for each cause that occurs the pieces
    with it, int32, and how long they have it, int64; the causes sum to the length of the piece. Per gap, all `[m]`: int32
    `before`, `after`, the device rows on either side, `NONE` where the window cuts the gap, and `thread`, the thread that
    was late; int64 `handed_over_ps`, from when on its timeline
    counts, not that of the thread that calls graphs; int64 `late_end_ps`, where the queued part begins; uint8
    `queued_cause`, the cause of the queued part where no other device was in a collective.
    """

    device: int
    start_ps: Int64Array
    end_ps: Int64Array
    gap: Int32Array
    step: Int32Array
    by_cause: dict[int, tuple[Int32Array, Int64Array]]
    before: Int32Array
    after: Int32Array
    thread: Int32Array
    handed_over_ps: Int64Array
    late_end_ps: Int64Array
    queued_cause: npt.NDArray[np.uint8]

    @property
    def count(self) -> int:
        """Number of gaps."""
        return int(self.before.size)

    @property
    def _first(self) -> Int64Array:
        """The first piece of each gap."""
        return np.flatnonzero(np.diff(self.gap, prepend=np.int32(-1)))

    @property
    def spans(self) -> tuple[Int64Array, Int64Array]:
        """Start and end of each whole gap, int64 `[m]`."""
        if self.gap.size == self.count:
            return self.start_ps, self.end_ps
        first = self._first
        last = np.append(first, self.gap.size)[1:] - 1
        return self.start_ps[first], self.end_ps[last]

    def pieces_of(self, gap: int) -> slice:
        """The pieces of a gap."""
        # A bound of another type would convert the whole column.
        bounds = np.array((gap, gap + 1), dtype=np.int32)
        first, end = np.searchsorted(self.gap, bounds).tolist()
        return slice(first, end)

    @cached_property
    def longest_steps(self) -> Int32Array:
        """The step of the longest piece of each gap, of several the first, int64 `[m]`; `NONE` outside of steps."""
        if self.gap.size == self.count:
            return self.step
        order = np.lexsort((self.start_ps - self.end_ps, self.gap))
        return self.step[order[self._first]]

    @property
    def cause_ps(self) -> Int64Array:
        """Time by cause and piece, int64 `[causes, n]`; made anew each time, for most of it is zero."""
        result = np.zeros((len(Cause), self.gap.size), dtype=np.int64)
        for cause, (pieces, lengths) in self.by_cause.items():
            result[cause, pieces] = lengths
        return result

    def of_cause(self, cause: Cause) -> Int64Array:
        """The time of each piece with a cause, int64 `[n]`."""
        result = np.zeros(self.gap.size, dtype=np.int64)
        pieces, lengths = self.by_cause.get(cause, ((), ()))
        result[np.asarray(pieces, dtype=np.int64)] = lengths
        return result

    @property
    def total_ps(self) -> Int64Array:
        """Time by cause, int64 `[causes]`."""
        result = np.zeros(len(Cause), dtype=np.int64)
        for cause, (_, lengths) in self.by_cause.items():
            result[cause] = lengths.sum()
        return result

    def causes_of(self, chosen: Int64Array) -> Int64Array:
        """The causes of the whole gaps of these numbers, int64 `[causes, chosen]`."""
        result = np.zeros((len(Cause), chosen.size), dtype=np.int64)
        for cause, lengths in self.of_gaps().items():
            result[cause] = lengths[chosen]
        return result

    def of_gaps(self) -> dict[int, Int64Array]:
        """The time of each whole gap, int64 `[m]`, by cause; in the order of causes, those that occur."""
        return {
            cause: SWEEPS.totals(self.gap[pieces].astype(np.int64), lengths, self.count)
            for cause, (pieces, lengths) in sorted(self.by_cause.items())
        }

    def of_steps(self, start: Int64Array, end: Int64Array) -> Int64Array:
        """Idle time by cause and step, int64 `[causes, steps]`; the gaps must have been cut at these bounds."""
        result = np.zeros((len(Cause), start.size), dtype=np.int64)
        first, last = np.searchsorted(self.start_ps, [start, end])
        for cause, (pieces, lengths) in self.by_cause.items():
            before = np.append(0, np.cumsum(lengths))
            number = pieces.astype(np.int64)
            result[cause] = before[places(number, last)] - before[places(number, first)]
        return result


def gaps_of_device(
    trace: Trace,
    device: int,
    window: Window,
    steps: tuple[Int64Array, Int64Array],
    states: HostStates,
) -> Gaps:
    """The gaps of a device in its host's window; `steps`: starts and ends of the steps in it, in time order."""
    return _Finder(trace, device, window, states).gaps(*steps)


class _Finder:
    def __init__(self, trace: Trace, device: int, window: Window, states: HostStates) -> None:
        self._trace = trace
        self._device = device
        self._window = window
        self._states = states
        self._is_replica = trace.device_list[device].kind == "replica"

    def gaps(self, step_start: Int64Array, step_end: Int64Array) -> Gaps:
        columns, rows = self._trace.device_columns, self._trace.device_columns.rows_of(self._device)
        start, end = columns.start_ps[rows], columns.end_ps[rows]
        busy = union(start, end)
        gap_start, gap_end = busy.gaps(self._window.start_ps, self._window.end_ps)
        # Events of zero length neither end nor begin a gap.
        events = rows.start + np.flatnonzero(end > start)
        after = np.where(gap_end < self._window.end_ps, self._beginning_at(gap_end, events), NONE)
        before = self._ending_at(gap_start, events)
        at = _pieces(gap_start, gap_end, step_start, step_end)
        caller = self._states.caller
        cause_ps = _CauseTimes(at.start.size)
        thread = np.full(gap_start.size, caller, dtype=np.int32)
        if self._is_unused():
            cause_ps.add(Cause.UNUSED, np.arange(at.start.size), at.end - at.start)
            handed_over = late_end = gap_start
            queued_cause = np.full(gap_start.size, Cause.UNUSED, dtype=np.uint8)
        else:
            launch = np.where(after != NONE, self._trace.device_columns.launch[after], NONE)
            launched = launch != NONE
            host = self._trace.host_columns
            thread[launched] = self._states.thread[host.line[launch[launched]]]
            late_end = self._late_ends(gap_start, gap_end, after, launch)
            handed_over, thread = self._handed_over(gap_start, late_end, launch, thread)
            self._add_late(cause_ps, at, thread, late_end, handed_over)
            is_launching = cause_ps.largest(at.gap) == Cause.LAUNCH
            is_short = gap_end - late_end < LATENCY_PS
            queued_cause = self._queued_causes(before, after, is_short, is_launching)
            self._add_queued(cause_ps, at, late_end, queued_cause)
        return Gaps(
            device=self._device,
            start_ps=at.start,
            end_ps=at.end,
            gap=at.gap.astype(np.int32),
            step=at.step.astype(np.int32),
            by_cause=cause_ps.occurring(),
            before=before.astype(np.int32),
            after=after.astype(np.int32),
            thread=thread,
            handed_over_ps=handed_over,
            late_end_ps=late_end,
            queued_cause=queued_cause,
        )

    def _beginning_at(self, time: Int64Array, events: Int64Array) -> Int64Array:
        """The event that begins at each instant, of several the one launched first; `NONE` where none begins."""
        columns, host = self._trace.device_columns, self._trace.host_columns
        events, place = _at_moments(events, columns.start_ps[events], time)
        launch = columns.launch[events]
        launched_at = np.full(launch.size, -LONG_AGO_PS, dtype=np.int64)
        launched_at[launch != NONE] = host.start_ps[launch[launch != NONE]]
        return _best_at(events, place, launched_at, time.size)

    def _ending_at(self, time: Int64Array, events: Int64Array) -> Int64Array:
        """The event that ends at each instant; of several a copy to the device, then the one that began last."""
        columns = self._trace.device_columns
        events, place = _at_moments(events, columns.end_ps[events], time)
        is_other = columns.class_[events] != ActivityClass.H2D
        # Later than any start.
        rank = np.where(is_other, -2 * LONG_AGO_PS, 0) - columns.start_ps[events]
        return _best_at(events, place, rank, time.size)

    def _is_unused(self) -> bool:
        columns, rows = self._trace.device_columns, self._trace.device_columns.rows_of(self._device)
        start, end = columns.start_ps[rows], columns.end_ps[rows]
        first, last = self._window.start_ps, self._window.end_ps
        inside = (start < last) & ((end > first) | (start >= first))
        kernels = columns.class_[rows] <= ActivityClass.COLLECTIVE
        return not bool((kernels & inside).any())

    def _late_ends(
        self, gap_start: Int64Array, gap_end: Int64Array, after: Int64Array, launch: Int64Array
    ) -> Int64Array:
        """Where the host stops being late in each gap."""
        # Without a launch no part is host late; without a next event the whole gap is.
        late_end = np.where(after == NONE, gap_end, gap_start)
        launched = launch != NONE
        late_end[launched] = np.clip(
            self._late_end(launch[launched]), gap_start[launched], gap_end[launched]
        )
        return late_end

    def _late_end(self, launch: Int64Array) -> Int64Array:
        """Where the host stops being late: at the launch, or after it where the call itself blocked."""
        host = self._trace.host_columns
        if self._is_replica:
            return host.start_ps[launch]
        blocked = host.duration_ps[launch] >= LATENCY_PS
        return np.where(blocked, host.end_ps[launch], host.start_ps[launch])

    def _handed_over(
        self, gap_start: Int64Array, late_end: Int64Array, launch: Int64Array, thread: Int32Array
    ) -> tuple[Int64Array, Int32Array]:
        """From when on another thread than the caller counts in the host-late part of each gap, and which."""
        handed_over, thread = late_end.copy(), thread.copy()
        late = np.flatnonzero(
            (launch != NONE) & (late_end > gap_start) & (thread != self._states.caller)
        )
        since, thread[late] = self._states.handed_over(launch[late])
        handed_over[late] = np.clip(since, gap_start[late], late_end[late])
        return handed_over, thread

    def _add_late(
        self,
        cause_ps: _CauseTimes,
        at: _Pieces,
        thread: Int32Array,
        late_end: Int64Array,
        handed_over: Int64Array,
    ) -> None:
        end = np.minimum(at.end, late_end[at.gap])
        is_late = np.flatnonzero(end > at.start)
        gap = at.gap[is_late]
        start, end = at.start[is_late], end[is_late]
        caller = self._states.caller
        if caller == NONE:
            cause_ps.add(Cause.UNATTRIBUTED, is_late, end - start)
            return
        by_caller = np.clip(handed_over[gap], start, end)
        self._add(cause_ps, is_late, self._states.timeline(caller), start, by_caller)
        for launching in unique_ids(thread[gap][thread[gap] != caller]).tolist():
            rows = np.flatnonzero((thread[gap] == launching) & (end > by_caller))
            timeline = self._states.timeline(launching)
            self._add(cause_ps, is_late[rows], timeline, by_caller[rows], end[rows])

    @staticmethod
    def _add(
        cause_ps: _CauseTimes,
        pieces: Int64Array,
        timeline: StateTimeline,
        start: Int64Array,
        end: Int64Array,
    ) -> None:
        if pieces.size:
            for cause, lengths in timeline.parts(start, end):
                cause_ps.add(cause, pieces, lengths)

    def _queued_causes(
        self,
        before: Int64Array,
        after: Int64Array,
        is_short: BoolArray,
        is_launching: BoolArray,
    ) -> npt.NDArray[np.uint8]:
        """The cause of the queued part of each gap, where it is not `peer`."""
        columns = self._trace.device_columns
        cause = np.where(is_launching, np.uint8(Cause.LAUNCH), np.uint8(Cause.LATENCY))
        cause[~is_short] = Cause.DEPENDENCY
        has_both = (before != NONE) & (after != NONE)
        cause[
            has_both
            & (columns.class_[before] == ActivityClass.H2D)
            & (columns.class_[after] <= ActivityClass.COLLECTIVE)
        ] = Cause.H2D
        cause[(after != NONE) & (columns.launch[after] == NONE)] = Cause.UNATTRIBUTED
        return cause

    def _add_queued(
        self,
        cause_ps: _CauseTimes,
        at: _Pieces,
        late_end: Int64Array,
        queued_cause: npt.NDArray[np.uint8],
    ) -> None:
        start = np.maximum(at.start, late_end[at.gap])
        queued = np.flatnonzero(at.end > start)
        if queued.size == 0:
            return
        start, end, cause = start[queued], at.end[queued], queued_cause[at.gap[queued]]
        by_peers = is_in(cause, YIELDS_TO_PEERS)
        peer = np.where(
            by_peers, self._trace.collective_peers.of(self._device).within(start, end), 0
        )
        cause_ps.add(Cause.PEER, queued, peer)
        own = end - start - peer
        for number in unique_ids(cause).tolist():
            of_cause = np.flatnonzero(cause == number)
            cause_ps.add(number, queued[of_cause], own[of_cause])


class _CauseTimes:
    """The time of each piece by cause, of which only those are kept that are added."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._rows: dict[int, Int64Array] = {}

    def add(self, cause: int, pieces: Int64Array, lengths: Int64Array) -> None:
        """Add to the time of some pieces, each of which stands there once."""
        if lengths.any():
            if cause not in self._rows:
                self._rows[cause] = np.zeros(self._count, dtype=np.int64)
            self._rows[cause][pieces] += lengths

    def largest(self, gap: Int64Array) -> Int64Array:
        """The largest cause of each gap so far, of equal ones the earlier; `NONE` where all are zero."""
        first = np.flatnonzero(np.diff(gap, prepend=-1))
        # Few gaps are cut: the length of most is that of their first piece.
        other = np.flatnonzero(gap[1:] == gap[:-1]) + 1
        largest = np.full(first.size, NONE, dtype=np.int64)
        most = np.zeros(first.size, dtype=np.int64)
        for cause, lengths in sorted(self._rows.items()):
            whole = lengths[first]
            np.add.at(whole, gap[other], lengths[other])
            larger = whole > most
            largest[larger] = cause
            np.maximum(most, whole, out=most)
        return largest

    def occurring(self) -> dict[int, tuple[Int32Array, Int64Array]]:
        """For each cause that occurs the pieces with it, and how long they have it."""
        found = {}
        for cause, lengths in sorted(self._rows.items()):
            pieces = np.flatnonzero(lengths)
            found[int(cause)] = pieces.astype(np.int32), lengths[pieces]
        return found


def _at_moments(
    events: Int64Array, moment: Int64Array, time: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """The events whose moment is one of the `time`, which rise, and the place of that time."""
    place = places(time, moment)
    hit = np.flatnonzero(np.append(time, LONG_AGO_PS)[place] == moment)
    return events[hit], place[hit]


def _best_at(events: Int64Array, place: Int64Array, rank: Int64Array, count: int) -> Int64Array:
    """At each of `count` places the event with the least rank, of several the first; `NONE` without one."""
    best = SWEEPS.earliest(place, rank, 0, count)
    result: Int64Array = np.append(events, NONE)[best]
    return result


class _Pieces(Struct, frozen=True, eq=False):
    start: Int64Array
    end: Int64Array
    gap: Int64Array
    step: Int64Array


def _pieces(
    gap_start: Int64Array, gap_end: Int64Array, step_start: Int64Array, step_end: Int64Array
) -> _Pieces:
    """Cut gaps at the bounds of steps."""
    if gap_start.size == 0:
        return _Pieces(gap_start, gap_end, gap_start, gap_start)
    bounds = sorted_unique(np.concatenate((step_start, step_end)))
    first = places(bounds, gap_start, right=True)
    cuts = places(bounds, gap_end) - first
    after_gap = np.cumsum(cuts + 1)
    gap = np.repeat(np.arange(gap_start.size), cuts + 1)
    begin, end = gap_start[gap], gap_end[gap]
    # Few gaps are cut: only the pieces on either side of a cut differ from whole gaps.
    cut = np.flatnonzero(gap[1:] == gap[:-1]) + 1
    of_cut = gap[cut]
    nth = cut - (after_gap - cuts - 1)[of_cut]
    begin[cut] = bounds[first[of_cut] + nth - 1]
    end[cut - 1] = begin[cut]
    return _Pieces(begin, end, gap, nesting(step_start, step_end).innermost(begin))
