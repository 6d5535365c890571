"""Measures when sampled threads of Python ran: rounds of samples, processor time, and Python's lock.

All of it is defined in docs/method.md: "Line of Python", "Python threads beside the step".
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from traceview.base.ids import unique_inverse
from traceview.base.intervals import NEVER, Int64Array, IntervalSet, places, union
from traceview.base.units import PS_PER_MS, PS_PER_NS, PS_PER_US
from traceview.trace.columns import NONE
from traceview.trace.host.python_stacks import PythonStacks
from traceview.trace.host.thread_clocks import FURTHEST_NS, clocks_of_hosts, id_bits, places_of_ids
from traceview.trace.model import Recording
from traceview.trace.sidecar.sidecar import PythonSamples, PythonThread

_LATE_PS: Final = 5 * PS_PER_MS // 2
"""A round that comes so late was kept from Python's lock: half of the 5 ms for which a thread keeps it where others want it;
rounds are due after 0.5 to 1.5 ms."""
AT_WORK_RATIO: Final = 0.5
"""Of the time between two rounds: a thread that used a core for less did not keep them apart. A choice of ours."""
_AT_REST_RATIO: Final = 0.05
"""Of the time that a thread spends at a place: one that used a core for less waits there. One that waits for Python's lock
wakes up now and then, and one that computes shares busy cores with others. A choice of ours."""
_MOSTLY_RATIO: Final = 0.5
"""A thread that used a core for less of a time spent most of it waiting; JAX waits for a GPU at up to 0.3 of a core (H100)."""
OFF_CORE_PS: Final = 10 * PS_PER_MS
"""A thread with work may be off a busy core for so long: some slices of other threads, of 3 to 4 ms each on Linux."""


class SampledThreads:
    """The threads of one host whose stacks were sampled, on the clock of the trace."""

    def __init__(
        self, recording: Recording, host: int, samples: PythonSamples, start_ns: int
    ) -> None:
        self._recording = recording
        self._host = host
        self._samples = samples
        self._start_ns, self._start_ps = start_ns, recording.hosts[host].start_ps
        self.stacks = PythonStacks(samples)
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
        """How long each round but the first had to wait for Python's lock; where that was not recorded, all the time that had passed.

        Who takes samples without it waits for a core at most, and finds threads asleep then more often than they are.
        """
        if self._samples.sampler == "native":
            return np.zeros_like(passed_ps)
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
    def needed_lock(self) -> bool:
        """Whether samples were taken by a thread of Python, as the capture said."""
        return self._samples.sampler == "python"

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

    def held(self, thread: int) -> IntervalSet:
        """When a thread had Python's lock: around each sample that shows it, and up to the next where nobody else had it meanwhile.

        Never where nobody looked who has the lock.
        """
        held = self._samples.held
        if held is None:
            return NEVER
        rows, (before, after) = self._rows_of(thread), self._successive
        rows = rows[held[rows] >= 0]
        keeps = (self._samples.thread[after] == thread) & (held[after] == held[before])
        keeps &= held[after] >= 0
        start = np.concatenate((self._since_ps[rows], self.time_ps[before[keeps]]))
        return union(start, np.concatenate((self._until_ps[rows], self.time_ps[after[keeps]])))

    def _used_by_round(self, thread: int) -> npt.NDArray[np.float64]:
        """Processor time that a thread used before each round but the first, float64 picoseconds."""
        time_ps, until_ps = self._looks(thread)
        if not time_ps.size:
            return np.zeros(self._passed_by_round.size)
        return np.diff(np.interp(self.rounds_ps, time_ps, until_ps))

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
        off = off[self._used_ps[off] < AT_WORK_RATIO * self._passed_ps[off]]
        return union(self.previous_ps[off], self.time_ps[off])

    def at_work(self, thread: int, *, in_framework: bool = True) -> IntervalSet:
        """When a thread was at a place where it does not wait, as far as samples stand for it; busy cores leave it little of one.

        `in_framework`: also where the script calls TensorFlow, Keras or JAX.
        """
        rows = self._rows_of(thread)
        stack = self._samples.stack[rows]
        works = (self._load[rows] >= _AT_REST_RATIO) & ~self.stacks.waits[stack]
        works &= in_framework | ~self.stacks.is_of_framework[stack]
        return union(self._since_ps[rows[works]], self._until_ps[rows[works]])

    def computing(self, thread: int) -> IntervalSet:
        """When a thread used a core, however small a part of it others left to it: between two rounds."""
        rows = self._rows_of(thread)
        used_ps = self._used_ps[rows]
        used = rows[(used_ps > 0) & (used_ps >= _AT_REST_RATIO * self._passed_ps[rows])]
        return union(self.previous_ps[used], self.time_ps[used])

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

    def in_waits(self, thread: int) -> IntervalSet:
        """When a thread was in functions that wait, as far as samples stand for it."""
        rows = self._rows_of(thread)
        rows = rows[self.stacks.waits[self._samples.stack[rows]]]
        return union(self._since_ps[rows], self._until_ps[rows])

    @property
    def started_by_python(self) -> list[tuple[int, str]]:
        """The number and name of each thread that Python started, for it knows no others by name."""
        return [
            (number, thread.name)
            for number, thread in enumerate(self.threads)
            if thread.name is not None
        ]

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
