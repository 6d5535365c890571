"""Holds the segments of one device while they change, and finds the time that only handing it its work costs.

That are short ops and kernels, a host that waited before it handed on more, and keys: TensorFlow gives each collective of each
replica a new key in every call of a graph, and converts it to a tensor in Python before the graph runs (2.21:
`capture_call_time_value`, recorded as `convert_to_tensor`). With 61 collectives on four replicas that took 7 of the 21 ms of a
step.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
from msgspec.structs import replace

from traceview.analysis.facts.async_ops import AsyncOps, async_ops, data_sets
from traceview.analysis.facts.run import Run
from traceview.analysis.facts.selection import step_bounds
from traceview.base.ids import groups_of, is_in, sorted_unique, unique_ids, unique_inverse
from traceview.base.intervals import (
    NEVER,
    BoolArray,
    Int32Array,
    Int64Array,
    IntervalSet,
    difference,
    nesting,
    places,
    union,
)
from traceview.base.units import PS_PER_MS, PS_PER_US
from traceview.ledger.build import (
    Segments,
    cut_at,
    cut_at_spans,
    is_among,
    is_side_work,
    recast,
    recast_ends,
    recast_rows,
)
from traceview.ledger.columns import IDLE, By, Columns
from traceview.ledger.states import State
from traceview.ledger.table import Ledger
from traceview.trace.columns import NONE
from traceview.trace.device.correlation import innermost_value
from traceview.trace.host.host_events import LONG_AGO_PS, last_begun
from traceview.trace.host.host_states import BACK_TO_BACK_PS, SCHEDULING_OP_PS
from traceview.trace.host.state_timeline import intersection, joined_spans
from traceview.trace.model import Recording, Trace
from traceview.xplane.planes import ActivityClass

Causer = tuple[By, int]
NOBODY: Causer = (By.NONE, NONE)


class Draft:
    """The segments of one device while they are changed. `lines`: the number of each line of Python that causes something."""

    def __init__(
        self, context: Run, segments: Segments, device: int, lines: dict[str, int]
    ) -> None:
        entry = context.trace.device_list[device]
        self.context = context
        self.trace = context.trace
        self.device, self.host, self.kind = device, entry.host, entry.kind
        self.gaps, self.states = context.idle.gaps[device], context.idle.states[entry.host]
        self.python = context.idle.python.get(entry.host)
        self.window = context.selection.windows[entry.host]
        self._segments = segments
        self._lines = lines

    @property
    def columns(self) -> Columns:
        """Its segments as they are now; of every device they exist once."""
        return self._segments.of_device[self.device]

    @columns.setter
    def columns(self, columns: Columns) -> None:
        self._segments.of_device[self.device] = columns

    @property
    def everywhen(self) -> IntervalSet:
        """The whole window."""
        return union(np.array([self.window.start_ps]), np.array([self.window.end_ps]))

    def by_line(self, line: str) -> Causer:
        """A line of Python as a cause."""
        return By.PYTHON, self._lines.setdefault(line, len(self._lines))

    def idle_in(self, states: Collection[State]) -> BoolArray:
        """Which segments are idle time in one of these states."""
        rows = is_among(self.columns, states)
        rows &= self.columns.activity == IDLE
        return rows

    def recast(
        self,
        spans: IntervalSet,
        among: Collection[State],
        state: State,
        by: Causer | None = None,
    ) -> None:
        """Give the time in states `among` inside of `spans` another state, and cause if that changes as well."""
        self.columns = recast(self.columns, spans, among, state, by)

    def recast_rows(
        self, rows: BoolArray | Int64Array, state: State, by: Causer | None = None
    ) -> None:
        """Give some whole segments another state."""
        self.columns = recast_rows(self.columns, rows, state, by)

    def recast_ends(self, length_ps: Int64Array, state: State, by: Causer | None = None) -> None:
        """Give the last `length_ps` of each segment another state."""
        self.columns = recast_ends(self.columns, length_ps, state, by)


MANY_OPS: Final = 1000
"""Small ops per step from which on they count as dispatch; a choice of ours. Healthy steps of 58 recordings had up to 180."""

MANY_PROGRAMS: Final = 20
"""The same of small XLA programs. Healthy steps of 40 recordings had up to 3."""

_MOST_OF_ONE_OP: Final = 4
"""Instructions of a program that runs one op: `jit(gather)/gather` of a sharded array has 3, with its all-reduce."""

MANY_KERNELS: Final = 500
"""The same of kernels of a GPU; a choice of ours. Healthy steps of 24 programs on an H100 had up to 460."""

SMALL_OP_PS: Final = 10 * PS_PER_US
"""An op or kernel shorter than this takes little longer than its dispatch, or launch."""


_CLEAR_RATIO: Final = 0.5
_FEWEST_RATIO: Final = 0.05
"""A line stands for waits if samples stand for so much of them, and it for half of these. Choices of ours: on an H100 lines of
libraries that read nothing had up to 2.4 % of the waits, those that did read 9 % and more."""


def recast_dispatch(draft: Draft) -> None:
    """Change what its dispatch explains: small ops of a CPU device, and what the host of another hands on after a wait."""
    if draft.kind == "replica":
        _recast_small_ops(draft)
    else:
        _recast_reads(draft)
        _recast_after_waits(draft)


def is_compute(columns: Columns) -> BoolArray:
    """Which segments compute, by what they are and by their state."""
    computes: BoolArray = columns.state == State.COMPUTE
    computes &= columns.activity == ActivityClass.COMPUTE
    return computes


def recast_own_dispatch(draft: Draft) -> None:
    """What a replica is idle for briefly while a thread is at work for it, before or behind one of its ops: it waits for no other.

    For longer the thread is in an op that waits.
    """
    if draft.kind != "replica":
        return
    draft.columns, rows = cut_at_spans(
        draft.columns, _at_work_for(draft.trace, draft.device), draft.idle_in((State.DEVICE_WAIT,))
    )
    is_brief = draft.columns.duration_ps[rows] <= BACK_TO_BACK_PS
    draft.recast_rows(rows[is_brief], State.HOST_OPS, NOBODY)


_EXECUTES: Final = b"ExecutorState::Process"


def _at_work_for(trace: Trace, device: int) -> IntervalSet:
    """When threads execute the part of a graph that a replica runs: nodes that are ready, one after the other."""
    events, columns = trace.host_columns, trace.device_columns
    executed = trace.named_on(trace.device_list[device].host, _EXECUTES.__eq__)
    ops = columns.launch[columns.rows_of(device)]
    lines = np.arange(len(trace.lines), dtype=np.int32)
    inside = innermost_value(ops[ops != NONE], executed, np.arange(executed.size), events, lines)
    own = executed[unique_ids(inside[inside != NONE])]
    return union(events.start_ps[own], events.end_ps[own])


def _recast_small_ops(draft: Draft) -> None:
    """Ops of a CPU device that are so short that dispatch is what they cost."""
    trace = draft.trace
    columns, own = trace.device_columns, trace.device_columns.rows_of(draft.device)
    length = columns.end_ps[own] - columns.start_ps[own]
    is_own = (columns.class_[own] == ActivityClass.COMPUTE) & (length > 0)
    is_own &= ~is_side_work(trace, draft.device, is_shown=True)
    is_of_program = columns.instruction[own] != NONE
    small_op = _usual_length(columns.op[own].astype(np.int64), length) < SMALL_OP_PS
    # What devices wait in a collective says nothing of how much a program computes.
    meets = columns.class_[own] == ActivityClass.COLLECTIVE
    work = np.where(meets, 0, length)
    small_program, of_one_op, is_first = _small_programs(trace, columns.instruction[own], work)
    of_programs = (is_own | meets) & is_of_program
    for is_small, counted, many in (
        (is_own & ~is_of_program & small_op, small_op, MANY_OPS),
        (of_programs & small_program, is_first, MANY_PROGRAMS),
        (of_programs & of_one_op, is_first, 1),
    ):
        if _has_many(draft, columns.start_ps[own][is_small & counted], many):
            _recast_small(draft, is_small, State.HOST_OPS)


def recast_small_kernels(draft: Draft) -> None:
    """Kernels of a GPU that are so short that launching them is what they cost."""
    if draft.kind != "gpu":
        return
    columns = draft.trace.device_columns
    own = columns.rows_of(draft.device)
    start, length = columns.start_ps[own], columns.end_ps[own] - columns.start_ps[own]
    is_small = columns.class_[own] == ActivityClass.COMPUTE
    # Of kernels that are usually short at least half are.
    if not _has_many(draft, start[is_small & (length < SMALL_OP_PS)], MANY_KERNELS // 2):
        return
    is_small &= _usual_length(columns.name[own].astype(np.int64), length) < SMALL_OP_PS
    if _has_many(draft, start[is_small], MANY_KERNELS):
        _recast_small(draft, is_small, State.LAUNCH)


def _has_many(draft: Draft, begun_ps: Int64Array, many: int) -> bool:
    """Whether so many of some events begin per used step."""
    start, end = step_bounds(draft.context.selection.used_of(draft.host))
    ordered = np.sort(begun_ps)
    in_steps = int((np.searchsorted(ordered, end) - np.searchsorted(ordered, start)).sum())
    return in_steps >= many * max(start.size, 1)


def _recast_small(draft: Draft, is_small: BoolArray, state: State) -> None:
    """Change the time of events of a device, of which `is_small` says which."""
    columns = draft.columns
    rows = is_compute(columns) | (columns.activity == ActivityClass.COLLECTIVE)
    first = draft.trace.device_columns.rows_of(draft.device).start
    rows[rows] = is_small[columns.event[rows] - first]
    draft.recast_rows(rows, state, NOBODY)


def _recast_reads(draft: Draft) -> None:
    """What keeps back a copy that the host waits for, and nothing else, is that wait."""
    rows = draft.idle_in((State.DEPENDENCY,))
    if not rows.any():
        return
    _, waits = draft.states.caller_spans
    event, trace = draft.columns.event[rows], draft.trace
    rows[rows] = (event != NONE) & (trace.device_columns.class_[event] == ActivityClass.D2H)
    start, duration = draft.columns.start_ps[rows], draft.columns.duration_ps[rows]
    spans = intersection(union(start, start + duration), waits)
    draft.recast(spans, (State.DEPENDENCY,), State.SYNC)


def _recast_after_waits(draft: Draft) -> None:
    """What the host hands on after it waited for the device to finish: it could have done so while the device worked."""
    states, python = draft.states, draft.python
    if states.caller == NONE or (python is None and not states.caller_spans[1].start.size):
        return
    start, end = draft.gaps.start_ps, draft.gaps.end_ps
    since = _waiting_since(draft, start)
    waits = np.flatnonzero(since < start)
    # Else the next work was launched, or another thread was at work on it, before the device had nothing to do.
    waits = waits[draft.gaps.handed_over_ps[waits] > start[waits]]
    waits = waits[~is_in(start[waits], ends_of_conditions(draft.trace, draft.device))]
    if not waits.size:
        return
    before = union(since[waits], start[waits])
    line = python.lines.at(python.caller, before.start, before.end) if python else None
    is_clear = (
        line is not None
        and line.ratio >= _CLEAR_RATIO
        and line.sampled_ps >= _FEWEST_RATIO * before.length
    )
    by = draft.by_line(str(line)) if is_clear else NOBODY
    # A thread that records nothing waits until it wakes up.
    spoken, _ = states.caller_spans
    silent = spoken.within(start[waits] - 1, start[waits] + 1) == 0
    wakes = np.append(spoken.start, draft.window.end_ps)[places(spoken.start, start[waits])]
    awake = np.where(silent, np.minimum(wakes, end[waits]), start[waits])
    draft.recast(union(start[waits], awake), _HANDED_ON, State.SYNC, by)
    ahead = _ahead_ps(draft, waits, before)
    draft.recast(union(end[waits] - ahead, end[waits]), _HANDED_ON, State.SYNC, by)


_HANDED_ON: Final = (State.LAUNCH, State.LATENCY)


def _ahead_ps(draft: Draft, gaps: Int64Array, before: IntervalSet) -> Int64Array:
    """By how much earlier the host had handed on what ends some gaps, in time order, had it not waited; int64 `[gaps]`.

    As much as it has waited while the device worked, `before` gaps and at other times, each wait counted once.
    """
    start, end = draft.gaps.start_ps, draft.gaps.end_ps
    _, shown = draft.states.caller_spans
    waited = intersection(joined_spans((shown, before)), draft.everywhen)
    waited_ps = difference(waited, union(start, end)).before(start[gaps])
    rows = draft.idle_in(_HANDED_ON)
    begun, lasted = draft.columns.start_ps[rows], draft.columns.duration_ps[rows]
    late = np.cumsum(union(begun, begun + lasted).within(start[gaps], end[gaps]))
    spent = late + np.minimum.accumulate(np.minimum(waited_ps - late, 0))
    return np.diff(spent, prepend=0)


_ON_CONDITION: Final = (b"while", b"conditional")


def ends_of_conditions(trace: Trace, device: int) -> Int64Array:
    """When a device had copied to the host whether a loop or a branch of an XLA program goes on: the host launches, and reads no value."""
    columns, own = trace.device_columns, trace.device_columns.rows_of(device)
    is_condition = [each.name.startswith(_ON_CONDITION) for each in trace.instructions]
    chosen = np.array([*is_condition, False])[columns.instruction[own]]
    chosen &= columns.class_[own] == ActivityClass.D2H
    ends: Int64Array = columns.end_ps[own][chosen]
    return ends


def _waiting_since(draft: Draft, end_ps: Int64Array) -> Int64Array:
    """Since when the caller waited for a device at each instant; the instant itself where it did not.

    Its events show that, or its samples: that it is mostly at rest where it records nothing until then.
    """
    python = draft.python
    spoken, shown = draft.states.caller_spans
    waits = shown.within(end_ps - 1, end_ps) > 0
    begun_ps = last_begun(shown, end_ps - 1)[0]
    # TensorFlow waits before it records the copy that it waited for.
    silent_ps = np.maximum(last_begun(spoken, begun_ps - 1)[1], begun_ps - PS_PER_MS)
    since = np.where(waits, np.minimum(begun_ps, silent_ps), end_ps)
    if python is None or not python.is_sampled:
        return since
    last_ps = last_begun(spoken, end_ps - 1)[1]
    silent = ~waits & (last_ps < end_ps) & (last_ps > LONG_AGO_PS)
    if python.lines.waits_outside_python(python.caller, union(last_ps[silent], end_ps[silent])):
        since = np.where(silent, last_ps, since)
    return since


def _small_programs(
    trace: Trace, instruction: Int32Array, length: Int64Array
) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Which ops of a device are of XLA programs that run so shortly that dispatch is what they cost; of programs that run one op
    beside one that runs many, which takes longest; and one op of each run.

    A program runs as often as its rarest instruction. What JAX runs outside of any `jax.jit` is a program of one op.
    """
    nowhere = np.zeros(length.size, dtype=np.bool_)
    number, of_op = unique_inverse(instruction)
    programs, program = unique_inverse(trace.once(program_of_instructions)[number])
    if not programs.any():
        return nowhere, nowhere, nowhere
    count = np.bincount(of_op, minlength=number.size)
    order = np.lexsort((count, program))
    rarest = order[np.diff(program[order], prepend=NONE) != 0]
    # Another process may have had the core for some runs.
    usual = _usual_length(of_op.astype(np.int64), length)
    total = np.bincount(program[of_op], usual.astype(np.float64), programs.size)
    is_small = total < SCHEDULING_OP_PS * count[rarest]
    of_one_op = _of_one_op(trace, number, program, programs.size)
    of_one_op &= not of_one_op[int(total.argmax())]
    return is_small[program[of_op]], of_one_op[program[of_op]], is_in(of_op, rarest)


