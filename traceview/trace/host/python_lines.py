"""Finds the line of Python that a thread was in, from samples of its stacks (docs/method.md, "Line of Python")."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
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
from traceview.base.units import PS_PER_MS, PS_PER_NS, PS_PER_US
from traceview.trace.columns import NONE
from traceview.trace.host.python_stacks import Place, PythonStacks
from traceview.trace.host.state_timeline import joined_spans
from traceview.trace.host.thread_clocks import (
    FURTHEST_NS,
    clocks_of_hosts,
    id_bits,
    places_of_ids,
)
from traceview.trace.model import Recording
from traceview.trace.sidecar.sidecar import (
    PythonFrame,
    PythonSamples,
    PythonState,
    PythonThread,
)

_LATE_PS: Final = 5 * PS_PER_MS // 2
"""A round that comes so late was kept from Python's lock: half of the 5 ms for which a thread keeps it where others want it;
rounds are due after 0.5 to 1.5 ms."""
_PROMPT_NS: Final = 200_000
"""A round that is late by less met no lock: who keeps it gives it up after 0.1 ms, to a thread that then has to wake up."""
_AT_WORK_RATIO: Final = 0.5
"""Of the time between two rounds: a thread that used a core for less did not keep them apart. A choice of ours."""
_AT_REST_RATIO: Final = 0.05
"""Of the time that a thread spends at a place: one that used a core for less waits there. One that waits for Python's lock
wakes up now and then, and one that computes shares busy cores with others. A choice of ours."""
_BESIDE_RATIO: Final = 0.5
"""Of the time at a line: other lines of its function with so much are named, too. A choice of ours."""
_MOST_BESIDE: Final = 2
WAITS_RATIO: Final = 0.2
"""Of a core: who uses less waits, with rounds that the thread computed in around it. A choice of ours."""
_MOSTLY_RATIO: Final = 0.5
"""A thread that used a core for less of a time spent most of it waiting; JAX waits for a GPU at up to 0.3 of a core (H100)."""
OFF_CORE_PS: Final = 10 * PS_PER_MS
"""A thread with work may be off a busy core for so long: some slices of other threads, of 3 to 4 ms each on Linux."""
_AROUND: Final = (1 << 32) - 1

_Place: TypeAlias = tuple[PythonFrame | None, PythonFrame, PythonState]
"""What a line calls, the innermost line there, and what the thread does."""


def _call(place: _Place) -> tuple[str, PythonState]:
    """The function that a line calls, and what the thread does there."""
    called, _, state = place
    return called.code if called else "", state


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


class PythonLines:
    """The samples of one host on the clock of the trace."""

    def __init__(
        self, recording: Recording, host: int, samples: PythonSamples, start_ns: int
    ) -> None:
        self._recording = recording
        self._host = host
        self._samples = samples
        self._start_ns, self._start_ps = start_ns, recording.hosts[host].start_ps
        self.stacks = PythonStacks(samples)
        self._loops: dict[int, int] = {}
        """By thread how many functions are around what its loop calls."""
        self.time_ps: Int64Array = self._on_clock(samples.t_ns)
        rounds, round_of_sample = unique_inverse(self.time_ps)
        self.rounds_ps: Int64Array = rounds
        self.previous_ps: Int64Array = rounds[np.maximum(round_of_sample - 1, 0)]
        """Time of the round before that of each sample; of the first round its own."""
        passed = np.diff(rounds)
        between = rounds[:-1] + (passed - self._late_ps(round_of_sample, passed)) // 2
        self._since_ps: Int64Array = np.append(rounds[:1], between)[round_of_sample]
        self._until_ps: Int64Array = np.append(between, rounds[-1:])[round_of_sample]

    def _late_ps(self, round_of_sample: Int64Array, passed_ps: Int64Array) -> Int64Array:
        """How late each round but the first came; where that was not recorded, all the time that had passed."""
        late_ns = np.full(passed_ps.size + 1, -1, dtype=np.int64)
        late_ns[round_of_sample] = np.minimum(self._samples.late_ns, FURTHEST_NS)
        late_ps = late_ns[1:] * PS_PER_NS
        return np.where(late_ps < 0, passed_ps, np.minimum(late_ps, passed_ps))

    def _on_clock(self, t_ns: Int64Array) -> Int64Array:
        since_ns = np.clip(t_ns - self._start_ns, -FURTHEST_NS, FURTHEST_NS)
        return since_ns * PS_PER_NS + self._start_ps

    @property
    def collections(self) -> IntervalSet:
        """When Python collected garbage for long."""
        start_ns, length_ns = self._samples.collected_ns.T
        return union(self._on_clock(start_ns), self._on_clock(start_ns + length_ns))

    @property
    def threads(self) -> tuple[PythonThread, ...]:
        """The sampled threads, by their numbers."""
        return self._samples.threads

    @property
    def sampled(self) -> IntervalSet:
        """From the first round of samples to the last."""
        return union(self.time_ps[:1], self.time_ps[-1:])

    def thread_of(self, line: int) -> int:
        """The number of the sampled thread whose events are on a line of the trace; `NONE` if it was not sampled."""
        return self._thread_of_id.get(id_bits(self._recording.lines[line].id), NONE)

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
    ) -> list[PythonLine | None]:
        """The same for all threads but one, among samples inside code of the user in which the thread runs something.

        `may_wait`: where lines that compute have less than half of that time, one counts that waits, as for a file. Otherwise
        only lines count that compute for half of the spans, in threads that native code started: functions of ops run in
        these, and what a thread of the script does beside them keeps no op waiting.
        """
        samples, spans = self._samples, (start_ps, end_ps, group, count)
        # No native code has started these.
        by_python = [thread.name is not None for thread in samples.threads]
        is_of_script = np.array(by_python, dtype=np.bool_)[samples.thread]
        is_idle = self.stacks.waits[samples.stack] & is_of_script
        is_beside = (samples.thread != thread) & ~is_idle
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

    def locks_kept(self, threads: Collection[int]) -> dict[int, IntervalSet]:
        """When each of some threads kept Python's lock from others: between two rounds, as the second came late while they computed.

        Together, for they hand it to each other; such time is that of the one that computed most.
        """
        numbers = sorted(threads)
        used_ps = np.stack([self._used_by_round(each) for each in numbers] or [np.zeros(0)])
        if not numbers:
            return {}
        keeps = (self._passed_by_round >= _LATE_PS) & (
            used_ps.sum(axis=0) >= _AT_WORK_RATIO * self._passed_by_round
        )
        keeper = used_ps.argmax(axis=0)
        return {
            each: union(self.rounds_ps[:-1][of], self.rounds_ps[1:][of])
            for place, each in enumerate(numbers)
            for of in (keeps & (keeper == place),)
        }

    def _used_by_round(self, thread: int) -> npt.NDArray[np.float64]:
        """Processor time that a thread used before each round but the first, float64 picoseconds.

        What it used from one look at its processor time to the next lies where rounds came late, for it did not let them.
        """
        time_ps, until_ps = self._looks(thread)
        edges = unique_ids(np.concatenate((self.rounds_ps, time_ps)))
        length, look = np.diff(edges), places(time_ps, edges[:-1], right=True) - 1
        before = places(self.rounds_ps, edges[:-1], right=True) - 1
        passed_ps = self._passed_by_round
        is_round = (before >= 0) & (before < passed_ps.size)
        late = np.append(passed_ps >= _LATE_PS, True)[np.where(is_round, before, -1)]
        is_known = (look >= 0) & (look < time_ps.size - 1)
        length, late, look = length[is_known], late[is_known], look[is_known]
        of_look, of_late = (
            np.bincount(look, each, max(time_ps.size - 1, 0)) for each in (length, length * late)
        )
        part = np.where(
            of_late[look] > 0, length * late / np.maximum(of_late[look], 1), length / of_look[look]
        )
        used_ps, inside = np.diff(until_ps)[look] * part, is_round[is_known]
        of_rounds = np.bincount(before[is_known][inside], used_ps[inside], passed_ps.size)
        return of_rounds.astype(np.float64)

    def _looks(self, thread: int) -> tuple[Int64Array, Int64Array]:
        """When the processor time of a thread was looked at, with samples or by the clocks of all threads, and what it was."""
        rows = self._rows_of(thread)
        rows = rows[self._samples.cpu_us[rows] >= 0]
        cpu_us = np.minimum(self._samples.cpu_us[rows], FURTHEST_NS // 1000)
        time_ps, until_ps = [self.time_ps[rows]], [cpu_us * PS_PER_US]
        clocks = self._recording.once(clocks_of_hosts).get(self._host)
        place = clocks.of_python(self._samples.threads[thread]) if clocks else NONE
        if clocks and place != NONE:
            time_ps.append(clocks.time_ps)
            until_ps.append(clocks.ran_ps[place])
        times, until = np.concatenate(time_ps), np.concatenate(until_ps)
        order = np.lexsort((until, times))
        return times[order], np.maximum.accumulate(until[order])

    def own_work(self, thread: int, start_ps: Int64Array, end_ps: Int64Array) -> Int64Array:
        """How much of each of some spans, in time order and apart, a thread needs for itself: its processor time, if it used it in these."""
        used_ps, rounds = self._used_by_round(thread), self.rounds_ps
        inside = union(start_ps, end_ps).within(rounds[:-1], rounds[1:])
        part = np.minimum(used_ps / np.maximum(inside, 1), 1.0) * np.diff(rounds)
        until = np.append(0, np.cumsum(part.astype(np.int64)))
        begun, ended = np.interp((start_ps, end_ps), rounds, until).astype(np.int64)
        result: Int64Array = np.minimum(ended - begun, end_ps - start_ps)
        return result

    def off_core(self, thread: int) -> IntervalSet:
        """When a thread used less than half of a core: between two rounds. Nothing is said of rounds that do not know that."""
        rows = self._rows_of(thread)
        off = rows[(self._used_ps[rows] >= 0)]
        off = off[self._used_ps[off] < _AT_WORK_RATIO * self._passed_ps[off]]
        return union(self.previous_ps[off], self.time_ps[off])

    def at_work(self, thread: int) -> IntervalSet:
        """When a thread was at a place where it does not wait, as far as samples stand for it; busy cores leave it little of one."""
        rows = self._rows_of(thread)
        rows = rows[
            (self._load[rows] >= _AT_REST_RATIO) & ~self.stacks.waits[self._samples.stack[rows]]
        ]
        return union(self._since_ps[rows], self._until_ps[rows])

    def computing(self, thread: int) -> IntervalSet:
        """When a thread used a core, however small a part of it others left to it: between two rounds."""
        rows = self._rows_of(thread)
        used_ps = self._used_ps[rows]
        used = rows[(used_ps > 0) & (used_ps >= _AT_REST_RATIO * self._passed_ps[rows])]
        return union(self.previous_ps[used], self.time_ps[used])

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
        return self.stacks.called_by_loop(self._places_of(thread))

    def calling(self, thread: int, lines: Iterable[str]) -> PythonLine | None:
        """Where a thread mostly was, and did not wait, in what its loop calls at some lines of the user's code; None without samples."""
        called, depth = self.called_by_loop(thread), self._depth_of_loop(thread)
        causes = {called.get(line) for line in lines}
        rows = self._rows_of(thread)
        rows = rows[~self.stacks.waits[self._samples.stack[rows]]]
        places = zip(
            self._samples.stack[rows].tolist(), self._samples.around[rows].tolist(), strict=True
        )
        of = np.array([self.stacks.cause(each, depth) in causes for each in places], dtype=np.bool_)
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
        depth = self._depth_of_loop(thread)
        of_pair = [
            numbers.setdefault(self.stacks.cause((each >> 32, each & _AROUND), depth), len(numbers))
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

    def _depth_of_loop(self, thread: int) -> int:
        if thread not in self._loops:
            self._loops[thread] = self.stacks.depth_of_loop(self._places_of(thread))
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
        is_call &= ~(self._load[rows] < WAITS_RATIO)
        dispatches = self.stacks.is_of_framework[stack] | is_call
        at_work = (self._load[rows] >= _AT_WORK_RATIO) & ~self.stacks.waits[stack]
        # Who waited for a device before it went on in the script waits no longer when that device has nothing to do.
        goes_on = np.append((at_work & ~dispatches)[1:], False)[: rows.size]
        dispatches &= ~(goes_on & (self._load[rows] < WAITS_RATIO))
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

    def waits_outside_python(self, thread: int, spans: IntervalSet) -> bool:
        """Whether a thread mostly used no core in some spans, and waited for none of Python's own locks, queues and files.

        What it waits for then is native code, such as that of the framework.
        """
        rows = self._rows_of(thread)
        rows = rows[~np.isnan(self._load[rows])]
        weight = spans.within(self._since_ps[rows], self._until_ps[rows])
        used = np.where(self.stacks.waits[self._samples.stack[rows]], 1.0, self._load[rows])
        return float((used * weight).sum()) < _MOSTLY_RATIO * float(weight.sum())

    def at_rest(self, thread: int, *, in_native: bool = True) -> IntervalSet:
        """When a thread waited in Python, by its processor time. `in_native`: also in native code of TensorFlow."""
        rows = self._rows_of(thread)
        if not in_native:
            rows = rows[~self.stacks.is_native[self._samples.stack[rows]]]
        rows = rows[self._load[rows] < _AT_REST_RATIO]
        return union(self.previous_ps[rows], self.time_ps[rows])

    @property
    def started_by_python(self) -> list[tuple[int, str]]:
        """The number and name of each thread that Python started, for it knows no others by name."""
        return [
            (number, thread.name)
            for number, thread in enumerate(self.threads)
            if thread.name is not None
        ]

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
            first = max(self._depth_of_loop(thread) - 1, 0)
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
        below, frees_lock = None if inner == line else inner, free[line].most_common(1)[0][0]
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
            late_ns = int(samples.late_ns[row])
            is_free = late_ns < _PROMPT_NS if late_ns >= 0 else None
            found[stack, around, thread, self._state(row), is_free] += time
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

    def _state(self, row: int) -> PythonState:
        """What the thread of a sample does at its place."""
        state = self.stacks.frame(self._samples.stacks[self._samples.stack[row]][0]).state
        load = self._load[row]
        if state == "native" or np.isnan(load):
            return state
        return "waits" if load < self._least_load[row] else "runs"

    def _rows_of(self, thread: int) -> Int64Array:
        return np.flatnonzero(self._samples.thread == thread)

    @cached_property
    def _passed_by_round(self) -> Int64Array:
        """The time of each round but the first since the one before."""
        return np.diff(self.rounds_ps)

    @cached_property
    def _passed_ps(self) -> Int64Array:
        """The time of each sample since the round before."""
        return self.time_ps - self.previous_ps

    @cached_property
    def _successive(self) -> tuple[Int64Array, Int64Array]:
        """Samples of one thread in two rounds that follow each other: the earlier and the later of each two."""
        by_thread = np.argsort(self._samples.thread, kind="stable")
        before, after = by_thread[:-1], by_thread[1:]
        follows = self._samples.thread[after] == self._samples.thread[before]
        follows &= self.previous_ps[after] == self.time_ps[before]
        return before[follows], after[follows]

    @cached_property
    def _used_ps(self) -> Int64Array:
        """Processor time that the thread of each sample has used since the round before; -1 where that is not known."""
        before, after = self._successive
        first_us, last_us = self._samples.cpu_us[before], self._samples.cpu_us[after]
        used_us = np.clip(last_us - first_us, 0, FURTHEST_NS // 1000)
        is_known = (first_us >= 0) & (last_us >= 0)
        used_ps = np.full(self._samples.count, -1, dtype=np.int64)
        used_ps[after[is_known]] = used_us[is_known] * PS_PER_US
        return used_ps

    @cached_property
    def _ready_ps(self) -> Int64Array:
        """How long the thread of each sample was ready without a core since the round before, and at most; int64 `[2, samples]`.

        Where no clock says that, 0 and more than any time.
        """
        ready_ps = np.zeros((2, self._samples.count), dtype=np.int64)
        ready_ps[1] = np.iinfo(np.int64).max
        clocks = self._recording.once(clocks_of_hosts).get(self._host)
        for number, thread in enumerate(self._samples.threads if clocks else ()):
            if clocks and (place := clocks.of_python(thread)) != NONE:
                rows, clock_ps = self._rows_of(number), clocks.ready_ps[place]
                since, until = times = np.stack((self.previous_ps[rows], self.time_ps[rows]))
                first = np.maximum(places(clocks.time_ps, since, right=True) - 1, 0)
                last = np.minimum(places(clocks.time_ps, until), clock_ps.size - 1)
                # It was ready at most as long as it did not run, and in any such time with the same probability.
                ready, off = np.diff(clock_ps), np.diff(clocks.time_ps - clocks.ran_ps[place])
                likely = np.minimum(ready / np.maximum(off, np.maximum(ready, 1)), 1.0)
                until_each = np.append(0, np.cumsum(likely * np.diff(clocks.time_ps)))
                before, after = np.interp(times, clocks.time_ps, until_each)
                passed, used = self._passed_ps[rows], np.maximum(self._used_ps[rows], 0)
                of_rest = (after - before) * np.maximum(passed - used, 0) / np.maximum(passed, 1)
                ready_ps[:, rows] = of_rest, clock_ps[last] - clock_ps[first]
        return ready_ps

    @cached_property
    def _load(self) -> npt.NDArray[np.float64]:
        """The part of a core that the thread of each sample used in all its time with this stack; NaN where unknown.

        Between two samples with the same stack it was there. Where there is little such time, that since another stack has
        to do, of which part was spent there. Time in which it was ready, and others had the cores, does not count. Less than
        `OFF_CORE_PS` is enough where it cannot have been ready, no lock kept the round, and half as much time led there.
        """
        samples, (before, after) = self._samples, self._successive
        stays = np.zeros(samples.count, dtype=np.bool_)
        stays[after] = samples.stack[after] == samples.stack[before]
        _, group = unique_inverse(samples.thread.astype(np.int64) * (1 << 32) + samples.stack)
        is_known = (self._used_ps >= 0) & (self._passed_ps > 0)
        count = int(group.max(initial=-1)) + 1
        ratio = np.full(count, np.nan)
        might_run_ps, sure_ps = np.maximum(self._passed_ps - self._ready_ps, self._used_ps)
        elsewhere_ps = np.bincount(group[~stays], self._passed_ps[~stays], count)
        is_prompt = self._passed_ps < _LATE_PS
        for chosen, run_ps, least_ps in (
            (is_known, might_run_ps, 0),
            (is_known & stays & is_prompt, sure_ps, np.maximum(elsewhere_ps / 2, _LATE_PS)),
            (is_known & stays, might_run_ps, OFF_CORE_PS),
        ):
            used, passed = (
                np.bincount(group[chosen], ps[chosen].astype(np.float64), count)
                for ps in (self._used_ps, run_ps)
            )
            np.divide(used, passed, out=ratio, where=passed > least_ps)
        return ratio[group]

    @cached_property
    def _least_load(self) -> npt.NDArray[np.float64]:
        """By sample the part of a core from which on its thread computes: more in what waits, where it may be woken often."""
        return np.where(self.stacks.waits[self._samples.stack], _MOSTLY_RATIO, _AT_REST_RATIO)

    @cached_property
    def _thread_of_id(self) -> dict[int, int]:
        """The number of each sampled thread by every id that its line may have."""
        return places_of_ids(self._samples.threads)


def python_lines(recording: Recording, host: int) -> PythonLines | None:
    """The samples of a host; None without any, or where the trace does not say when the profile began."""
    info = recording.hosts[host]
    samples = info.captured.python
    if samples is None or info.profile_start_ns is None:
        return None
    return PythonLines(recording, host, samples, info.profile_start_ns)
