"""Finds what the threads of the model lose to other threads: Python's lock, what these make, and the cores that they have.

A call of TensorFlow from Python, `TFE_Py_…`, gives the lock back while it works, and needs it again to return. What it
records ends before that, so the rest of the call is the wait (TensorFlow 2.21, measured: at most 22 µs in five
recordings without another thread that runs Python, up to 9.6 ms beside a generator). Between its calls the thread runs
Python and records nothing. While another thread runs Python, it is silent for longer, for it shares the lock: what it is
silent more than at other times is due to that thread.

One thread at a time runs Python. One that computes gives the lock to another only after 5 ms. The samples of the stacks
show such a thread: the sampling waits for the lock as well, so rounds come late, while the thread takes processor time.
Threads of the input pipeline do not count here; Python did not start them.

Where the thread of the step waits in Python, and uses no processor, it waits for what another thread makes, if one computes
meanwhile: for a batch in a queue, or for its end. A graph waits likewise in an asynchronous op, such as one that takes from a
queue of TensorFlow: the thread that puts something in ends it, which both record.

A thread that computes without the lock, as NumPy does on large arrays, takes a core and nothing else.

The kernel counts how long each thread ran and how long it waited for a core (`ThreadClocks`). Of what runs on a thread
between two looks at the clocks, the part in which the thread waited is lost: without the wait it were shorter by that. A part
of the waits the threads of the model owe to each other, where they want more than all cores: alone they would run on all of
them, and all that they do would be shorter by what they now lack of that. This they owe to the other threads and processes,
to each in proportion to what it ran.

Of the model are the threads with its events; others are those that work for the input pipeline, and threads of the script in
Python, which compute beside the step. What threads without any events ran is nobody's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.analysis.facts.async_ops import async_ops
from traceview.analysis.facts.python import HostPython, PythonShare, shared
from traceview.analysis.facts.run import Run
from traceview.analysis.facts.selection import covered_ps
from traceview.base.ids import is_in, unique_ids
from traceview.base.intervals import (
    NEVER,
    Int64Array,
    IntervalSet,
    difference,
    largest_between,
    union,
)
from traceview.base.units import PS_PER_MS
from traceview.trace.columns import NONE
from traceview.trace.host.cause import Cause
from traceview.trace.host.python_lines import OFF_CORE_PS
from traceview.trace.host.state_timeline import intersection, joined_spans, without_holes
from traceview.trace.host.thread_clocks import ThreadClocks, thread_clocks
from traceview.trace.model import Window
from traceview.xplane.columns import joined
from traceview.xplane.planes import ActivityClass

# Python's lock

_CALLS: Final = b"TFE_Py_"
SILENT: Final = (Cause.UNKNOWN, Cause.PYTHON)
"""Causes of idle time in which the thread of the step records nothing."""

_HELD_RATIO: Final = 0.5
"""Of the time that a thread computes: the line of one that keeps the lock, or the step waiting, for less is that of all it computes."""

LOCKED: Final = (*SILENT, Cause.HOST_OPS, Cause.LAUNCH)
"""Causes of idle time that get longer while another thread keeps Python's lock."""


def lock_waits(context: Run, device: int) -> IntervalSet:
    """The idle time of a device while the thread of the step waited for the lock, whoever held it.

    It waits from the last event inside a call of TensorFlow to its end; of a call without events inside nothing is known.
    """
    trace, gaps = context.trace, context.idle.gaps[device]
    states = context.idle.states[trace.device_list[device].host]
    events = states.by_start(states.caller)
    names = trace.host_columns.name[events.rows]
    calls = np.flatnonzero(trace.names.where(names, _is_call))
    end = events.end_ps[calls]
    last = np.searchsorted(events.start_ps, end)
    inside = largest_between(events.end_ps, calls + 1, last, 0)
    returned = np.where(last > calls + 1, np.minimum(inside, end), end)
    return intersection(union(gaps.start_ps, gaps.end_ps), union(returned, end))


def off_core_waits(context: Run, device: int, python: HostPython) -> IntervalSet:
    """The idle time of a device while the thread of the step had to go on, in no graph, in which it waits for executors, and used no core."""
    gaps = context.idle.gaps[device]
    states = context.idle.states[context.trace.device_list[device].host]
    idle = joined_spans(gaps.spans_with(cause) for cause in LOCKED)
    return difference(intersection(idle, python.lines.off_core(python.caller)), states.calls)


