"""Makes the ledger of a context: the states of the devices and hosts, changed where more shows who caused them.

In this order:

    side work    its share of the instants that ops of the model have, where the ops that run take all cores
    evaluation   all that devices of a host do while it evaluates between step markers
    checkpoint   Python between steps, between markers between which the host saves
    framework    Python in steps while the thread of the steps is in a call of the framework, which is dispatch
    small ops    the time of ops and kernels so short that dispatch is what they cost, where a step runs many of them
    waited       dispatch and launches in a gap that began while the host waited for the device to finish
    garbage      dispatch, launches and Python, in steps and between them, while Python collects garbage
    thread       dispatch, launches and Python while another thread of the script keeps Python's lock, and waits in Python
                 while one computes; what ops and dispatch wait for the core that one takes, as NumPy does
    input        what is idle while Python of the pipeline keeps the lock, and what ops and dispatch wait for the cores that it
                 takes; but not a request for a batch that is ready, which is dispatch
    no core      what ops and dispatch wait for the cores that other processes take
    turn         idle time of devices that run one after another, while another one has its turn
    no work      idle time of a device that only copies, and, while another one computes, of one that computes little
    meeting      what all devices wait in the collectives of a step: it comes from meeting more than once
    calls        Python in steps of hosts without samples, where no frame was recorded either
    keys         dispatch before a graph in which Python makes keys of its collectives: they cause it

Where stacks were sampled, Python in steps and between them and waits for a value have the line of Python as `by`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.facts.core_waits import CoreWaits, Floats, core_waits
from traceview.analysis.facts.devices import concurrency, devices_in_use, statuses
from traceview.analysis.facts.dispatch import (
    Change,
    dispatch_changes,
    is_compute,
    is_side_work,
    key_changes,
    of_small_kernels,
)
from traceview.analysis.facts.input_supply import (
    LOCK_WAIT_RATIO,
    causes_prolonged,
    pipeline_python,
    supply_of,
)
from traceview.analysis.facts.python import HostPython
from traceview.analysis.facts.python_lock import LOCKED, lock_waits, threads_at_work
from traceview.analysis.facts.run import Run
from traceview.analysis.facts.selection import covered_ps
from traceview.base.ids import is_in, sorted_unique, unique_inverse
from traceview.base.intervals import (
    BoolArray,
    Int64Array,
    IntervalSet,
    difference,
    nesting,
    union,
)
from traceview.base.sweeping import SWEEPS
from traceview.base.timing import stage
from traceview.base.units import PS_PER_US
from traceview.ledger.build import (
    Segments,
    build_segments,
    cut_at,
    is_among,
    recast,
    recast_ends,
    recast_rows,
)
from traceview.ledger.columns import IDLE, By, Columns
from traceview.ledger.path import clocks_agree
from traceview.ledger.states import OF_CAUSE, State
from traceview.ledger.table import Ledger
from traceview.trace.collective_peers import CollectivePeers, peers_of
from traceview.trace.host.host_events import LONG_AGO_PS, last_begun
from traceview.trace.host.host_states import HostStates
from traceview.trace.host.python_lines import PythonLine
from traceview.trace.host.state_timeline import complement, intersection
from traceview.trace.model import NONE, Step, Trace
from traceview.xplane.host_names import HostNameKind
from traceview.xplane.planes import ActivityClass

MOST_EVALUATIONS_RATIO: Final = 0.5
"""Where more of the spans between markers hold a graph on input than this, the markers do not hold the training."""

_GRAPH: Final = (b"FunctionRun",)
_INPUT: Final = (HostNameKind.INPUT, HostNameKind.ASYNC_INPUT)


class BetweenMarkers(Struct, frozen=True, eq=False):
    """When the caller of a host evaluates between explicit markers, and between which markers it saves or restores.

    It evaluates where it calls a graph between two markers and asks for input there or in that graph. The evaluation ends
    with the last such call, or with what the devices compute after it; what follows, such as the beginning of an epoch,
    comes without an evaluation as well, unless Python is still at the line that evaluates. `around`: the whole time between
    two markers with an evaluation.
    """

    evaluates: IntervalSet
    around: IntervalSet
    saves: IntervalSet


def between_markers(trace: Trace, states: HostStates, host: int) -> BetweenMarkers:
    """What the caller of one host does between its markers; in a run without them nothing."""
    markers = states.markers
    start, end = markers.end[:-1], markers.start[1:]
    if not start.size:
        nothing = union(start, end)
        return BetweenMarkers(nothing, nothing, nothing)
    rows, columns = states.rows_of_thread(states.caller), trace.host_columns
    kind = states.kind_of(rows)
    graphs = rows[trace.names.matching(columns.name[rows], _GRAPH)]
    saves = _holds(start, end, columns.start_ps[rows[kind == HostNameKind.CHECKPOINT]])
    evaluates = _holds(start, end, columns.start_ps[graphs])
    if evaluates.any():
        of_model = states.rows_of_model
        asks = of_model[is_in(states.kind_of(of_model), _INPUT)]
        evaluates &= _holds(start, end, columns.start_ps[asks])
    if evaluates.mean() > MOST_EVALUATIONS_RATIO:
        evaluates[:] = False
    until = start
    if evaluates.any():
        ends = np.concatenate((columns.end_ps[graphs], _ends_of_compute(trace, host)))
        until = np.clip(_last_in(start, end, ends), start, end)
    return BetweenMarkers(
        union(start[evaluates], until[evaluates]),
        union(start[evaluates], end[evaluates]),
        union(start[saves], end[saves]),
    )


def _ends_of_compute(trace: Trace, host: int) -> Int64Array:
    """When each kernel of a host ended."""
    columns = trace.device_columns
    rows = trace.device_rows(host)
    is_compute = columns.class_[rows] == ActivityClass.COMPUTE
    result: Int64Array = columns.end_ps[rows][is_compute]
    return result


def _last_in(start: Int64Array, end: Int64Array, moments: Int64Array) -> Int64Array:
    """The last of some moments in each span; the end of the span where there is none."""
    ordered = np.append(np.sort(moments), end.max())
    index = np.searchsorted(ordered[:-1], end, side="right") - 1
    last = np.where(index >= 0, ordered[index], end)
    return np.where(last > start, last, end)


def _holds(start: Int64Array, end: Int64Array, moments: Int64Array) -> BoolArray:
    """Whether at least one of the moments lies in each span."""
    if not moments.size:
        return np.zeros(start.size, dtype=np.bool_)
    ordered = np.sort(moments)
    return np.searchsorted(ordered, end) > np.searchsorted(ordered, start)


_LOCKED: Final = frozenset(OF_CAUSE[cause] for cause in LOCKED)
_DISPATCH: Final = (State.HOST_OPS, State.LAUNCH, State.PYTHON, State.UNKNOWN)
"""States in which a thread of the model has work, or may have, and records no op."""

_NOT_ITS_TURN: Final = (
    State.DEVICE_WAIT,
    State.HOST_OPS,
    State.LAUNCH,
    State.PYTHON,
    State.BETWEEN,
    State.SYNC,
    State.DEPENDENCY,
    State.LATENCY,
    State.UNKNOWN,
)
"""What a device that runs by turns is idle for, as its host shows it, while another one computes."""

_TURN_BEGINS: Final = (
    State.DEVICE_WAIT,
    State.HOST_OPS,
    State.LAUNCH,
    State.PYTHON,
    State.SYNC,
    State.DEPENDENCY,
    State.LATENCY,
    State.UNKNOWN,
)
"""The same before the next kernel of the device whose turn it is, while the host prepares and launches it."""

_EVERY: Final = frozenset(State) - {State.NO_WORK}
_IDLE: Final = _EVERY - {State.COMPUTE, State.COMMUNICATION, State.EVALUATION}
_FEWEST_BESIDE: Final = 2
_WITH_LITTLE_TO_DO: Final = _IDLE - {State.DEVICE_WAIT}
"""What a device is idle for that computes little; in a collective it waits for a device, whatever it computes."""


def ledger_of(context: Run) -> Ledger:
    """The ledger of the devices in the windows of a context."""
    with stage("ledger"):
        trace, selection, idle = context.trace, context.selection, context.idle
        segments = build_segments(
            trace,
            selection.windows,
            selection.steps,
            idle.gaps,
            idle.states,
            context.collectives,
        )
        lines: list[str] = []
        changes: dict[int, Change] = {}
        for host in selection.windows:
            devices = [d for d in trace.devices_of_host[host] if d in segments.of_device]
            if devices:
                changes |= _of_host(context, host, devices, lines)
        segments.change(changes)
        segments.change(_by_turns(context, segments.steps))
        segments.change(_without_work(context, tuple(segments.of_device)))
        meets = _by_meeting(context, segments)
        for device in segments.of_device:
            steps = [*meets.get(device, ()), *_of_device(context, device, lines)]
            segments.change({device: partial(_one_after_another, steps=steps)})
        return segments.ledger(trace, lines)


def _of_host(
    context: Run, host: int, devices: Sequence[int], lines: list[str]
) -> dict[int, Change]:
    trace, states = context.trace, context.idle.states[host]
    between = between_markers(trace, states, host)
    changes: dict[int, Change] = {}
    for device in devices:
        steps: list[Change] = [
            *_of_side_work(context, host, device),
            partial(recast, spans=between.evaluates, among=_EVERY, state=State.EVALUATION),
            *_still_evaluating(context, host, between),
            partial(recast, spans=between.saves, among=(State.BETWEEN,), state=State.CHECKPOINT),
            *_dispatching(context, host, device),
            *dispatch_changes(context, host, device, lines),
            *_collecting(context, host),
            *_held_by_threads(context, host, device, lines),
            *_taken_by_pipeline(context, host, device),
        ]
        changes[device] = partial(_one_after_another, steps=steps)
    return changes


def _still_evaluating(context: Run, host: int, between: BetweenMarkers) -> list[Change]:
    """Python at a line that evaluates, after the last graph: it makes the result, and clears up."""
    python = context.idle.python.get(host)
    if python is None or not between.evaluates.start.size:
        return []
    markers = context.idle.states[host].markers
    at_lines = python.lines.at_lines_of(python.caller, between.evaluates, markers)
    spans = intersection(at_lines, between.around)
    return [partial(recast, spans=spans, among=(State.BETWEEN,), state=State.EVALUATION)]


def _one_after_another(columns: Columns, steps: Sequence[Change]) -> Columns:
    for change in steps:
        columns = change(columns)
    return columns


# Ops of replicas


def _of_side_work(context: Run, host: int, device: int) -> list[Change]:
    """What side work on a CPU device costs: the cores that it takes from the ops of the model."""
    trace, cores = context.trace, _cores(context.trace, host)
    if trace.device_list[device].kind != "replica" or not cores:
        return []
    columns, own = trace.device_columns, trace.device_columns.rows_of(device)
    side = np.flatnonzero(is_side_work(trace, device)) + own.start
    if not side.size:
        return []
    rows = trace.device_rows(host)
    begun, ended = np.sort(columns.start_ps[rows]), np.sort(columns.end_ps[rows])
    return [partial(_with_side_work, trace=trace, side=side, open_=(begun, ended), cores=cores)]


def _cores(trace: Trace, host: int) -> int | None:
    """The cores that the process of a host may use."""
    sidecar = trace.hosts[host].sidecar
    return sidecar.environment.cores.usable_count if sidecar else None


def _with_side_work(
    columns: Columns,
    trace: Trace,
    side: Int64Array,
    open_: tuple[Int64Array, Int64Array],
    cores: int,
) -> Columns:
    """The rows of a device, where side work has its share of what ops of the model have while it runs.

    The model could use the core that side work has. Of n ops that run on n cores or fewer each counts for an nth of the time,
    that of the side work last. `open_`: starts and ends of the ops of all devices of the host, sorted.
    """
    events = trace.device_columns
    start, end = events.start_ps[side], events.end_ps[side]
    rows = is_compute(columns) & ~is_in(columns.event, side)
    cut, number, _ = cut_at(columns, sorted_unique(np.concatenate((start, end))), rows)
    running = nesting(start, end).innermost(cut.start_ps)
    begun, ended = open_
    count = np.searchsorted(begun, cut.start_ps, "right") - np.searchsorted(
        ended, cut.start_ps, "right"
    )
    is_shared = rows[number] & (running != NONE) & (count >= cores)
    length = np.where(is_shared, cut.duration_ps // np.maximum(count, 1), 0)
    from_ps = cut.end_ps - length
    inside = (length > 0) & (length < cut.duration_ps)
    shared_rows, place, _ = cut_at(cut, from_ps[inside], inside)
    of_side = (length > 0)[place] & (shared_rows.start_ps >= from_ps[place])
    event = np.append(side, NONE)[running[place]].astype(np.int32)
    return replace(
        shared_rows,
        event=np.where(of_side, event, shared_rows.event),
        by=np.where(of_side, events.op[event], shared_rows.by),
    )


# Threads of Python beside the step


def _dispatching(context: Run, host: int, device: int) -> list[Change]:
    """Python of the framework in a step, and of the line that calls it, hands on its work."""
    is_replica = context.trace.device_list[device].kind == "replica"
    state = State.HOST_OPS if is_replica else State.LAUNCH
    python = context.idle.python.get(host)
    if python is None or not python.is_sampled:
        return []
    spans = python.lines.dispatching(python.caller, context.idle.states[host].calls)
    changes: list[Change] = [partial(recast, spans=spans, among=(State.PYTHON,), state=state)]
    late = _late_for(context, device, difference(python.lines.at_work(python.caller), spans))
    if late is not None:
        changes.append(partial(_with_late_dispatch, late=late))
    return changes


def _late_for(
    context: Run, device: int, of_script: IntervalSet
) -> tuple[IntervalSet, Int64Array] | None:
    """The gaps of a device, and how long its host had been in Python of the script when each began, while the device was at work.

    Without that Python the host would have handed on the next work so much earlier. `of_script`: when it is there.
    """
    host, gaps = context.trace.device_list[device].host, context.idle.gaps.get(device)
    if gaps is None:
        return None
    start, end = gaps.spans
    spoken, _ = context.idle.states[host].caller_spans
    since = last_begun(spoken, start - 1)[1]
    silent = (since < start) & (since > LONG_AGO_PS)
    since = np.where(silent, since, start)
    return union(start, end), of_script.within(since, start)


def _with_late_dispatch(columns: Columns, late: tuple[IntervalSet, Int64Array]) -> Columns:
    """The rows of a device, where dispatch in a gap is Python as long as the host was in that before the gap."""
    gaps, hidden = late
    rows = np.flatnonzero(
        is_among(columns, (State.HOST_OPS, State.LAUNCH)) & (columns.activity == IDLE)
    )
    gap = np.searchsorted(gaps.start, columns.start_ps[rows], "right") - 1
    rows, gap = rows[gap >= 0], gap[gap >= 0]
    if not rows.size:
        return columns
    duration = columns.duration_ps[rows]
    before = np.cumsum(duration) - duration
    first = np.searchsorted(gap, gap)
    length = np.zeros(columns.count, dtype=np.int64)
    length[rows] = np.clip(hidden[gap] - (before - before[first]), 0, duration)
    return recast_ends(columns, length, State.PYTHON)


def _collecting(context: Run, host: int) -> list[Change]:
    """Time in which Python could not go on, because it collected garbage."""
    python = context.idle.python.get(host)
    if python is None:
        return []
    among, state = (*_LOCKED, State.BETWEEN), State.GARBAGE_COLLECTION
    change = partial(recast, spans=python.lines.collections, among=among, state=state)
    return [partial(change, by=(By.NONE, NONE))]


def _held_by_threads(context: Run, host: int, device: int, lines: list[str]) -> list[Change]:
    """Waits for the lock that a thread of the script keeps, and for what one makes."""
    if host not in context.idle.python:
        return []
    changes: list[Change] = []
    window = context.selection.windows[host]
    waits = lock_waits(context.trace, context.idle, device)
    cores = core_waits(context, host)
    for thread in threads_at_work(context, host):
        waited_ps = covered_ps(intersection(waits, thread.kept), window)
        is_kept = waited_ps >= LOCK_WAIT_RATIO * window.length_ps
        line = thread.python.line
        if line not in lines:
            lines.append(line)
        by = (By.PYTHON, lines.index(line))
        for spans, among in (
            (thread.awaited, (State.PYTHON, State.BETWEEN, State.UNKNOWN)),
            *(((thread.kept, (*_LOCKED, State.BETWEEN)),) if is_kept else ()),
        ):
            change = partial(recast, spans=spans, among=among, state=State.PYTHON_THREAD, by=by)
            changes.append(change)
        if cores is not None and thread.number in cores.python:
            ran = cores.ran_by((cores.python[thread.number],))
            changes += _without_cores(context, host, device, cores, ran, State.PYTHON_THREAD, by)
    return changes


def _without_cores(
    context: Run,
    host: int,
    device: int,
    waits: CoreWaits,
    ran: Floats,
    state: State,
    by: tuple[By, int] = (By.NONE, NONE),
    *,
    with_dispatch: bool = True,
) -> list[Change]:
    """What a device loses because threads of the model wait for cores that others have, which `ran` in each interval.

    Of the ops of a replica, and of what threads do between the ops or launches of any device.
    """
    if not ran.any():
        return []
    lost = _LostTime(context, host, waits, ran)
    is_replica = context.trace.device_list[device].kind == "replica"
    changes: list[Change] = []
    if is_replica:
        changes.append(partial(lost.of_ops, state=state, by=by))
    if with_dispatch:
        changes.append(partial(lost.of_dispatch, state=state, by=by))
    return changes


class _LostTime(Struct, frozen=True):
    context: Run
    host: int
    waits: CoreWaits
    ran: Floats

    def of_ops(self, columns: Columns, state: State, by: tuple[By, int]) -> Columns:
        """Ops, each on the thread that runs it."""
        trace, rows = self.context.trace, is_compute(columns)
        launch = trace.device_columns.launch[columns.event]
        line = np.where(rows & (launch != NONE), trace.host_columns.line[launch], NONE)
        return recast_ends(columns, self._lost(columns, line, are_ops=True), state, by)

    def of_dispatch(self, columns: Columns, state: State, by: tuple[By, int]) -> Columns:
        """What comes between ops: on the thread that is known to cause it, else on the one that runs the steps."""
        rows = is_among(columns, _DISPATCH) & (columns.activity == IDLE)
        # A thread has the number of its first line.
        caller = self.context.idle.states[self.host].caller
        line = np.where(columns.by_kind == By.THREAD, columns.by, caller)
        line = np.where(rows, line, NONE)
        return recast_ends(columns, self._lost(columns, line, are_ops=False), state, by)

    def _lost(self, columns: Columns, line: Int64Array, *, are_ops: bool) -> Int64Array:
        lost = np.zeros(columns.count, dtype=np.int64)
        for each in sorted_unique(line[line != NONE].astype(np.int64)).tolist():
            place = self.waits.clocks.of_line(each)
            if place != NONE:
                rows = line == each
                bounds = columns.start_ps[rows], columns.end_ps[rows]
                taken = self.waits.lost_to(self.ran, place, union(*bounds), are_ops=are_ops)
                lost[rows] = taken.within(*bounds)
        return lost


_OF_A_LINE: Final = (State.PYTHON, State.BETWEEN, State.SYNC)
"""States that last as long as a line of Python on the thread that runs the steps."""

_LEAST_OF_A_LINE_PS: Final = 100 * PS_PER_US
"""Samples come every millisecond or so, and say little of less."""

_MOSTLY_RATIO: Final = 0.5
"""A line has so much of the sampled time of a gap. A choice of ours."""

_LONG_DISPATCH_PS: Final = 1000 * PS_PER_US
"""A thread that is in one call for so long, before it has handed on any work, converts or copies what it was given."""


def _of_device(context: Run, device: int, lines: list[str]) -> list[Change]:
    """What a device alone shows: lines of Python, silence, kernels too short for their launches, and keys.

    A long row that is as long as a line of Python takes has the line that ran in it, where samples show it. What nothing but
    silence shows is no Python: it is time between recorded calls.
    """
    host = context.trace.device_list[device].host
    python, states = context.idle.python.get(host), context.idle.states[host]
    changes: list[Change] = []
    shown = states.frames
    if python is not None:
        # A thread has the number of its first line.
        changes.append(partial(_with_lines, python=python, caller=states.caller, lines=lines))
        if python.is_sampled:
            shown = python.lines.sampled
    among, state = (State.PYTHON,), State.BETWEEN_CALLS
    changes.append(partial(recast, spans=complement(shown), among=among, state=state))
    return [*changes, *of_small_kernels(context, host, device), *key_changes(context, host)]


def _with_lines(columns: Columns, python: HostPython, caller: int, lines: list[str]) -> Columns:
    asked = is_among(columns, _OF_A_LINE) & (columns.duration_ps >= _LEAST_OF_A_LINE_PS)
    # What follows a wait has the line of the wait.
    asked &= (columns.state != State.SYNC) | (columns.by_kind != By.PYTHON)
    dispatches = (columns.state == State.HOST_OPS) & (columns.by_kind == By.THREAD)
    dispatches &= (columns.by == caller) & (columns.duration_ps >= _LONG_DISPATCH_PS)
    rows = np.flatnonzero((asked | dispatches) & (columns.activity == IDLE))
    start = columns.start_ps[rows]
    spans = start, start + columns.duration_ps[rows], np.arange(rows.size)
    known = python.lines.in_each(python.caller, *spans, rows.size)
    # A gap is cut where Python collects garbage, and samples come where it gives the lock back.
    if is_among(columns, (State.GARBAGE_COLLECTION,)).any():
        silent = [place for place, line in enumerate(known) if line is None]
        for place, line in zip(silent, _lines_of_gaps(columns, python, rows[silent]), strict=True):
            known[place] = line
    number = {line: place for place, line in enumerate(lines)}
    by_kind, by = columns.by_kind.copy(), columns.by.copy()
    for row, line in zip(rows.tolist(), known, strict=True):
        if line is not None:
            by_kind[row], by[row] = By.PYTHON, number.setdefault(str(line), len(number))
    lines[:] = number
    return replace(columns, by_kind=by_kind, by=by)


def _lines_of_gaps(
    columns: Columns, python: HostPython, rows: Int64Array
) -> list[PythonLine | None]:
    """The line of Python in most of the idle time around each of some rows, where Python collected in it, and one is."""
    is_idle = columns.activity == IDLE
    goes_on = np.append(False, is_idle[:-1] & (columns.end_ps[:-1] == columns.start_ps[1:]))
    first = np.flatnonzero(is_idle & ~goes_on[: is_idle.size])
    last = np.flatnonzero(is_idle & ~np.append(goes_on[1:] & is_idle[1:], False))
    collected = np.flatnonzero(is_among(columns, (State.GARBAGE_COLLECTION,)) & is_idle)
    gaps, place = unique_inverse(np.searchsorted(first, rows, "right") - 1)
    start, end = columns.start_ps[first[gaps]], columns.end_ps[last[gaps]]
    found = python.lines.in_each(python.caller, start, end, np.arange(gaps.size), gaps.size)
    is_cut = is_in(gaps, sorted_unique(np.searchsorted(first, collected, "right") - 1)).tolist()
    mostly = [
        line if line and is_one and line.ratio >= _MOSTLY_RATIO else None
        for line, is_one in zip(found, is_cut, strict=True)
    ]
    return [mostly[each] for each in place.tolist()]


# The input pipeline


def _taken_by_pipeline(context: Run, host: int, device: int) -> list[Change]:
    """Time that the pipeline takes without a request for a batch, and requests that do not wait for one."""
    supply = supply_of(context, host)
    changes: list[Change] = []
    if supply is not None and not supply.is_short:
        changes.append(_as_dispatch)
    locked = frozenset(OF_CAUSE[cause] for cause in causes_prolonged(context, host, device))
    if locked:
        python = pipeline_python(context.trace, context.idle, host)
        changes.append(partial(recast, spans=python, among=locked, state=State.INPUT))
    cores = core_waits(context, host)
    if cores is not None:
        ran = cores.ran_by(cores.pipeline)
        changes += _without_cores(
            context, host, device, cores, ran, State.INPUT, with_dispatch=not locked
        )
        changes += _without_cores(
            context, host, device, cores, cores.ran_by_processes, State.NO_CORE
        )
    return changes


def _as_dispatch(columns: Columns) -> Columns:
    """Requests for a batch that is ready are dispatch."""
    return recast_rows(columns, is_among(columns, (State.INPUT,)), State.HOST_OPS)


# Devices beside each other


def _by_turns(context: Run, steps_of_hosts: Sequence[Step]) -> dict[int, Change]:
    """Devices that run one after another: each waits for its turn while another one has its own."""
    overlap = context.once(concurrency)
    if overlap is None or not overlap.is_serial:
        return {}
    activities = context.activities
    in_use = devices_in_use(context.trace, context.selection, activities)
    computing = {device: activities[device].compute for device in in_use}
    turns = _turns(computing, sorted(step.start_ps for step in steps_of_hosts))
    changes: dict[int, Change] = {}
    for device in in_use:
        steps: list[Change] = [
            partial(recast, spans=spans, among=among, state=State.TURN, by=(By.DEVICE, other))
            for other in in_use
            if other != device
            for spans, among in (
                (computing[other], _NOT_ITS_TURN),
                (turns[other], _TURN_BEGINS),
            )
        ]
        changes[device] = partial(_one_after_another, steps=steps)
    return changes


def _turns(
    computing: Mapping[int, IntervalSet], step_starts: Sequence[int]
) -> dict[int, IntervalSet]:
    """By device when it has its turn: while it computes, and before that from when the device before it had done.

    What comes before the first kernel of a step is nobody's turn; without steps, whatever comes before a kernel.
    """
    start = np.concatenate([spans.start for spans in computing.values()])
    end = np.concatenate([spans.end for spans in computing.values()])
    sizes = [spans.start.size for spans in computing.values()]
    whose = np.repeat(np.array(list(computing), dtype=np.int64), sizes)
    order = np.argsort(start, kind="stable")
    start, end, whose = start[order], end[order], whose[order]
    before = np.append(start[:1], np.maximum.accumulate(end)[:-1])
    bounds = np.array(step_starts, dtype=np.int64)
    step = np.searchsorted(bounds, start, "right")
    is_in_step = (step == np.searchsorted(bounds, before)) & (step > 0)
    begin = np.where(is_in_step, np.minimum(start, before), start)
    return {device: union(begin[whose == device], end[whose == device]) for device in computing}


def _without_work(context: Run, devices: Sequence[int]) -> dict[int, Change]:
    """Devices that only copy, or compute far less than others, have no work while those compute.

    Where no other device has the same clock it is not known when, and all that they idle counts.
    """
    trace = context.trace
    status, others = statuses(trace, context.activities), _OthersAtWork(context, devices)
    changes: dict[int, Change] = {}
    for device in devices:
        window = context.selection.window_of_device(trace, device)
        if window is None:
            continue
        whole = union(np.array([window.start_ps]), np.array([window.end_ps]))
        if status[device] == "copy_only":
            changes[device] = partial(recast, spans=whole, among=_IDLE, state=State.NO_WORK)
        elif status[device] == "marginal":
            at_work = others.of(device)
            changes[device] = partial(
                recast,
                spans=whole if at_work is None else at_work,
                among=_WITH_LITTLE_TO_DO,
                state=State.NO_WORK,
            )
    return changes


def _by_meeting(context: Run, segments: Segments) -> dict[int, list[Change]]:
    """What all devices wait in collectives of one step, they wait because they meet in more than one: it is communication.

    If they met once, the slowest device of the step would not wait.
    """
    every = np.array([step.number for step in segments.steps], dtype=np.int64)
    numbers, number = unique_inverse(every)
    shape = len(context.trace.device_list), numbers.size
    takes_part, waited_ps = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.int64)
    # A device that the ledger does not have is the last of them all in each of its collectives.
    is_known = np.zeros(shape[0] + 1, dtype=np.bool_)
    is_known[list(segments.of_device)] = True
    waiting: dict[int, tuple[Int64Array, Int64Array]] = {}
    for device, columns in segments.of_device.items():
        rows = np.flatnonzero(columns.activity == ActivityClass.COLLECTIVE)
        rows = rows[columns.step[rows] != NONE]
        takes_part[device, number[columns.step[rows]]] = True
        rows = rows[
            (columns.state[rows] == State.DEVICE_WAIT) & (columns.by_kind[rows] == By.DEVICE)
        ]
        rows = rows[is_known[columns.by[rows]]]
        if rows.size:
            waiting[device] = rows, number[columns.step[rows]]
    if not waiting:
        return {}
    busy, own_ps = _without_a_core(context, segments), dict[int, Int64Array]()
    for device, (rows, place) in waiting.items():
        columns, host = segments.of_device[device], context.trace.device_list[device].host
        own_ps[device] = columns.duration_ps[rows]
        if host in busy:
            start = columns.start_ps[rows]
            own_ps[device] = own_ps[device] - busy[host].within(start, start + own_ps[device])
        waited_ps[device] = SWEEPS.totals(place, own_ps[device], numbers.size)
    least_ps = np.where(takes_part, waited_ps, np.iinfo(np.int64).max).min(axis=0)
    least_ps[takes_part.sum(axis=0) < _FEWEST_BESIDE] = 0
    share = least_ps / np.maximum(waited_ps, 1)
    changes: dict[int, list[Change]] = {}
    for device, (rows, place) in waiting.items():
        length = np.zeros(segments.of_device[device].count, dtype=np.int64)
        length[rows] = (own_ps[device] * share[device, place]).astype(np.int64)
        changes[device] = [partial(_met, length=length, trace=context.trace)]
    return changes


def _met(columns: Columns, length: Int64Array, trace: Trace) -> Columns:
    changed = recast_ends(columns, length, State.COMMUNICATION, (By.OP, NONE))
    rows = (changed.by_kind == By.OP) & (changed.by == NONE)
    if not rows.any():
        return columns
    by = changed.by.copy()
    by[rows] = trace.device_columns.op[changed.event[rows]]
    return replace(changed, by=by)


def _without_a_core(context: Run, segments: Segments) -> dict[int, IntervalSet]:
    """By host when another replica would have no core to go on: as many compute as there are cores."""
    trace, found = context.trace, dict[int, IntervalSet]()
    for host in context.selection.windows:
        cores = _cores(trace, host)
        own = [
            segments.of_device[device]
            for device in trace.devices_of_host[host]
            if device in segments.of_device and trace.device_list[device].kind == "replica"
        ]
        if own and cores:
            computes = [columns.activity == ActivityClass.COMPUTE for columns in own]
            moments = np.concatenate(
                [of.start_ps[rows] for of, rows in zip(own, computes, strict=True)]
                + [of.end_ps[rows] for of, rows in zip(own, computes, strict=True)]
            )
            order = np.argsort(moments, kind="stable")
            running = np.cumsum(np.repeat((1, -1), moments.size // 2)[order])
            place = np.flatnonzero(running[:-1] >= cores)
            found[host] = union(moments[order][place], moments[order][place + 1])
    return found


class _OthersAtWork:
    """When other devices compute whose clock agrees with that of a device, without comparing every two devices."""

    def __init__(self, context: Run, devices: Sequence[int]) -> None:
        self._trace = context.trace
        self._activities = context.activities
        self._devices = devices
        self._peers: dict[int, CollectivePeers | None] = {}

    def of(self, device: int) -> IntervalSet | None:
        """When others compute; None without others."""
        host = self._trace.device_list[device].host
        clock = self._trace.hosts[host].clock
        # With an aligned clock all others agree.
        key = NONE if clock is not None and clock.residual_ps is not None else host
        if key not in self._peers:
            self._peers[key] = self._beside(device)
        peers = self._peers[key]
        return None if peers is None else peers.of(device)

    def _beside(self, device: int) -> CollectivePeers | None:
        trace = self._trace
        agreeing = [d for d in self._devices if clocks_agree(trace, (device, d))]
        if len(agreeing) < _FEWEST_BESIDE:
            return None
        spans = [self._activities[d].compute for d in agreeing]
        of = np.repeat(agreeing, [each.start.size for each in spans])
        start = np.concatenate([each.start for each in spans])
        return peers_of(of, start, np.concatenate([each.end for each in spans]))