def program_of_instructions(recording: Recording) -> Int64Array:
    """The number of the program of each instruction, from 1 on, 0 where that is not known; the last is none."""
    number_of = {b"": 0}
    programs = (each.program for each in recording.instructions)
    return np.array([*(number_of.setdefault(of, len(number_of)) for of in programs), 0])


def _of_one_op(trace: Trace, instruction: Int64Array, program: Int64Array, count: int) -> BoolArray:
    """Which of `count` programs run one op, by their instructions, numbers of which are given, and the program of each."""
    scopes: list[set[str]] = [set() for _ in range(count)]
    for each, place in zip(instruction.tolist(), program.tolist(), strict=True):
        if each != NONE:
            scopes[place].add(trace.instructions[each].scope)
    few = np.bincount(program, minlength=count) <= _MOST_OF_ONE_OP
    single = np.fromiter((len(of - {""}) <= 1 for of in scopes), np.bool_, count)
    result: BoolArray = few & single
    result &= np.fromiter(map(bool, scopes), np.bool_, count)
    return result


def _usual_length(key: Int64Array, length_ps: Int64Array) -> Int64Array:
    """The median length of the things with the key of each, int64."""
    order = np.lexsort((length_ps, key))
    ordered = key[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: ordered.size])
    count = np.diff(np.append(first, ordered.size))
    low = length_ps[order][first + (count - 1) // 2]
    high = length_ps[order][first + count // 2]
    usual = np.empty_like(length_ps)
    usual[order] = np.repeat(low + (high - low) // 2, count)
    return usual


# Keys

MANY_CALLS: Final = 8
"""Collectives of a device in a graph, from which on their keys count; a choice of ours. Gradients come packed, in few."""

_CONVERSION: Final = (b"convert_to_tensor",)
_GRAPH: Final = (b"FunctionRun",)
_CONVERTING: Final = (State.HOST_OPS, State.LAUNCH, State.H2D, State.PYTHON, State.UNKNOWN)
"""What the thread is in that converts, as its events show it: `tf.constant` may prepare a copy."""


def recast_keys(draft: Draft) -> None:
    """Dispatch in which the caller of a host makes keys has the first collective of the host as its cause."""
    spans, op = draft.context.once(keys_of_hosts).get(draft.host, (NEVER, NONE))
    draft.columns, rows = cut_at_spans(draft.columns, spans, draft.idle_in(_CONVERTING))
    draft.recast_rows(rows, State.HOST_OPS, (By.OP, op))


def rows_of_keys(context: Run, ledger: Ledger) -> BoolArray:
    """The rows of the ledger in which callers make keys."""
    columns, host_of = ledger.columns, context.trace.host_of_device
    rows = ledger.rows(states=(State.HOST_OPS,)) & (columns.by_kind == By.OP)
    chosen = np.zeros(columns.count, dtype=np.bool_)
    for host, (spans, op) in context.once(keys_of_hosts).items():
        own = np.flatnonzero(rows & (columns.by == op) & (host_of[ledger.device] == host))
        # The rows were cut at the bounds of the spans. The host asks for the collective under the same name.
        chosen[own] = last_begun(spans, columns.start_ps[own])[1] > columns.start_ps[own]
    return chosen


def keys_of_hosts(context: Run) -> dict[int, tuple[IntervalSet, int]]:
    """When the caller of a host makes keys, and the op of its first collective, by host, of those whose callers make many."""
    collectives, trace = context.collectives, context.trace
    host_of = trace.host_of_device[collectives.device]
    found = {}
    for rows in groups_of(host_of):
        host = int(host_of[rows[0]])
        # A host without a window has no states.
        if host not in context.idle.states:
            continue
        least = MANY_CALLS * unique_ids(collectives.device[rows]).size
        begun = np.sort(trace.device_columns.start_ps[collectives.row[rows]])
        spans = _spans_of_keys(context, host, begun, least)
        if spans.start.size:
            # Collectives come in the order of their starts.
            op, kernel = int(collectives.op[rows[0]]), int(collectives.name[rows[0]])
            found[host] = spans, kernel if op == NONE else op
    return found


def _spans_of_keys(context: Run, host: int, begun_ps: Int64Array, least_count: int) -> IntervalSet:
    """When the caller of a host makes keys: from the first conversion in a call to the last one before its graph.

    Conversions are keys where there is one for each of the collectives, which begin in the graph at `begun_ps`, sorted, and
    not twice as many.
    """
    trace, states = context.trace, context.idle.states[host]
    if begun_ps.size < max(least_count, 1):
        return NEVER
    columns, rows = trace.host_columns, states.by_start(states.caller)
    names = columns.name[rows]
    inside = rows[~states.is_marker(rows)]
    calls = union(columns.start_ps[inside], columns.end_ps[inside])
    runs = columns.start_ps[rows[trace.names.matching(names, _GRAPH)]]
    # A call runs a graph on each of its devices.
    called, first_run = np.unique(last_begun(calls, runs)[0], return_index=True)
    runs = runs[first_run]
    conversions = rows[trace.names.matching(names, _CONVERSION)]
    start, end = columns.start_ps[conversions], columns.end_ps[conversions]
    first, after = np.searchsorted(start, called), np.searchsorted(start, runs)
    begun = np.searchsorted(begun_ps, np.append(runs, -LONG_AGO_PS))
    needed, made = begun[1:] - begun[:-1], after - first
    are_keys = (needed >= least_count) & (needed <= made) & (made < 2 * needed)
    return union(start[first[are_keys]], end[after[are_keys] - 1])


# Asynchronous ops

IN_A_GRAPH: Final = (State.HOST_OPS, State.LAUNCH, State.INPUT, State.DEPENDENCY, State.LATENCY)
"""What a device is idle for while nothing but an asynchronous op of a graph is open."""


def recast_in_flight(draft: Draft) -> None:
    """What a device is idle for while its graph runs a data set, or waits in another asynchronous op that nothing explains."""
    ops = draft.context.once(async_ops)[draft.host]
    runs, bodies = data_sets(draft.context, draft.host)
    _recast_by_op(draft, ops, runs, (*IN_A_GRAPH, State.UNKNOWN), State.INPUT, bodies)
    # The body of a loop is the step's own.
    inside = intersection(ops.spans(draft.trace, runs), bodies)
    draft.recast(inside, (State.UNKNOWN,), State.HOST_OPS, NOBODY)
    _recast_by_op(draft, ops, ops.op != NONE, (State.UNKNOWN,), State.HOST_OPS)


def _recast_by_op(
    draft: Draft,
    ops: AsyncOps,
    chosen: BoolArray,
    among: Collection[State],
    state: State,
    without: IntervalSet = NEVER,
) -> None:
    """Give idle time another state while some of the ops are in flight, by the one that began last."""
    rows = draft.idle_in(among)
    if not (chosen.any() and rows.any()):
        return
    begun = draft.trace.host_columns.start_ps
    start, end = begun[ops.begun[chosen]], begun[ops.ended[chosen]]
    bounds = np.concatenate((start, end, without.start, without.end))
    cut, place, _ = cut_at(draft.columns, sorted_unique(bounds), rows)
    op = np.append(ops.op[chosen], NONE)[nesting(start, end).innermost(cut.start_ps)]
    is_open = rows[place] & (op != NONE)
    is_open &= without.within(cut.start_ps, cut.start_ps + 1) == 0
    draft.columns = replace(
        cut,
        state=np.where(is_open, np.uint8(state), cut.state),
        by_kind=np.where(is_open, np.uint8(By.OP), cut.by_kind),
        by=np.where(is_open, op.astype(np.int32), cut.by),
    )