def _is_call(name: bytes) -> bool:
    return name.startswith(_CALLS)


class ThreadAtWork(Struct, frozen=True, eq=False):
    """A thread of the script that computes beside the step, by its number and name, and the Python that it ran.

    `kept`: when it kept the lock. `given`: when a graph of the step waited for what it gave. `awaited`: that, and when the thread
    of the step waited in Python meanwhile. `computed_ps`: how long it computed, with the lock or without. The times are of the
    window. `guests`: ops that it runs on devices of the step, rows of the device columns.
    """

    number: int
    thread: str
    kept: IntervalSet
    kept_ps: int
    given: IntervalSet
    awaited: IntervalSet
    awaited_ps: int
    computed_ps: int
    guests: Int64Array
    python: PythonShare


_NO_ROWS: Final = np.empty(0, dtype=np.int64)


def threads_at_work(context: Run, host: int) -> list[ThreadAtWork]:
    """The threads of one host, the one that the step may have waited for longest first."""
    python, window = context.idle.python[host], context.selection.windows[host]
    waits = python.lines.at_rest(python.caller, in_native=False)
    given_by, states, found = _given(context, host, python), context.idle.states[host], []
    # Replicas outside of graphs call TensorFlow, and the thread of the step waits for them.
    calling = {python.lines.thread_of(line) for line in states.lines_of_python}
    guests_of = {python.lines.thread_of(line): rows for line, rows in states.guests.items()}
    # What calls ops for the step may keep the lock because of that.
    others = [number for number, _ in python.lines.started_by_python if number != python.caller]
    kept_by = python.lines.locks_kept({*others} - calling)
    for number, name in python.lines.started_by_python:
        given, guests = given_by.get(number, NEVER), guests_of.get(number, _NO_ROWS)
        is_beside = number in calling and not given.start.size and not guests.size
        if number == python.caller or is_beside:
            continue
        kept = kept_by.get(number, NEVER)
        awaited = NEVER if number in calling else python.lines.at_work(number)
        awaited = joined_spans((intersection(waits, awaited), given))
        kept_ps, awaited_ps = covered_ps(kept, window), covered_ps(awaited, window)
        chosen = kept if kept_ps >= awaited_ps else awaited
        computed = without_holes(python.lines.computing(number), OFF_CORE_PS)
        if guests.size:
            columns = context.trace.device_columns
            computed = union(columns.start_ps[guests], columns.end_ps[guests])
        computed_ps = covered_ps(computed, window)
        if max(kept_ps, awaited_ps) < _HELD_RATIO * computed_ps:
            chosen = computed
        line = python.lines.at(number, chosen.start, chosen.end)
        if chosen.start.size and line is not None:
            times = kept, kept_ps, given, awaited, awaited_ps, computed_ps
            found.append(ThreadAtWork(number, name, *times, guests, shared(line)))
    return sorted(found, key=lambda row: -max(row.kept_ps, row.awaited_ps))


def _given(context: Run, host: int, python: HostPython) -> dict[int, IntervalSet]:
    """When a graph of the step waited in an asynchronous op that a thread of Python ended, by the number of that thread.

    An executor goes on meanwhile with what does not need the op. What ends on a thread of TensorFlow waits for no Python.
    """
    states, ops = context.idle.states[host], context.once(async_ops)[host]
    thread = states.thread[context.trace.host_columns.line[ops.ended]]
    found: dict[int, IntervalSet] = {}
    for each in unique_ids(thread).tolist():
        number = python.lines.thread_of(each)
        if each != states.caller and number != NONE and states.runs_python(each):
            found[number] = intersection(ops.spans(context.trace, thread == each), states.calls)
    return found


# Cores

_AROUND_PS: Final = 25 * PS_PER_MS
"""On either side of an interval: several turns of threads that share a core; a choice of ours."""

_ALONE_RATIO: Final = 0.1
"""Of a core: what the others run in an interval in which the model is alone; of the recording: what such intervals take. A choice of ours."""

Floats = npt.NDArray[np.float64]


