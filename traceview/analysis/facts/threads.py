"""Finds what the threads of the model lose to other threads: Python's lock, what these make, and the cores that they have.

All of it is defined in docs/method.md: "Supply" (the lock), "Python threads beside the step", "Waits for a core".

A call of TensorFlow from Python, `TFE_Py_…`, gives the lock back while it works, and needs it again to return. What it
records ends before that, so the rest of the call is the wait (TensorFlow 2.21, measured: at most 22 µs in five
recordings without another thread that runs Python, up to 9.6 ms beside a generator). Between its calls the thread runs
Python and records nothing; while it shares the lock it is silent for longer.

One that computes gives the lock to another only after 5 ms. The sampling of stacks waits for the lock as well, so its rounds come
late while such a thread takes processor time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.facts.async_ops import async_ops
from traceview.analysis.facts.python import HostPython, PythonShare, shared
from traceview.analysis.facts.run import Run
from traceview.analysis.facts.selection import covered_ps
from traceview.analysis.rules.rule import is_of_jax
from traceview.base.ids import is_in, unique_ids
from traceview.base.intervals import (
    NEVER,
    Int64Array,
    IntervalSet,
    difference,
    largest_between,
    union,
)
from traceview.base.text import lazy_pattern
from traceview.trace.columns import NONE
from traceview.trace.host.sampled_threads import OFF_CORE_PS
from traceview.trace.host.state_timeline import intersection, joined_spans, without_holes
from traceview.trace.host.thread_clocks import ThreadClocks, clocks_of_hosts
from traceview.trace.model import Window
from traceview.trace.state import State
from traceview.xplane.columns import joined
from traceview.xplane.planes import ActivityClass

# Python's lock

_CALL: Final = lazy_pattern(rb"TFE_Py_")
_HELD_RATIO: Final = 0.5
"""Of the time that a thread computes: the line of one that keeps the lock, or the step waiting, for less is that of all it computes."""

LOCKED: Final = (State.UNKNOWN, State.PYTHON, State.HOST_OPS, State.LAUNCH)
"""States in which a thread of the model has work, or may have, and records no op: longer while another one keeps the lock, or the cores."""


def lock_waits(context: Run, device: int) -> IntervalSet:
    """The idle time of a device while the thread of the step waited for the lock, whoever held it.

    It waits from the last event inside a call of TensorFlow to its end; of a call without events inside nothing is known.
    """
    trace, gaps = context.trace, context.idle.gaps[device]
    states = context.idle.states[trace.device_list[device].host]
    columns, rows = trace.host_columns, states.by_start(states.caller)
    ends = columns.end_ps[rows]
    calls = np.flatnonzero(trace.names.where(columns.name[rows], _CALL.match))
    end = ends[calls]
    last = np.searchsorted(columns.start_ps[rows], end)
    inside = largest_between(ends, calls + 1, last, 0)
    returned = np.where(last > calls + 1, np.minimum(inside, end), end)
    return intersection(union(gaps.start_ps, gaps.end_ps), union(returned, end))


def off_core_waits(context: Run, device: int, python: HostPython) -> IntervalSet:
    """The idle time of a device while the thread of the step had to go on, and used no core.

    In a graph of TensorFlow it waits for executors; a call of JAX takes what it is given, for which it needs the lock, and waits for nothing.
    """
    gaps = context.idle.gaps[device]
    states = context.idle.states[context.trace.device_list[device].host]
    idle = joined_spans(gaps.spans_with(cause) for cause in LOCKED)
    waits = intersection(idle, python.lines.off_core(python.caller))
    return waits if is_of_jax(context.trace) else difference(waits, states.calls)


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
    in_waits = python.lines.in_waits(python.caller)
    given_by, states, found = _given(context, host, python), context.idle.states[host], []
    # Replicas outside of graphs call TensorFlow, and the thread of the step waits for them.
    calling = {python.lines.thread_of(line) for line in states.lines_of_python}
    guests_of = {python.lines.thread_of(line): rows for line, rows in states.guests.items()}
    for number, name in python.lines.started_by_python:
        given, guests = given_by.get(number, NEVER), guests_of.get(number, _NO_ROWS)
        is_beside = number in calling and not given.start.size and not guests.size
        if number == python.caller or is_beside:
            continue
        # What calls ops for the step may have the lock because of that.
        kept = NEVER if number in calling else python.lines.held(number)
        is_of_step = number in calling and not guests.size
        # One that has the lock keeps whoever is in no function that waits from going on.
        without_lock = NEVER if is_of_step else difference(python.lines.at_work(number), kept)
        makes = joined_spans((without_lock, intersection(kept, in_waits)))
        awaited = joined_spans((intersection(waits, makes), given))
        kept_ps, awaited_ps = covered_ps(kept, window), covered_ps(awaited, window)
        chosen = kept if kept_ps >= awaited_ps else awaited
        computed = without_holes(python.lines.computing(number), OFF_CORE_PS)
        if guests.size:
            columns = context.trace.device_columns
            computed = union(columns.start_ps[guests], columns.end_ps[guests])
        computed_ps = covered_ps(computed, window)
        if max(kept_ps, awaited_ps) < _HELD_RATIO * computed_ps:
            chosen = computed
        # One that waits for something in Python does not keep the lock.
        line = python.lines.at(number, chosen.start, chosen.end, may_wait=False)
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

_ALONE_RATIO: Final = 0.1
"""Of a core: what the others run in an interval in which the model is alone; of the window: what such intervals take. A choice of ours."""

_SHARED_RATIO: Final = 0.5
"""Of what threads of the model want beyond a core for each device at work: what counts, a choice of ours; nothing shows how much they
would do at once."""

_BUSY_RATIO: Final = 0.5
"""Of a core: from here on a thread of iterators that runs no op takes it from the model. With less a healthy program took as long
without its pipeline, though by the clocks that owed it 12%."""
_NATIVE_RATIO: Final = 0.1
"""Of a core: threads that TensorFlow starts for parts of ops, and does not record, took up to 5%, those of BLAS 50 and more."""

Floats = npt.NDArray[np.float64]


class CoreWaits(Struct, frozen=True, eq=False, dict=True):
    """Who waits for a core on one host, and who has it. `cores`: those that the process may use, of `machine_cores`.

    `model`, `pipeline`, `natives`, `python`: places of threads in the clocks, those of the model, those of the pipeline, those that
    are of neither and not of Python, and that nobody has named, as libraries start them, and by the number of each sampled thread of the script. `at_work_ps`: how long the devices were in ops of replicas, or dispatch, added up, in each
    interval between two looks. `cores_beside`: how many other processes took, mean over the load that was recorded. `caller`: the
    place of the thread that runs the steps, `NONE` where it is not known. `window`: that of the host.
    """

    clocks: ThreadClocks
    cores: int
    machine_cores: int
    model: tuple[int, ...]
    pipeline: tuple[int, ...]
    natives: tuple[int, ...]
    python: Mapping[int, int]
    at_work_ps: Int64Array
    cores_beside: float
    caller: int
    window: Window

    def owed_by(self, ran: Floats) -> Floats:
        """What part of its time the model loses in each interval to others, which `ran` so long in it."""
        lacks = np.maximum(self._lacks - self.owed_by_limit - self._alone, 0.0)
        owed = lacks * ran / np.maximum(self._ran_beside, 1.0)
        result: Floats = np.minimum(owed, ran / np.maximum(self._ran_alone, 1.0))
        return result

    @cached_property
    def owed_by_limit(self) -> Floats:
        """The same because the process may not use all cores: what cores that had nothing to do could have run."""
        if self.cores >= self.machine_cores:
            return np.zeros_like(self._span)
        ran = self._ran_of_model + self._ran_beside
        free = np.maximum(self.machine_cores * self._span - ran, 0.0)
        result: Floats = np.minimum(self._lacks, free / np.maximum(self._ran_alone, 1.0))
        return result

    @property
    def is_limited(self) -> bool:
        """Whether the model loses more to that limit than to other processes."""
        owed = (self.owed_by_limit, self.owed_by(self.ran_by_processes))
        to_limit, to_processes = (float((each * self._span).sum()) for each in owed)
        return to_limit > to_processes

    def beside_caller(self) -> CoreWaits:
        """The same of the other threads of the model: what the thread of the steps runs takes their cores."""
        return replace(self, model=tuple(place for place in self.model if place != self.caller))

    def lost_in(self, owed: Floats, start: Int64Array, end: Int64Array) -> Int64Array:
        """What the model loses in each of some spans, by the part in each interval; picoseconds."""
        lost = owed * self._span
        # Who sleeps meanwhile wants no core.
        times = self.clocks.time_ps
        in_spans = union(start, end).within(times[:-1], times[1:])
        lost *= np.minimum(1.0, self._wanted / np.maximum(in_spans, 1.0))
        until = np.append(0, np.cumsum(lost.astype(np.int64)))
        before, after = np.interp((start, end), self.clocks.time_ps, until).astype(np.int64)
        result: Int64Array = after - before
        return result

    def ran_by(self, places: Collection[int]) -> Floats:
        """What threads ran in each interval between two looks at the clocks, by their places."""
        result: Floats = self._ran[list(places)].sum(axis=0)
        return result

    @property
    def ran_by_processes(self) -> Floats:
        """What other processes ran in each interval, if always alike much."""
        return self._span * self.cores_beside

    def least_ps(self, start: Int64Array, end: Int64Array) -> Int64Array:
        """How long what the model ran in each of some spans takes at least, on all cores."""
        until = np.append(0, np.cumsum(self._ran_of_model.astype(np.int64)))
        before, after = np.interp((start, end), self.clocks.time_ps, until).astype(np.int64)
        result: Int64Array = (after - before) // self.cores
        return result

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
    def _ran_of_model(self) -> Floats:
        return self.ran_by(self.model)

    @cached_property
    def _wanted(self) -> Floats:
        """How long threads of the model ran or waited for a core, added up."""
        ready_ps = self.clocks.ready_ps[list(self.model)].sum(axis=0)
        result: Floats = self._ran_of_model + np.diff(ready_ps)
        return result

    @cached_property
    def _ran_alone(self) -> Floats:
        """What the threads of the model would run in each interval without others: all that they want, on all cores of the machine at most.

        Each device at work wants a core. Of what threads want beyond that only a part counts: one that waits for a core may leave
        its share of an op to another.
        """
        ran, wanted = self._ran_of_model, self._wanted
        sure = np.minimum(wanted, np.maximum(ran, self.at_work_ps))
        wanted = sure + _SHARED_RATIO * (wanted - sure)
        result: Floats = np.minimum(wanted, self.machine_cores * self._span)
        return result

    @cached_property
    def _lacks(self) -> Floats:
        """The part of what threads of the model would run that they did not."""
        lacks = 1.0 - self._ran_of_model / np.maximum(self._ran_alone, 1.0)
        result: Floats = np.where(self._ran_alone > 0, lacks, 0.0)
        return result

    @cached_property
    def _alone(self) -> float:
        """What the model lacks while hardly anything else runs, without a limit, as a part of what it would run."""
        times = self.clocks.time_ps
        # The profiler starts before it, and writes after it.
        inside = (times[:-1] >= self.window.start_ps) & (times[1:] <= self.window.end_ps)
        is_alone = inside & (self._ran_beside < _ALONE_RATIO * self._span)
        if self._span[is_alone].sum() < _ALONE_RATIO * self._span[inside].sum():
            return 0.0
        lacks = (self._lacks - self.owed_by_limit) * self._ran_alone
        part, whole = (of[is_alone].sum() for of in (lacks, self._ran_alone))
        return float(part / whole) if whole else 0.0

    @cached_property
    def _ran_beside(self) -> Floats:
        """What all that is not of the model ran: other threads of this process, and other processes."""
        beside = np.ones(len(self.clocks.numbers), dtype=np.bool_)
        beside[list(self.model)] = False
        return self.ran_by(np.flatnonzero(beside).tolist()) + self.ran_by_processes


def core_waits(context: Run, host: int) -> CoreWaits | None:
    """The waits of a host; None where its clocks were not recorded, or what cores it may use is not known."""
    return context.once(_of_hosts).get(host)


def _of_hosts(context: Run) -> dict[int, CoreWaits]:
    found = {host: _of_host(context, host) for host in context.idle.states}
    return {host: waits for host, waits in found.items() if waits is not None}


def _of_host(context: Run, host: int) -> CoreWaits | None:
    trace, states = context.trace, context.idle.states[host]
    clocks, cores = trace.once(clocks_of_hosts).get(host), trace.hosts[host].usable_cores
    if clocks is None or not cores:
        return None
    columns, rows = trace.device_columns, trace.device_rows(host)
    guests = joined(list(states.guests.values()), np.int64)
    rows = rows[(columns.class_[rows] == ActivityClass.COMPUTE) & ~is_in(rows, guests)]
    launched = columns.launch[rows]
    ops = states.spans_by_thread(unique_ids(launched[launched != NONE]))
    compute = {*map(clocks.of_line, ops)}
    pipeline = {*map(clocks.of_line, states.spans_by_thread(states.pipeline_work))}
    iterating = {*map(clocks.of_line, _lines_of_iterators(context, host))} - {*compute, NONE}
    ran_ps, whole_ps = clocks.ran_ps[:, -1] - clocks.ran_ps[:, 0], np.ptp(clocks.time_ps)
    busy = ran_ps >= _BUSY_RATIO * whole_ps
    pipeline |= {place for place in iterating if busy[place]}
    pipeline -= {*compute, NONE}
    beside = {line for line in states.lines_of_python if int(states.thread[line]) in states.guests}
    # Calls that run at the same time may be taken for each other's.
    compute -= {*map(clocks.of_line, beside)}
    lines = {*unique_ids(trace.host_columns.line[states.rows_of_model]).tolist()} - beside
    calling = {*map(clocks.of_line, {*states.lines_of_python} - beside)}
    python = _of_python(context, host, clocks, {*compute, *calling, *pipeline})
    of_model = {*compute, *map(clocks.of_line, lines)} - {*pipeline, *python.values(), NONE}
    known = {*pipeline, *python.values(), *of_model, *iterating}
    # Without samples any of them may be one of Python.
    sampled = context.idle.python.get(host)
    unnamed = clocks.unnamed if sampled and sampled.is_sampled else ()
    is_known = sampled and sampled.is_sampled and sampled.caller != NONE
    caller = sampled.lines.threads[sampled.caller] if sampled and is_known else None
    return CoreWaits(
        clocks=clocks,
        cores=cores,
        machine_cores=max(trace.hosts[host].captured.load.cores or 0, cores),
        model=tuple(sorted(of_model)),
        pipeline=tuple(sorted(pipeline)),
        natives=tuple(
            place
            for place, number in enumerate(clocks.numbers)
            if number in unnamed
            and place not in known
            and ran_ps[place] >= _NATIVE_RATIO * whole_ps
        ),
        python=python,
        at_work_ps=_at_work(context, host, clocks),
        cores_beside=_cores_beside(context, host),
        caller=NONE if caller is None else clocks.of_python(caller),
        window=context.selection.windows[host],
    )


_ITERATOR: Final = lazy_pattern(rb"Iterator::")


def _lines_of_iterators(context: Run, host: int) -> list[int]:
    """The lines of threads of tf.data on which iterators run, of which some work without any op."""
    trace = context.trace
    lines = unique_ids(trace.host_columns.line[trace.named_on(host, _ITERATOR.match)])
    return [line for line in lines.tolist() if not trace.runs_model[line]]


def _of_python(
    context: Run, host: int, clocks: ThreadClocks, not_among: set[int]
) -> dict[int, int]:
    """The places of the threads of the script in Python, by their numbers, but of the thread that runs the steps.

    What calls the framework works for the model, but for one that gives graphs of the step what they wait for.
    """
    python = context.idle.python.get(host)
    if python is None or not python.is_sampled:
        return {}
    not_among = not_among - {
        clocks.of_python(python.lines.threads[each]) for each in _given(context, host, python)
    }
    others = [number for number, _ in python.lines.started_by_python if number != python.caller]
    places = {each: clocks.of_python(python.lines.threads[each]) for each in others}
    without = {*not_among, NONE}
    return {number: place for number, place in places.items() if place not in without}


def _at_work(context: Run, host: int, clocks: ThreadClocks) -> Int64Array:
    """How long the devices of a host were in ops on its cores, or waited for dispatch, added up, in each interval."""
    between = clocks.time_ps[:-1], clocks.time_ps[1:]
    total = np.zeros(between[0].size, dtype=np.int64)
    for device, gaps in context.idle.gaps.items():
        entry = context.trace.device_list[device]
        if entry.host == host:
            at_work = [gaps.spans_with(cause) for cause in (*LOCKED, State.DEVICE_WAIT)]
            if entry.kind == "replica":
                at_work += context.activities[device].by_class
            total += joined_spans(at_work).within(*between)
    return total


def _cores_beside(context: Run, host: int) -> float:
    """How many cores other processes took while the load was recorded."""
    load = context.trace.hosts[host].captured.load
    if load.busy_ns is None or load.own_ns is None or not load.elapsed_ns:
        return 0.0
    return max(load.busy_ns - load.own_ns, 0) / load.elapsed_ns
