"""Finds the line of Python that a thread was in, from samples of its stacks (docs/method.md, "Line of Python")."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from operator import itemgetter
from typing import Final, TypeAlias

import numpy as np
from msgspec import Struct

from traceview.base.ids import is_in, unique_ids, unique_inverse
from traceview.base.intervals import (
    BoolArray,
    Int64Array,
    IntervalSet,
    difference,
    places,
    union,
)
from traceview.base.sweeping import SWEEPS
from traceview.trace.columns import NONE
from traceview.trace.host.python_stacks import Loop, Place
from traceview.trace.host.sampled_threads import AT_WORK_RATIO, SampledThreads
from traceview.trace.host.state_timeline import joined_spans
from traceview.trace.model import Recording
from traceview.trace.sidecar.sidecar import (
    PythonFrame,
    PythonSamples,
    PythonState,
)

_BESIDE_RATIO: Final = 0.5
"""Of the time at a line: other lines of its function with so much are named, too. A choice of ours."""
_MOST_BESIDE: Final = 2
_MOSTLY: Final = 0.75
"""Of the time at a line, with Python's lock or without; with less it is not said. A choice of ours."""
_WAITS_RATIO: Final = 0.2
"""Of a core: who uses less waits, with rounds that the thread computed in around it. A choice of ours."""
_AROUND: Final = (1 << 32) - 1

_Place: TypeAlias = tuple[PythonFrame | None, PythonFrame, PythonState]
"""What a line calls, the innermost line there, and what the thread does."""


def _call(place: _Place) -> tuple[str, PythonState]:
    """The function that a line calls, and what the thread does there."""
    called, _, state = place
    return called.code if called else "", state


def _mostly(times: Counter[bool | None]) -> bool | None:
    """What holds for nearly all of the time of which that is known; None where both do for much of it, or nothing is known."""
    known = times[True] + times[False]
    is_so, time = max(((each, times[each]) for each in (True, False)), key=itemgetter(1))
    return is_so if time and time >= _MOSTLY * known else None


class PythonLine(Struct, frozen=True):
    """Where a thread was. `frame`: the innermost line of the user's code, or, where none is, of what does not just wait.

    `inner`: the line of a library below it with most time, None where the user's line itself ran; `called`: of what the line
    calls of that library itself.
    `state`: what the thread mostly did there; `frees_lock`: whether it mostly did so without Python's lock, None where that was
    not recorded. Of the `sampled_ps` that all samples stand for, `inside_ps` were in the
    function of `frame`, and `line_ps` at its line; `others`: lines of that function with half as much or more, the longest first.
    """

    frame: PythonFrame
    inner: PythonFrame | None
    called: PythonFrame | None
    state: PythonState
    inside_ps: int
    sampled_ps: int
    frees_lock: bool | None = None
    line_ps: int = 0
    others: tuple[int, ...] = ()

    def __str__(self) -> str:
        return str(self.frame)

    @property
    def ratio(self) -> float:
        """The share of the sampled time in the function."""
        return self.inside_ps / self.sampled_ps

    @property
    def line_ratio(self) -> float:
        """The share of the sampled time at the line."""
        return self.line_ps / self.sampled_ps