class CoreWaits(Struct, frozen=True, eq=False, dict=True):
    """Who waits for a core on one host, and who has it.

    `model`, `awaited`, `pipeline`, `python`: places of threads in the clocks, those of the model, which of them run ops or the
    steps, those of the pipeline, and by the number of each sampled thread of the script. `cores_beside`: how many other processes
    took, mean over the load that was recorded.
    """

    clocks: ThreadClocks
    cores: int
    model: tuple[int, ...]
    awaited: tuple[int, ...]
    pipeline: tuple[int, ...]
    python: Mapping[int, int]
    cores_beside: float

    def lost_to(
        self, ran: Floats, thread: int, start: Int64Array, end: Int64Array, *, are_ops: bool
    ) -> Int64Array:
        """What a thread loses in each of some spans of what it does to others, which `ran` so long in each interval; picoseconds.

        `are_ops`: it runs ops in them. While it rests in one, threads of the model that run neither ops nor steps work for it.
        """
        ran = self._around(ran)
        share = ran / np.maximum(self._around(self._ran_beside), 1.0)
        opened = union(start, end).within(self.clocks.time_ps[:-1], self.clocks.time_ps[1:])
        waited = self._waited[thread]
        at_work = self._ran[thread] + waited
        if are_ops:
            rests = np.maximum(opened - at_work, 0.0)
            works, waits = self._of_workers
            waited = waited + rests * waits / np.maximum(np.maximum(works, rests), 1.0)
        # A thread that sleeps in what it does waits for no core.
        of = np.maximum(at_work, opened)
        part = np.divide(waited, of, out=np.zeros_like(waited), where=of > 0)
        owed = np.minimum(part * self._owed_to_others, part - self._alone)
        most = ran / np.maximum(self.cores * self._around(self._span), 1.0)
        lost = np.minimum(np.clip(owed, 0.0, 1.0) * share, most) * self._span
        until = np.append(0, np.cumsum(lost.astype(np.int64)))
        before, after = np.interp((start, end), self.clocks.time_ps, until).astype(np.int64)
        result: Int64Array = after - before
        return result

    @cached_property
    def _of_workers(self) -> tuple[Floats, Floats]:
        """How long threads that work for ops of others ran or waited in each interval, and how long they waited."""
        workers = sorted({*self.model} - {*self.awaited})
        waited: Floats = self._waited[workers].sum(axis=0)
        return self.ran_by(workers) + waited, waited

    def ran_by(self, places: Collection[int]) -> Floats:
        """What threads ran in each interval between two looks at the clocks, by their places."""
        result: Floats = self._ran[list(places)].sum(axis=0)
        return result

    @property
    def ran_by_processes(self) -> Floats:
        """What other processes ran in each interval, if always alike much."""
        return self._span * self.cores_beside

    def cores_of(self, others: Collection[int], window: Window) -> float:
        """How many cores threads took, mean over a window."""
        ran = self.clocks.ran_ps[list(others)].sum(axis=0)
        moments = np.array([window.start_ps, window.end_ps])
        begun, ended = np.interp(moments, self.clocks.time_ps, ran).tolist()
        return float((ended - begun) / window.length_ps) if window.length_ps else 0.0

    @cached_property
    def _span(self) -> Floats:
        return np.diff(self.clocks.time_ps).astype(np.float64)

    @cached_property
    def _ran(self) -> Floats:
        return np.diff(self.clocks.ran_ps, axis=1).astype(np.float64)

    @cached_property
    def _waited(self) -> Floats:
        """How long each thread waited in each interval. The kernel counts a wait when it is over: one that is too long began before."""
        waited = np.diff(self.clocks.waited_ps, axis=1).astype(np.float64)
        # From the last interval back, what is more than there is time goes on to the one before.
        more = np.cumsum((waited - np.maximum(self._span - self._ran, 0.0))[:, :0:-1], axis=1)
        handed_on = more - np.minimum(np.minimum.accumulate(more, axis=1), 0.0)
        waited[:, :0:-1] -= handed_on
        waited[:, -2::-1] += handed_on
        return waited

    @cached_property
    def _owed_to_others(self) -> Floats:
        """What the threads of the model would not wait if they were alone, as a part of what they wait.

        They run R and want W, of which they would get G, all that there is at most: what they do takes W/R of the time that it
        would take without any wait, and G/R of the time that it would take alone.
        """
        model = list(self.model)
        ran = self._around(self._ran[model].sum(axis=0))
        wanted = self._around((self._ran + self._waited)[model].sum(axis=0))
        alone = np.minimum(wanted, self.cores * self._around(self._span))
        waited = alone * (wanted - ran)
        result: Floats = np.divide(
            wanted * np.maximum(alone - ran, 0.0),
            waited,
            out=np.zeros_like(waited),
            where=waited > 0,
        )
        return result

    @cached_property
    def _alone(self) -> float:
        """The part of their time that the threads that devices wait for wait while hardly anything else runs."""
        is_alone = self._ran_beside < _ALONE_RATIO * self._span
        if self._span[is_alone].sum() < _ALONE_RATIO * self._span.sum():
            return 0.0
        ran, waited = (
            of[list(self.awaited)][:, is_alone].sum() for of in (self._ran, self._waited)
        )
        return float(waited / (ran + waited)) if waited else 0.0

    @cached_property
    def _ran_beside(self) -> Floats:
        """What all that is not of the model ran: other threads of this process, and other processes."""
        beside = np.ones(len(self.clocks.numbers), dtype=np.bool_)
        beside[list(self.model)] = False
        return self.ran_by(np.flatnonzero(beside).tolist()) + self.ran_by_processes

    def _around(self, each: Floats) -> Floats:
        """The sum over the intervals around each, for a wait shows in the clock when it is over."""
        total, time = np.append(0.0, np.cumsum(each)), self.clocks.time_ps
        first = np.searchsorted(time, time[:-1] - _AROUND_PS)
        last = np.searchsorted(time, time[1:] + _AROUND_PS, "right") - 1
        result: Floats = total[last] - total[first]
        return result


