"""Makes the ledger of a context: the states of the devices and hosts, changed where more shows who caused them.

The changes, and their order, are those of docs/method.md, "Ledger". Where stacks were sampled, Python in steps and between them
and waits for a value have the line of Python as `by`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from msgspec.structs import replace

from traceview.analysis.facts.beside import (
    EVERY,
    lengths_of_meeting,
    recast_by_turns,
    recast_crowded,
    recast_meeting,
    recast_unfinished,
    recast_without_work,
    while_cores_are_full,
)
from traceview.analysis.facts.devices import concurrency
from traceview.analysis.facts.dispatch import (
    IN_A_GRAPH,
    NOBODY,
    Causer,
    Draft,
    is_compute,
    recast_dispatch,
    recast_in_flight,
    recast_keys,
    recast_own_dispatch,
    recast_small_kernels,
)
from traceview.analysis.facts.functions import functions_called
from traceview.analysis.facts.input_supply import (
    LOCK_WAIT_RATIO,
    input_supplies,
    keeps_lock,
    pipeline_python,
    supply_of,
)
from traceview.analysis.facts.python import COMPILING, HostPython
from traceview.analysis.facts.run import Run
from traceview.analysis.facts.selection import covered_ps
from traceview.analysis.facts.threads import (
    LOCKED,
    CoreWaits,
    Floats,
    core_waits,
    lock_waits,
    off_core_waits,
    threads_at_work,
)
from traceview.analysis.rules.rule import is_of_jax
from traceview.base.ids import is_in, sorted_unique, unique_ids, unique_inverse
from traceview.base.intervals import (
    NEVER,
    BoolArray,
    Int64Array,
    IntervalSet,
    difference,
    nesting,
    places,
    union,
)
from traceview.base.sweeping import made_of_each
from traceview.base.text import lazy_pattern
from traceview.base.timing import stage
from traceview.base.units import PS_PER_MS, PS_PER_US
from traceview.ledger.build import (
    build_segments,
    cut_at,
    cut_at_spans,
    is_among,
    is_side_work,
    recast_rows,
    with_taken,
)
from traceview.ledger.columns import IDLE, By, Columns
from traceview.ledger.states import State
from traceview.ledger.table import Ledger
from traceview.trace.columns import NONE
from traceview.trace.device.op_names import side_work_of
from traceview.trace.host.host_states import HostStates
from traceview.trace.host.state_timeline import complement, intersection, joined_spans
from traceview.trace.model import Trace
from traceview.xplane.planes import ActivityClass, HostNameKind

MOST_EVALUATIONS_RATIO: Final = 0.5
"""Where more of the spans between markers hold a graph on input than this, the markers do not hold the training."""

_GRAPH: Final = (b"FunctionRun",)
_INPUT: Final = (HostNameKind.INPUT, HostNameKind.ASYNC_INPUT)


def between_markers(trace: Trace, states: HostStates, host: int) -> tuple[IntervalSet, ...]:
    """When the caller of one host evaluates between explicit markers, between which of them it saves or restores, and from
    when it has restored to the next marker.

    It evaluates where it calls a graph between two markers and asks for input there or in that graph, and where it calls a
    function that repeats what the one that trains computes. The evaluation begins once the devices have done what
    trains, and ends with the last such call, its iterator, or what the devices compute after it; what follows, such as the
    beginning of an epoch, comes without an evaluation as well.
    """
    markers = states.markers
    start, end = markers.end[:-1], markers.start[1:]
    if not start.size:
        return NEVER, NEVER, NEVER
    rows, columns = states.rows_of_thread(states.caller), trace.host_columns
    kind = states.kind_of(rows)
    graphs = rows[trace.names.matching(columns.name[rows], _GRAPH)]
    saved = rows[kind == HostNameKind.CHECKPOINT]
    saves = _holds(start, end, columns.start_ps[saved])
    restored = columns.start_ps[saved[trace.names.where(columns.name[saved], is_restore)]]
    restored = restored[restored < markers.start[-1]]
    following = markers.start[places(markers.start, restored)]
    evaluates = _holds(start, end, columns.start_ps[graphs])
    if evaluates.any():
        of_model = states.rows_of_model
        asks = of_model[is_in(states.kind_of(of_model), _INPUT)]
        evaluates &= _holds(start, end, columns.start_ps[asks])
    evaluates |= _holds(start, end, _repeated(trace, host, union(start, end)))
    if evaluates.mean() > MOST_EVALUATIONS_RATIO:
        evaluates[:] = False
    begin, until = start[evaluates], end[evaluates]
    if begin.size:
        device_rows, events = trace.device_rows(host), trace.device_columns
        kernels = device_rows[events.class_[device_rows] == ActivityClass.COMPUTE]
        ended = np.append(graphs, states.ends_of_input(rows))
        ends = np.sort(np.concatenate((columns.end_ps[ended], events.end_ps[kernels])))
        last = ends[np.searchsorted(ends, until, side="right") - 1]
        until = np.where((last > begin) & (last <= until), last, until)
        begin = np.clip(_trained_until(trace, kernels, until), begin, until)
    return union(begin, until), union(start[saves], end[saves]), union(restored, following)


def _trained_until(trace: Trace, rows: Int64Array, moments: Int64Array) -> Int64Array:
    """When, among some device events that began before each moment, the last of a function that trains ended; 0 without one."""
    events, functions = trace.device_columns, trace.once(functions_called)
    # `NONE` is the last.
    rows = rows[np.append(functions.trains, False)[functions.of_event[rows]]]
    rows = rows[np.argsort(events.start_ps[rows], kind="stable")]
    ends = np.maximum.accumulate(np.append(0, events.end_ps[rows]))
    return ends[np.searchsorted(events.start_ps[rows], moments)]


def _repeated(trace: Trace, host: int, spans: IntervalSet) -> Int64Array:
    """When, in some spans, a host launched ops of functions that repeat what the one that trains computes, int64 picoseconds."""
    events, rows = trace.device_columns, trace.device_rows(host)
    rows = rows[(events.class_[rows] == ActivityClass.COMPUTE) & (events.launch[rows] != NONE)]
    launched: Int64Array = trace.host_columns.start_ps[events.launch[rows]]
    inside = spans.within(launched, launched + 1) > 0
    if not inside.any():
        return launched[inside]
    functions = trace.once(functions_called)
    # `NONE` is the last.
    repeats = np.append(functions.repeats, False)[functions.of_event[rows]]
    kept: Int64Array = launched[inside & repeats]
    return kept


def is_restore(name: bytes) -> bool:
    """Whether an event of a checkpoint restores variables."""
    return b"Restore" in name


def _holds(start: Int64Array, end: Int64Array, moments: Int64Array) -> BoolArray:
    """Whether at least one of the moments lies in each span."""
    ordered = np.sort(moments)
    return np.searchsorted(ordered, end) > np.searchsorted(ordered, start)


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
        threads = trace.threads_beside
        # Neither needs the other.
        made_of_each(context.once, (concurrency, input_supplies), threads)
        lines: dict[str, int] = {}
        drafts = [Draft(context, segments, device, lines) for device in segments.of_device]
        between = {
            host: between_markers(trace, states, host) for host, states in idle.states.items()
        }
        has_callbacks = trace.names.every(_is_callback, np.bool_).any()
        callbacks = {host: _callbacks(trace, host) if has_callbacks else [] for host in idle.states}
        for draft in drafts:
            recast_own_dispatch(draft)
            _share_with_side_work(draft)
            evaluates, saves, restored = between[draft.host]
            draft.recast(evaluates, EVERY, State.EVALUATION)
            draft.recast(_without_others(draft, saves), (State.BETWEEN,), State.CHECKPOINT)
            draft.recast(restored, (State.COMPILE,), State.CHECKPOINT)
            draft.recast(graphs_prepared(trace, draft.states), _CALLED, State.COMPILE, NOBODY)
            _recast_python(draft)
            recast_dispatch(draft)
            # While a program of XLA calls Python its device waits for that, whatever Python calls in turn.
            for name, spans in callbacks[draft.host] if draft.kind != "replica" else ():
                draft.recast(spans, _CALLED, State.HOST_OPS, (By.OP, name))
            draft.recast(through_host(trace, draft.host), _CALLED, State.H2D, NOBODY)
            if draft.python is not None:
                # Meanwhile Python could not go on.
                spans, among = draft.python.lines.collections, (*LOCKED, State.BETWEEN)
                draft.recast(spans, among, State.GARBAGE_COLLECTION, NOBODY)
            _recast_held_by_threads(draft)
            _recast_taken_by_pipeline(draft)
            recast_in_flight(draft)
        recast_by_turns(context, segments, drafts)
        recast_unfinished(context, drafts)
        recast_without_work(context, drafts)
        full = while_cores_are_full(context, segments)
        recast_crowded(drafts, full)
        met = lengths_of_meeting(context, segments, full)
        meeting = [draft for draft in drafts if draft.device in met]
        made_of_each(lambda draft: recast_meeting(draft, met[draft.device]), meeting, threads)
        for draft in drafts:
            _enter_lines(draft, _recast_lines(draft))
            _recast_beside_own_python(draft)
            recast_small_kernels(draft)
            recast_keys(draft)
        ahead = (supply.ahead_ratio for supply in context.once(input_supplies).values())
        return segments.ledger(trace, tuple(lines), max(ahead, default=0.0))


def _without_others(draft: Draft, saves: IntervalSet) -> IntervalSet:
    """The time between markers between which a host saves, without what the loop then calls for anything else, as samples show it."""
    python = draft.python
    if python is None or not saves.start.size:
        return saves
    columns, rows = draft.trace.host_columns, draft.states.rows_of_thread(draft.states.caller)
    saving = rows[draft.states.kind_of(rows) == HostNameKind.CHECKPOINT]
    events = union(columns.start_ps[saving], columns.end_ps[saving])
    return difference(saves, python.lines.beside(python.caller, saves, events))


# Ops of replicas


def _share_with_side_work(draft: Draft) -> None:
    """Give side work on a CPU device its share of what ops of the model have while it runs.

    The model could use the core that side work has. Of n ops that run on n cores or fewer each counts for an nth of the time,
    that of the side work last.
    """
    trace, events = draft.trace, draft.trace.device_columns
    cores = trace.hosts[draft.host].usable_cores
    if draft.kind != "replica" or not cores:
        return
    side = np.flatnonzero(is_side_work(trace, draft.device)) + events.rows_of(draft.device).start
    if not side.size:
        return
    columns, of_host = draft.columns, trace.device_rows(draft.host)
    start, end = events.start_ps[side], events.end_ps[side]
    rows = is_compute(columns) & ~is_in(columns.event, side)
    cut, number, _ = cut_at(columns, sorted_unique(np.concatenate((start, end))), rows)
    running = nesting(start, end).innermost(cut.start_ps)
    begun, ended = (
        np.searchsorted(np.sort(moments[of_host]), cut.start_ps, "right")
        for moments in (events.start_ps, events.end_ps)
    )
    count = begun - ended
    is_shared = rows[number] & (running != NONE) & (count >= cores)
    length = np.where(is_shared, cut.duration_ps // np.maximum(count, 1), 0)
    from_ps = cut.end_ps - length
    inside = (length > 0) & (length < cut.duration_ps)
    shared_rows, place, _ = cut_at(cut, from_ps[inside], inside)
    of_side = (length > 0)[place] & (shared_rows.start_ps >= from_ps[place])
    event = np.append(side, NONE)[running[place]].astype(np.int32)
    draft.columns = replace(
        shared_rows,
        event=np.where(of_side, event, shared_rows.event),
        by=np.where(of_side, events.op[event], shared_rows.by),
    )


# Threads of Python beside the step


def _recast_python(draft: Draft) -> None:
    """Python of the framework in a step, and of the line that calls it, traces and compiles, or hands on its work."""
    python = draft.python
    if python is None or not python.is_sampled:
        return
    spoken, _ = draft.states.caller_spans
    lines, caller, silences = python.lines, python.caller, complement(spoken)
    compiles = lines.inside(caller, COMPILING, silences)
    draft.recast(compiles, (State.PYTHON,), State.COMPILE)
    spans = lines.dispatching(
        caller, draft.states.calls, silences, in_calls_only=is_of_jax(draft.trace)
    )
    state = State.HOST_OPS if draft.kind == "replica" else State.LAUNCH
    draft.recast(spans, (State.PYTHON,), state)
    if is_of_jax(draft.trace):
        called_back = lines.called_back(caller, draft.states.calls)
        draft.recast(called_back, (State.HOST_OPS, State.LAUNCH), State.PYTHON)


def _callbacks(trace: Trace, host: int) -> list[tuple[int, IntervalSet]]:
    """The instructions with which programs of XLA called Python on a host, by name, and when."""
    events, calls = trace.host_columns, trace.named_on(host, _is_callback)
    return [
        (name, union(events.start_ps[rows], events.end_ps[rows]))
        for name in unique_ids(events.name[calls]).tolist()
        for rows in (calls[events.name[calls] == name],)
    ]


def through_host(trace: Trace, host: int) -> IntervalSet:
    """When JAX gives arrays that devices have another sharding by way of the host: the call that puts them there reads them first."""
    events = trace.host_columns
    puts, reads = (trace.named_on(host, name.__eq__) for name in (_PUTS, _READS))
    is_through = np.zeros(puts.size, dtype=np.bool_)
    for line in unique_ids(events.line[puts]).tolist():
        own = events.line[puts] == line
        start, end = events.start_ps[puts[own]], events.end_ps[puts[own]]
        is_through[own] = _holds(start, end, events.start_ps[reads[events.line[reads] == line]])
    return union(events.start_ps[puts[is_through]], events.end_ps[puts[is_through]])


_PUTS, _READS = b"shard_args", b"np.asarray(jax.Array)"
"""Names of the calls (JAX 0.10)."""


_LEAST_PREPARED_PS: Final = PS_PER_MS
"""From which on a call of a graph prepares it before it runs: others take up to 0.1 ms (TensorFlow 2.21); a choice of ours."""


def graphs_prepared(trace: Trace, states: HostStates) -> IntervalSet:
    """When the caller of a host prepares a graph: in its call, before that runs anything, and beside what it records there."""
    events, rows = trace.host_columns, states.rows_of_thread(states.caller)
    calls = rows[trace.names.where(events.name[rows], _CALL_OF_GRAPH.match)]
    begun = np.sort(events.start_ps[rows[trace.names.matching(events.name[rows], _RUNS)]])
    start = events.start_ps[calls]
    end = np.append(begun, start.max(initial=0))[np.searchsorted(begun, start)]
    long = (end <= events.end_ps[calls]) & (end - start >= _LEAST_PREPARED_PS)
    before = union(start[long], end[long])
    # As for each of its arguments.
    inside = rows[before.within(events.start_ps[rows] - 1, events.start_ps[rows]) > 0]
    silent = difference(before, union(events.start_ps[inside], events.end_ps[inside]))
    long = silent.end - silent.start >= _LEAST_PREPARED_PS
    return union(silent.start[long], silent.end[long])


_RUNS: Final = (b"EagerKernelExecute",)
_CALL_OF_GRAPH: Final = lazy_pattern(rb"EagerLocalExecute: __")
"""How TensorFlow 2.21 records the call of a `tf.function`, also of its backward half."""


def _is_callback(name: bytes) -> bool:
    """Whether an event is an instruction of XLA that calls Python."""
    return b":" not in name and side_work_of(name) is not None


_CALLED: Final = (State.HOST_OPS, State.LAUNCH, State.SYNC, State.H2D, State.PYTHON, State.UNKNOWN)
"""What Python does in a call, and what a device is idle for meanwhile."""


def _recast_held_by_threads(draft: Draft) -> None:
    """Waits for the lock that a thread of the script keeps, and for what one makes."""
    if draft.python is None:
        return
    context, state = draft.context, State.PYTHON_THREAD
    least_ps = LOCK_WAIT_RATIO * draft.window.length_ps
    off_core = off_core_waits(context, draft.device, draft.python)
    waits = joined_spans((lock_waits(context, draft.device), off_core))
    cores = core_waits(context, draft.host)
    for thread in threads_at_work(context, draft.host):
        by = draft.by_line(thread.python.line)
        draft.recast(thread.awaited, (State.PYTHON, State.BETWEEN, State.UNKNOWN), state, by)
        draft.recast(thread.given, IN_A_GRAPH, state, by)
        if covered_ps(intersection(waits, thread.kept), draft.window) >= least_ps:
            waiting = draft.idle_in((*LOCKED, State.BETWEEN))
            draft.columns, rows = cut_at_spans(draft.columns, thread.kept, waiting)
            _recast_beside(draft, draft.python, rows, state, by)
        if thread.guests.size:
            guests = is_compute(draft.columns) & is_in(draft.columns.event, thread.guests)
            _recast_beside(draft, draft.python, np.flatnonzero(guests), state, by)
        if cores is not None and thread.number in cores.python:
            owed = cores.owed_by(cores.ran_by((cores.python[thread.number],)))
            _recast_without_cores(draft, cores, owed, state, by)


def _recast_beside(
    draft: Draft, python: HostPython, rows: Int64Array, state: State, by: Causer = NOBODY
) -> None:
    """Time in which another thread keeps the lock, or the device, without what the thread of the steps would need anyhow."""
    start, end = draft.columns.start_ps[rows], draft.columns.end_ps[rows]
    length = np.zeros(draft.columns.count, dtype=np.int64)
    length[rows] = end - start - python.lines.own_work(python.caller, start, end)
    draft.recast_ends(length, state, by)


def _recast_without_cores(
    draft: Draft,
    waits: CoreWaits,
    owed: Floats,
    state: State,
    by: Causer = NOBODY,
    *,
    with_dispatch: bool = True,
) -> None:
    """What a device loses because threads of the model wait for cores: the part in each interval that somebody owes.

    Of the ops and collectives of a replica, and of what comes between the ops or launches of any device.
    """
    if not owed.any():
        return
    columns = draft.columns
    rows = draft.idle_in(LOCKED) if with_dispatch else np.zeros(columns.count, dtype=np.bool_)
    if draft.kind == "replica":
        # On threads of the pipeline runs what a loop over a data set calls.
        launch = draft.trace.device_columns.launch[columns.event]
        is_launched = is_compute(columns) | (columns.state == State.COMMUNICATION)
        is_launched &= launch != NONE
        rows |= is_launched & draft.trace.runs_model[draft.trace.host_columns.line[launch]]
    lost = np.zeros(columns.count, dtype=np.int64)
    lost[rows] = waits.lost_in(owed, columns.start_ps[rows], columns.end_ps[rows])
    draft.recast_ends(lost, state, by)


_PURPOSES: Final = (State.EVALUATION, State.CHECKPOINT)
"""What a line calls the framework for: what it traces, converts and reads meanwhile belongs to that."""

_MAIN: Final = (State.SYNC, State.PYTHON, State.BETWEEN)
"""Other states that say what a line does; dispatch is what every line that calls the framework costs."""

_AT_A_LINE: Final = (
    *(*_PURPOSES, *_MAIN, State.PYTHON_THREAD, State.COMPILE),
    *(State.INPUT, State.HOST_OPS, State.LAUNCH, State.LATENCY, State.UNKNOWN, State.H2D),
)
"""What a device may be idle for because of the line that the thread of the steps is at."""

_MOSTLY_RATIO: Final = 1 / 2
_MOSTLY_BETWEEN_RATIO: Final = 2 / 3
"""Of the idle time at a line: its main state has so much of it; time between steps may border on the line that calls the step.
Choices of ours."""

_PURPOSE_RATIO: Final = 1 / 4
"""The same of what a line outside of the steps calls the framework for. A choice of ours."""

_LEAST_AT_A_LINE: Final = 0.05
"""Of the window: what a line mostly does in less is no finding. A choice of ours."""


def _recast_lines(draft: Draft) -> dict[str, Causer]:
    """What a device is idle for while the thread of the steps is at one line of the script has one cause: what it mostly is there.

    Not where that is dispatch, which every line that calls the framework costs. Returns the lines that wait for other threads,
    with the line of most of that.
    """
    python, awaited = draft.python, dict[str, Causer]()
    if python is None or not python.is_sampled:
        return awaited
    least_ps = _LEAST_AT_A_LINE * draft.window.length_ps
    for line, spans in python.lines.user_lines(python.caller, draft.states.markers).items():
        if covered_ps(spans, draft.window) < least_ps:
            continue
        at_line = draft.idle_in(_AT_A_LINE) & ~_follows_wait(draft.columns)
        at_line |= is_among(draft.columns, _PURPOSES)
        cut, rows = cut_at_spans(draft.columns, spans, at_line)
        of_state = np.bincount(cut.state[rows], cut.duration_ps[rows], len(State))
        in_steps = intersection(spans, draft.states.markers)
        main = _main_state(of_state, least_ps, is_outside=not in_steps.start.size)
        if main is None:
            continue
        by = draft.by_line(line)
        if main == State.PYTHON_THREAD:
            known = python.lines.at(python.caller, spans.start, spans.end)
            if known is None or known.state != "waits":
                # What else it does there is its own.
                continue
            by = awaited[line] = _most_causes(cut, rows[cut.state[rows] == main])
        draft.columns = recast_rows(cut, rows[cut.activity[rows] == IDLE], main, by)
    return awaited


def _main_state(of_state: Int64Array, least_ps: float, *, is_outside: bool) -> State | None:
    """What a line mostly is, by the time in each state; of one outside of the steps what it calls the framework for."""
    whole_ps = of_state.sum()
    purpose = max(_PURPOSES, key=of_state.__getitem__)
    if is_outside and whole_ps >= least_ps and of_state[purpose] >= _PURPOSE_RATIO * whole_ps:
        return purpose
    main = State(int(of_state.argmax()))
    is_between = main == State.BETWEEN and not is_outside
    ratio = _MOSTLY_BETWEEN_RATIO if is_between else _MOSTLY_RATIO
    is_clear = of_state[main] >= max(ratio * whole_ps, least_ps)
    return main if main in (*_MAIN, State.PYTHON_THREAD) and is_clear else None


def _most_causes(columns: Columns, rows: Int64Array) -> Causer:
    """Who caused most of the time of these rows."""
    kind, by = columns.by_kind[rows], columns.by[rows]
    causers, number = np.unique(np.stack((kind, by), 1), axis=0, return_inverse=True)
    of_causer = np.bincount(number.ravel(), columns.duration_ps[rows])
    kind_of, by_of = causers[of_causer.argmax()].tolist()
    return By(kind_of), by_of


def _follows_wait(columns: Columns) -> BoolArray:
    """Which segments follow a wait, whose line they have."""
    follows: BoolArray = (columns.state == State.SYNC) & (columns.by_kind == By.PYTHON)
    return follows


_OF_OWN: Final = 0.5
"""What ops would gain of what they lack beside the thread of the steps: two programs of JAX gained 0.4 and 0.9 of it (two cores)."""


def _recast_beside_own_python(draft: Draft) -> None:
    """What ops of a replica lose while the thread of the steps runs Python of its own, by the line that it is at."""
    python, waits = draft.python, core_waits(draft.context, draft.host)
    if draft.kind != "replica" or python is None or waits is None or waits.caller == NONE:
        return
    lines, caller, times = python.lines, python.caller, waits.clocks.time_ps
    own_lines = lines.at_work(caller, in_framework=False)
    needs = intersection(own_lines, complement(draft.states.calls))
    if not needs.start.size:
        return
    until = np.append(0, np.cumsum(lines.own_work(caller, needs.start, needs.end)))
    moments, used = np.stack((needs.start, needs.end), 1), np.stack((until[:-1], until[1:]), 1)
    own = np.diff(np.interp(times, moments.ravel(), used.ravel()))
    cores = waits.beside_caller()
    owed, least_ps = _OF_OWN * cores.owed_by(own), _LEAST_AT_A_LINE * draft.window.length_ps
    between = times[:-1], times[1:]
    whole = np.maximum(needs.within(*between), 1)
    _, since, until_ps, cause = lines.causes(caller, needs.start, needs.end)
    for each in unique_ids(cause).tolist():
        calls = intersection(union(since[cause == each], until_ps[cause == each]), needs)
        line = lines.at(caller, calls.start, calls.end, may_wait=False)
        if line is not None and covered_ps(calls, draft.window) >= least_ps:
            by = draft.by_line(str(line))
            part = owed * (calls.within(*between) / whole)
            state = _state_at(draft.columns, by)
            _recast_without_cores(draft, cores, part, state, by, with_dispatch=False)


def _state_at(columns: Columns, by: Causer) -> State:
    """What a line of Python mostly is where a device is idle for it."""
    rows = (columns.by_kind == by[0]) & (columns.by == by[1]) & (columns.activity == IDLE)
    of_state = np.bincount(columns.state[rows], columns.duration_ps[rows], len(State))
    main = State(int(of_state.argmax()))
    return main if main in _MAIN else State.PYTHON


_OF_A_LINE: Final = (State.PYTHON, State.BETWEEN, State.SYNC)
"""States that last as long as a line of Python on the thread that runs the steps."""

_LEAST_OF_A_LINE_PS: Final = 100 * PS_PER_US
"""Samples come every millisecond or so, and say little of less."""


def _enter_lines(draft: Draft, awaited: Mapping[str, Causer]) -> None:
    """Enter the line of Python that ran in long rows that are as long as one takes, where samples show it; of one that waits
    for another thread, `awaited`, the line of that.

    What nothing but silence shows is no Python: it is time between recorded calls.
    """
    python, shown = draft.python, draft.states.frames
    if python is not None:
        _enter_lines_of(draft, python, awaited)
        if python.is_sampled:
            shown = python.lines.sampled
    draft.recast(complement(shown), (State.PYTHON,), State.BETWEEN_CALLS)


def _enter_lines_of(draft: Draft, python: HostPython, awaited: Mapping[str, Causer]) -> None:
    columns = draft.columns
    asked = is_among(columns, _OF_A_LINE) & (columns.duration_ps >= _LEAST_OF_A_LINE_PS)
    asked &= ~_follows_wait(columns) & (columns.activity == IDLE)
    columns, asked, turns = _cut_at_turns(columns, asked, python)
    rows = np.flatnonzero(with_taken(columns, asked))
    start = columns.start_ps[rows]
    # What runs on while the device does nothing, up to the next turn.
    stretch = np.cumsum(columns.activity != IDLE)[rows] + places(turns, start, right=True)
    _, group = unique_inverse(stretch)
    count = int(group.max(initial=-1)) + 1
    spans = start, start + columns.duration_ps[rows], group
    known = python.lines.in_each(python.caller, *spans, count)
    state, by_kind, by = columns.state.copy(), columns.by_kind.copy(), columns.by.copy()
    for row, number in zip(rows.tolist(), group.tolist(), strict=True):
        if asked[row] and (line := known[number]) is not None:
            if causer := awaited.get(str(line)):
                state[row] = State.PYTHON_THREAD
            by_kind[row], by[row] = causer or draft.by_line(str(line))
    draft.columns = replace(columns, state=state, by_kind=by_kind, by=by)


def _cut_at_turns(
    columns: Columns, chosen: BoolArray, python: HostPython
) -> tuple[Columns, BoolArray, Int64Array]:
    """Some rows cut where the loop goes on from one of its calls to another: half way between two samples while the device does nothing.

    Also which rows are chosen then, and when it goes on.
    """
    rows = np.flatnonzero(with_taken(columns, chosen))
    start = columns.start_ps[rows]
    spans = start, start + columns.duration_ps[rows]
    time, since, until, cause = python.lines.causes(python.caller, *spans)
    stretch = places(columns.start_ps[columns.activity != IDLE], time, right=True)
    goes_on = (cause[1:] != cause[:-1]) & (stretch[1:] == stretch[:-1])
    turns = sorted_unique((until[:-1] + since[1:])[goes_on] // 2)
    cut, number, _ = cut_at(columns, turns, chosen)
    return cut, chosen[number], turns


# The input pipeline


def _recast_taken_by_pipeline(draft: Draft) -> None:
    """Time that the pipeline takes without a request for a batch, and requests that do not wait for one."""
    context, host = draft.context, draft.host
    supply = supply_of(context, host)
    if supply is not None and not supply.is_short:
        # Requests for a batch that is ready are dispatch. What ends an iterator is none, and belongs to the line that does.
        if draft.states.markers.start.size:
            ended = difference(draft.states.ended_input, draft.states.markers)
            draft.recast(ended, (State.INPUT,), State.BETWEEN)
        draft.recast(draft.everywhen, (State.INPUT,), State.HOST_OPS)
    is_locked = keeps_lock(context, host, draft.device)
    if is_locked:
        at_work = pipeline_python(context, host)
        draft.recast(at_work, LOCKED, State.INPUT)
        # What the thread of the steps needs for itself is known where it was sampled.
        if draft.python is not None and draft.python.is_sampled and draft.python.caller != NONE:
            between = draft.idle_in((State.BETWEEN,))
            draft.columns, rows = cut_at_spans(draft.columns, at_work, between)
            _recast_beside(draft, draft.python, rows, State.INPUT)
    cores = core_waits(context, host)
    if cores is not None:
        owed = cores.owed_by(cores.ran_by(cores.pipeline))
        _recast_without_cores(draft, cores, owed, State.INPUT, with_dispatch=not is_locked)
        owed = cores.owed_by(cores.ran_by(cores.natives))
        _recast_without_cores(draft, cores, owed, State.NO_CORE, (By.THREAD, NONE))
        for owed in (cores.owed_by(cores.ran_by_processes), cores.owed_by_limit):
            _recast_without_cores(draft, cores, owed, State.NO_CORE)