class PythonLines(SampledThreads):
    """The samples of one host: at which lines its threads were."""

    def __init__(
        self, recording: Recording, host: int, samples: PythonSamples, start_ns: int
    ) -> None:
        super().__init__(recording, host, samples, start_ns)
        self._loops: dict[int, Loop] = {}

    def at(
        self,
        thread: int,
        start_ps: Int64Array,
        end_ps: Int64Array,
        *,
        may_wait: bool = True,
    ) -> PythonLine | None:
        """Where a thread mostly was in spans, int64 `[n]`; None without samples. `may_wait`: also where it waited."""
        spans, rows = union(start_ps, end_ps), self._rows_of(thread)
        rows = rows if may_wait else rows[~self.stacks.waits[self._samples.stack[rows]]]
        whole = np.zeros(spans.start.size, dtype=np.int64)
        return self._most(rows, spans.start, spans.end, whole, 1)[0]

    def in_each(
        self, thread: int, start_ps: Int64Array, end_ps: Int64Array, group: Int64Array, count: int
    ) -> list[PythonLine | None]:
        """Where a thread mostly was in each of `count` groups of spans; None without samples.

        `start_ps`, `end_ps`, `group`: int64 `[n]`, in time order and apart.
        """
        return self._most(self._rows_of(thread), start_ps, end_ps, group, count)

    def of_others(
        self,
        thread: int,
        start_ps: Int64Array,
        end_ps: Int64Array,
        group: Int64Array,
        count: int,
        *,
        may_wait: bool,
        is_native: bool = False,
    ) -> list[PythonLine | None]:
        """The same for all threads but one, among samples inside code of the user in which the thread runs something.

        `may_wait`: where lines that compute have less than half of that time, one counts that waits, as for a file. Otherwise
        only lines count that compute for half of the spans, in threads that native code started: functions of ops run in
        these, and what a thread of the script does beside them keeps no op waiting. `is_native`: only such threads count.
        """
        samples, spans = self._samples, (start_ps, end_ps, group, count)
        # No native code has started these.
        by_python = [thread.name is not None for thread in samples.threads]
        is_of_script = np.array(by_python, dtype=np.bool_)[samples.thread]
        is_left_out = is_of_script & (is_native | self.stacks.waits[samples.stack])
        is_beside = (samples.thread != thread) & ~is_left_out
        is_other = is_beside & self.stacks.is_user[samples.stack]
        if not is_other.any():
            # A generator, or what a map calls, may be all of a library.
            is_other = is_beside & self.stacks.is_asked_for[samples.stack]
        computing = is_other & ~(self._load < self._least_load)
        if not may_wait:
            lines = self._most(np.flatnonzero(computing & ~is_of_script), *spans)
            whole_ps = SWEEPS.totals(group, end_ps - start_ps, count).tolist()
            of_group = zip(lines, whole_ps, strict=True)
            return [line if line and 2 * line.sampled_ps >= ps else None for line, ps in of_group]
        computes = self._most(np.flatnonzero(computing), *spans)
        waits = self._most(np.flatnonzero(is_other), *spans)
        return [
            line if line and other and 2 * line.sampled_ps >= other.sampled_ps else other
            for line, other in zip(computes, waits, strict=True)
        ]

    def user_lines(self, thread: int, steps: IntervalSet) -> dict[str, IntervalSet]:
        """When a thread stayed at each line of the user's code, or in what that calls: from one of its samples to the next.

        A generator or function that is written in a line is part of it. A line that is only in `steps` is left from one to another.
        """
        before, after = self._successive
        places_of = [(frame.file, frame.line) for frame in self._samples.frames]
        first = {place: number for number, place in reversed([*enumerate(places_of)])}
        line_of = np.array([*map(first.__getitem__, places_of), NONE], dtype=np.int64)
        frame = line_of[self.stacks.user_frame[self._samples.stack]]
        stays = (self._samples.thread[before] == thread) & (frame[before] != NONE)
        stays &= frame[before] == frame[after]
        begun, ended = (
            places(steps.start, self.time_ps, right=True),
            places(steps.end, self.time_ps),
        )
        stays &= (begun[before] == begun[after]) | is_in(
            frame[before], unique_ids(frame[begun == ended])
        )
        numbers, place = unique_inverse(frame[before[stays]])
        since, until = self.time_ps[before[stays]], self.time_ps[after[stays]]
        return {
            str(self.stacks.frame(number)): union(since[place == index], until[place == index])
            for index, number in enumerate(numbers.tolist())
        }

    def called_by_loop(self, thread: int) -> dict[str, str]:
        """By line of the user's code what the loop of a thread calls there, as `PythonStacks.called_by_loop`."""
        return self.stacks.called_by_loop(self._places_of(thread), self._loop_of(thread))

    def calling(self, thread: int, lines: Iterable[str]) -> PythonLine | None:
        """Where a thread mostly was, and did not wait, in what its loop calls at some lines of the user's code; None without samples."""
        called, loop = self.called_by_loop(thread), self._loop_of(thread)
        causes = {called.get(line) for line in lines}
        rows = self._rows_of(thread)
        rows = rows[~self.stacks.waits[self._samples.stack[rows]]]
        places = zip(
            self._samples.stack[rows].tolist(), self._samples.around[rows].tolist(), strict=True
        )
        of = np.array([self.stacks.cause(each, loop) in causes for each in places], dtype=np.bool_)
        rows = rows[of] if rows.size else rows
        return self._line(rows, self._until_ps[rows] - self._since_ps[rows]) if rows.size else None

    def causes(
        self, thread: int, start_ps: Int64Array, end_ps: Int64Array
    ) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """The samples of a thread in spans that are in time order and apart: when, since and until when each stands for the thread, and
        a number for what its loop called, as `PythonStacks.cause`; each int64 `[n]`, in time order.
        """
        rows = self._rows_of(thread)
        span = places(start_ps, self.time_ps[rows]) - 1
        rows = rows[(span >= 0) & (self.time_ps[rows] <= np.append(end_ps, 0)[span])]
        pairs = self._samples.stack[rows].astype(np.int64) << 32 | self._samples.around[rows]
        distinct, pair = unique_inverse(pairs)
        numbers: dict[str, int] = {}
        loop = self._loop_of(thread)
        of_pair = [
            numbers.setdefault(self.stacks.cause((each >> 32, each & _AROUND), loop), len(numbers))
            for each in distinct.tolist()
        ]
        cause = np.array(of_pair, dtype=np.int64)[pair]
        return self.time_ps[rows], self._since_ps[rows], self._until_ps[rows], cause

    def beside(self, thread: int, spans: IntervalSet, events: IntervalSet) -> IntervalSet:
        """When the loop of a thread was, in some spans, in what it calls there for anything but some events, as far as samples stand for it.

        What is called for these is where a sample meets one; nowhere where none does.
        """
        time, since, until, cause = self.causes(thread, spans.start, spans.end)
        is_for_events = is_in(cause, unique_ids(cause[events.within(time, time + 1) > 0]))
        others = ~is_for_events if is_for_events.any() else is_for_events
        return union(since[others], until[others])

    def _loop_of(self, thread: int) -> Loop:
        if thread not in self._loops:
            self._loops[thread] = self.stacks.loop_of(self._places_of(thread))
        return self._loops[thread]

    def _places_of(self, thread: int) -> Counter[Place]:
        """How many samples of a thread in the user's code have each stack, with each code around it."""
        rows = self._rows_of(thread)
        rows = rows[self.stacks.is_user[self._samples.stack[rows]]]
        columns = (column[rows].tolist() for column in (self._samples.stack, self._samples.around))
        return Counter(zip(*columns, strict=True))

    def dispatching(
        self, thread: int, calls: IntervalSet, silences: IntervalSet, *, in_calls_only: bool
    ) -> IntervalSet:
        """When a thread was in Python of the framework, or at a line from which it runs graphs, in `calls`; `in_calls_only`: while it does.

        Such a line flattens arguments in native code of the framework, which records nothing. As far as samples stand for it:
        those that were taken in one of the `silences` of the thread speak for all of it, and others do not.
        """
        rows = self._rows_of(thread)
        stack, time = self._samples.stack[rows], self.time_ps[rows]
        place = np.searchsorted(calls.start, time, "right") - 1
        runs_graph = (place >= 0) & (time <= np.append(calls.end, 0)[place])
        user = self.stacks.user_frame[stack]
        is_call = self.stacks.is_innermost_user[stack] & is_in(user, unique_ids(user[runs_graph]))
        if in_calls_only:
            is_call &= runs_graph
        # Dispatch takes a core.
        is_call &= ~(self._load[rows] < _WAITS_RATIO)
        dispatches = self.stacks.is_of_framework[stack] | is_call
        at_work = (self._load[rows] >= AT_WORK_RATIO) & ~self.stacks.waits[stack]
        # Who waited for a device before it went on in the script waits no longer when that device has nothing to do.
        goes_on = np.append((at_work & ~dispatches)[1:], False)[: rows.size]
        dispatches &= ~(goes_on & (self._load[rows] < _WAITS_RATIO))
        return self._spoken_for(rows, dispatches, silences)

    def called_back(self, thread: int, calls: IntervalSet) -> IntervalSet:
        """When a thread ran Python of no framework that a line calls in some calls of compiled functions, as for the hash of an argument."""
        rows = self._rows_of(thread)
        stack = self._samples.stack[rows]
        runs = ~(self._load[rows] < self._least_load[rows]) & self.stacks.is_user[stack]
        runs &= ~(self.stacks.is_innermost_user[stack] | self.stacks.is_of_framework[stack])
        return self._spoken_for(rows, runs, calls)

    def inside(self, thread: int, functions: re.Pattern[str], silences: IntervalSet) -> IntervalSet:
        """When a thread was in a call of functions, by `file function`, as far as samples stand for it, as `dispatching`."""
        rows = self._rows_of(thread)
        is_inside = self.stacks.calls(functions)[self._samples.stack[rows]]
        return self._spoken_for(rows, is_inside, silences)

    def line_calling(self, functions: re.Pattern[str]) -> PythonLine | None:
        """Where the threads of the script mostly were in calls of functions, by `file function`; None where no sample is."""
        stack = self._samples.stack
        rows = np.flatnonzero(self.stacks.calls(functions)[stack] & self.stacks.is_user[stack])
        return self._line(rows, self._until_ps[rows] - self._since_ps[rows]) if rows.size else None

    def _spoken_for(
        self, rows: Int64Array, chosen: BoolArray, silences: IntervalSet
    ) -> IntervalSet:
        """The time that chosen ones of the samples of a thread stand for: those taken in a silence for all of it, and others for none of one."""
        time, since, until = self.time_ps[rows], self._since_ps[rows], self._until_ps[rows]
        around = union(since[chosen], until[chosen])
        silence = places(silences.start, time, right=True) - 1
        inside = np.flatnonzero((silence >= 0) & (time < np.append(silences.end, 0)[silence]))
        of = silence[inside]
        is_first = np.diff(of, prepend=NONE) != 0
        is_last = np.diff(of, append=NONE) != 0
        start, end = silences.start[of], silences.end[of]
        since, until = (
            np.where(is_first, start, np.maximum(since[inside], start)),
            np.where(is_last, end, np.minimum(until[inside], end)),
        )
        own = union(since[chosen[inside]], until[chosen[inside]])
        return joined_spans((own, difference(around, union(start, end))))

    def _most(
        self,
        rows: Int64Array,
        start_ps: Int64Array,
        end_ps: Int64Array,
        group: Int64Array,
        count: int,
    ) -> list[PythonLine | None]:
        lines: list[PythonLine | None] = [None] * count
        rows_in, times, span = self._time_by_sample(rows, start_ps, end_ps)
        if not span.size:
            return lines
        of_sample = group[span]
        order = np.argsort(of_sample, kind="stable")
        known, first = np.unique(of_sample[order], return_index=True)
        for number, place in zip(known.tolist(), np.split(order, first[1:]), strict=True):
            lines[number] = self._line(rows_in[place], times[place])
        return lines

    def _line(self, rows: Int64Array, times: Int64Array) -> PythonLine:
        """What was mostly done at the line with most time in the innermost function of the user with half of it, else with most."""
        of_function: Counter[str] = Counter()
        inside: Counter[str] = Counter()
        places_of = []
        for place_of, time in self._time_by_place(rows, times).items():
            stack, around, thread, state, is_free = place_of
            # The function that holds the loop, and what it calls.
            first = max(self._loop_of(thread).depth - 1, 0)
            frames = [*self.stacks.chain((stack, around))[first:-1], self.stacks.line(stack)]
            of_function[frames[-1].code] += time
            inside.update(dict.fromkeys((frame.code for frame in frames), time))
            place = self.stacks.called(stack), self.stacks.inner(stack), state
            places_of.append(({frame.code: frame for frame in frames}, place, is_free, time))
        whole_ps, (function, inside_ps) = int(times.sum()), of_function.most_common(1)[0]
        if 2 * inside_ps < whole_ps:
            half = [code for code, time in inside.items() if 2 * time >= whole_ps]
            # Of functions that call each other the innermost has least, or as much.
            function = min(reversed(half), key=inside.__getitem__, default=function)
            inside_ps = inside[function]
        of_line: Counter[PythonFrame] = Counter()
        of_place: dict[PythonFrame, Counter[_Place]] = {}
        of_call: dict[PythonFrame, Counter[tuple[str, PythonState]]] = {}
        free: dict[PythonFrame, Counter[bool | None]] = {}
        for of_code, place, is_free, time in places_of:
            if frame := of_code.get(function):
                of_line[frame] += time
                of_place.setdefault(frame, Counter())[place] += time
                of_call.setdefault(frame, Counter())[_call(place)] += time
                free.setdefault(frame, Counter())[is_free] += time
        (line, line_ps), *rest = of_line.most_common(1 + _MOST_BESIDE)
        beside = (each.line for each, time in rest if time >= _BESIDE_RATIO * line_ps)
        call = of_call[line].most_common(1)[0][0]
        called, inner, state = next(
            place for place, _ in of_place[line].most_common() if _call(place) == call
        )
        below, frees_lock = None if inner == line else inner, _mostly(free[line])
        return PythonLine(
            line, below, called, state, inside_ps, whole_ps, frees_lock, line_ps, tuple(beside)
        )

    def _time_by_place(
        self, rows: Int64Array, times: Int64Array
    ) -> Counter[tuple[int, int, int, PythonState, bool | None]]:
        """The time of some samples by stack, code around it, thread, what that does there, and whether without Python's lock."""
        samples = self._samples
        found = Counter[tuple[int, int, int, PythonState, bool | None]]()
        columns = (
            column[rows].tolist() for column in (samples.stack, samples.around, samples.thread)
        )
        for row, stack, around, thread, time in zip(
            rows.tolist(), *columns, times.tolist(), strict=True
        ):
            found[stack, around, thread, self._state(row), self._frees_lock(row)] += time
        return found

    def _time_by_sample(
        self, rows: Int64Array, start_ps: Int64Array, end_ps: Int64Array
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Rows of the samples that stand for time in spans, in time order and apart, that time, and the span of each."""
        if not start_ps.size:
            nothing = np.empty(0, dtype=np.int64)
            return nothing, nothing, nothing
        time = self.time_ps[rows]
        # The last span that begins before the sample; -1, whose start is the last one's, where there is none.
        span = np.searchsorted(start_ps, time, side="left") - 1
        until_ps = np.minimum(self._until_ps[rows], end_ps[span])
        stands_for_ps = until_ps - np.maximum(self._since_ps[rows], start_ps[span])
        is_in = (span >= 0) & (time <= end_ps[span]) & (stands_for_ps > 0)
        is_in &= self.stacks.ends[0, self._samples.stack[rows]] != NONE
        return rows[is_in], stands_for_ps[is_in], span[is_in]

    def _frees_lock(self, row: int) -> bool | None:
        """Whether the thread of a sample works without Python's lock; None where nobody looked, or it may wait for the lock."""
        held = self._samples.held
        if held is None:
            return None
        is_at_work = self._used_ps[row] >= AT_WORK_RATIO * self._passed_ps[row]
        return False if held[row] >= 0 else is_at_work or None

    def _state(self, row: int) -> PythonState:
        """What the thread of a sample does at its place."""
        state = self.stacks.frame(self._samples.stacks[self._samples.stack[row]][0]).state
        load = self._load[row]
        if state == "native" or np.isnan(load):
            return state
        return "waits" if load < self._least_load[row] else "runs"


def python_lines(recording: Recording, host: int) -> PythonLines | None:
    """The samples of a host; None without any, or where the trace does not say when the profile began."""
    info = recording.hosts[host]
    samples = info.captured.python
    if samples is None or info.profile_start_ns is None:
        return None
    return PythonLines(recording, host, samples, info.profile_start_ns)