def core_waits(context: Run, host: int) -> CoreWaits | None:
    """The waits of a host; None where its clocks were not recorded, or what cores it may use is not known."""
    return context.once(_of_hosts).get(host)


def _of_hosts(context: Run) -> dict[int, CoreWaits]:
    found = {host: _of_host(context, host) for host in context.idle.states}
    return {host: waits for host, waits in found.items() if waits is not None}


def _of_host(context: Run, host: int) -> CoreWaits | None:
    trace, states = context.trace, context.idle.states[host]
    clocks, cores = thread_clocks(trace, host), trace.hosts[host].usable_cores
    if clocks is None or not cores:
        return None
    columns, rows = trace.device_columns, trace.device_rows(host)
    guests = joined(list(states.guests.values()), np.int64)
    rows = rows[(columns.class_[rows] == ActivityClass.COMPUTE) & ~is_in(rows, guests)]
    launched = columns.launch[rows]
    ops = states.spans_by_thread(unique_ids(launched[launched != NONE]))
    compute = {*map(clocks.of_line, ops)}
    pipeline = {*map(clocks.of_line, states.spans_by_thread(states.pipeline_work))}
    pipeline -= {*compute, NONE}
    lines = {*unique_ids(trace.host_columns.line[states.rows_of_model]).tolist()} - {*states.guests}
    of_model = {*compute, *map(clocks.of_line, lines)} - {*pipeline, NONE}
    return CoreWaits(
        clocks=clocks,
        cores=cores,
        model=tuple(sorted(of_model)),
        awaited=tuple(sorted(of_model & {*compute, clocks.of_line(states.caller)})),
        pipeline=tuple(sorted(pipeline)),
        python=_of_python(context, host, clocks, {*of_model, *pipeline}),
        cores_beside=_cores_beside(context, host),
    )


def _of_python(
    context: Run, host: int, clocks: ThreadClocks, not_among: set[int]
) -> dict[int, int]:
    """The places of the threads of the script in Python, by their numbers, but of the thread that runs the steps."""
    python = context.idle.python.get(host)
    if python is None or not python.is_sampled:
        return {}
    others = [number for number, _ in python.lines.started_by_python if number != python.caller]
    places = {each: clocks.of_python(python.lines.threads[each]) for each in others}
    without = {*not_among, NONE}
    return {number: place for number, place in places.items() if place not in without}


def _cores_beside(context: Run, host: int) -> float:
    """How many cores other processes took while the load was recorded."""
    load = context.trace.hosts[host].captured.load
    if load.busy_ns is None or load.own_ns is None or not load.elapsed_ns:
        return 0.0
    return max(load.busy_ns - load.own_ns, 0) / load.elapsed_ns
