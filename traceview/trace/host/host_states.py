"""Builds a timeline of causes for each thread that devices wait for: what the host did while a device was idle.

    thread that calls     ▕ train ───────────────────────────────▏            ▕ train ──
      its own events      ▕ IteratorGetNext ▏▕ FunctionRun ──────▏            ▕
      executors in a call                    ▕ Process ▕ op ▏▕op▏▏            ▕
      its timeline        │ input            │ launch or host_ops  │ between  │ …

The layers of each timeline, and what is evidence of which kind, are defined in docs/method.md, "State of a host thread". The
host event that shows the cause of a gap is found as in "Keys of gaps" there.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.base.ids import groups_of, is_in, unique_ids
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
from traceview.base.sweeping import made_of_each
from traceview.base.units import PS_PER_US
from traceview.trace.columns import NONE, kept
from traceview.trace.host.host_events import DELETES, HostEvents, among
from traceview.trace.host.state_timeline import (
    Layer,
    StateTimeline,
    complement,
    intersection,
    joined_spans,
    stacked,
    without_holes,
)
from traceview.trace.state import State
from traceview.xplane.columns import joined
from traceview.xplane.planes import ActivityClass, HostNameKind

BACK_TO_BACK_PS: Final = 100 * PS_PER_US
"""TensorFlow's GPU guide gives 20 to 40 µs for a launch; launches more than twice that apart are not back to back."""
SCHEDULING_OP_PS: Final = 50 * PS_PER_US
"""A CPU op shorter than this is part of scheduling; XProf calls an iterator slow from the same duration on."""

HANDOVER_PS: Final = 1000 * PS_PER_US
"""An executor is woken up within this time; 97 % of such holes in 17 recordings on two cores were shorter than 0.5 ms."""

STRONG: Final = (
    (State.INPUT, HostNameKind.INPUT),
    (State.H2D, HostNameKind.H2D),
    (State.COMPILE, HostNameKind.COMPILE),
    (State.SYNC, HostNameKind.SYNC),
    (State.CHECKPOINT, HostNameKind.CHECKPOINT),
)
_LONG_DELETE_PS: Final = 1000 * PS_PER_US
"""Deleting any other tensor took up to 0.6 ms (TensorFlow 2.21)."""
_SCHEDULING: Final = (HostNameKind.DISPATCH, HostNameKind.EXECUTOR)
_JITTED: Final = b"PjitFunction("
_DRIVER_CALLS: Final = (HostNameKind.H2D, HostNameKind.D2H, HostNameKind.SYNC)
"""A Python thread makes such calls itself where it hands on an array or reads a value."""

_SHOWN_BY: Final[dict[State, tuple[HostNameKind, ...]]] = {
    State.INPUT: (HostNameKind.INPUT, HostNameKind.ASYNC_INPUT),
    State.H2D: (HostNameKind.H2D,),
    State.COMPILE: (HostNameKind.COMPILE,),
    State.SYNC: (HostNameKind.SYNC, HostNameKind.D2H),
    State.CHECKPOINT: (HostNameKind.CHECKPOINT,),
    State.LAUNCH: (
        *(HostNameKind.OP, HostNameKind.OTHER),
        *(HostNameKind.DISPATCH, HostNameKind.LAUNCH),
    ),
    State.HOST_OPS: (
        *(HostNameKind.OP, HostNameKind.OTHER),
        *(HostNameKind.DISPATCH, HostNameKind.EXECUTOR),
    ),
    State.DEVICE_WAIT: (HostNameKind.OP,),
    **dict.fromkeys((State.BETWEEN, State.EVALUATION), tuple(HostNameKind)),
}


_DEEPEST: Final = 64
"""Events around each other that are looked at; recordings have a dozen."""


class Evidence(Struct, frozen=True, eq=False):
    """The time that the events of a set of threads show for each kind of state.

    `other`: events of no known kind; `unlisted`: those of them that launch nothing and take longer than scheduling.
    """

    strong: tuple[Layer, ...]
    launch: IntervalSet
    host_ops: IntervalSet
    pipeline: IntervalSet
    scheduling: IntervalSet
    other: IntervalSet
    unlisted: IntervalSet


class HostStates(HostEvents):
    """The events of one host's threads, and the timelines of causes that they show."""

    def unlisted_rows(self, thread: int) -> Int64Array:
        """The events of a thread of no known kind that launch nothing and take longer than scheduling."""
        return self._shown(thread)[2]

    @cached_property
    def computing_rows(self) -> Int64Array:
        """Ops that compute on the host: they launch nothing and take longer than scheduling."""
        return joined([self._shown(thread)[1] for thread in self._threads], np.int64)

    @cached_property
    def _threads(self) -> tuple[int, ...]:
        return tuple(unique_ids(self.thread[self._lines]).tolist())

    def gather(self, threads_beside: int) -> None:
        """Make what the timelines of several threads need, on some threads and this one."""
        self._shown(self.caller)
        others = [thread for thread in self._threads if thread != self.caller]
        made_of_each(self._shown, others, threads_beside)
        self.timeline(self.caller)

    def _evidence(self, thread: int) -> Evidence:
        """What the events of one thread show."""
        return self._shown(thread)[0]

    @kept
    def _shown(self, thread: int) -> tuple[Evidence, Int64Array, Int64Array]:
        """What the events of a thread show, those that compute, and those of `unlisted_rows`."""
        rows = self.rows_of_thread(thread)
        of_model, of_pipeline = self._by_kind(rows)
        launches = self._launches_among(rows)
        launching, computing = self._split_ops(of_model[HostNameKind.OP], launches)
        strong = {
            cause: self._spans(merged_rows((of_model[kind], of_pipeline[kind])))
            for cause, kind in STRONG
        }
        strong[State.COMPILE] = joined_spans(
            (
                strong[State.COMPILE],
                self._traced(rows),
                self._prepared(rows),
                self._jitted(rows, of_model[HostNameKind.COMPILE]),
            )
        )
        strong[State.SYNC] = joined_spans((strong[State.SYNC], self._reads(rows)))
        ended = self._spans(self.ends_of_input(rows))
        strong[State.INPUT] = joined_spans((strong[State.INPUT], ended))
        functions = self._rows_with("tf_function_call", rows)
        unknown = self._unknown(of_model[HostNameKind.OTHER])
        _, unlisted = self._split_ops(unknown, launches)
        scheduling = (of_model[kind] for kind in _SCHEDULING)
        pipeline = (of_pipeline[kind] for kind in (*_SCHEDULING, HostNameKind.OP))
        evidence = Evidence(
            strong=tuple(strong.items()),
            launch=without_holes(
                self._spans(merged_rows((launching, of_model[HostNameKind.LAUNCH]))),
                BACK_TO_BACK_PS,
            ),
            host_ops=self._spans(computing),
            pipeline=self._spans(merged_rows(pipeline)),
            scheduling=self._spans(merged_rows((*scheduling, functions))),
            other=self._spans(unknown),
            unlisted=self._spans(unlisted),
        )
        return evidence, computing, unlisted

    def ends_of_input(self, rows: Int64Array) -> Int64Array:
        """Those of some events in which the last handle of an iterator is deleted, which waits for the threads of its pipeline."""
        if not self._makes_iterators:
            return np.empty(0, dtype=np.int64)
        columns = self._columns
        rows = rows[columns.duration_ps[rows] >= _LONG_DELETE_PS]
        return rows[self._trace.names.matching(columns.name[rows], DELETES)]

    @property
    def ended_input(self) -> IntervalSet:
        """When the caller ends iterators."""
        return self._spans(self.ends_of_input(self.rows_of_thread(self.caller)))

    @cached_property
    def _makes_iterators(self) -> bool:
        names = unique_ids(self._columns.name[self._span.start : self._span.stop])
        return any(self._trace.names.read(names, lambda name: b"MakeIterator" in name))

    def _unknown(self, rows: Int64Array) -> Int64Array:
        """Those of some events of no known kind that are neither frames of Python nor driver calls."""
        rows = rows[~self._is_frame.take(self._columns.name[rows])]
        return rows[~self._stat("correlation_id").has(rows)]

    def _by_kind(self, rows: Int64Array) -> tuple[list[Int64Array], list[Int64Array]]:
        """These events by kind, ascending: those of the model, and those of the input pipeline."""
        count = len(HostNameKind)
        codes = self.kind_of(rows) + self._in_pipeline.take(rows - self._span.start) * np.uint8(
            count
        )
        order = np.argsort(codes, kind="stable")
        begin = np.append(0, np.cumsum(np.bincount(codes, minlength=2 * count)))
        in_order = rows.take(order)
        by_code = [in_order[low:high] for low, high in pairwise(begin.tolist())]
        return by_code[:count], by_code[count:]

    def _launches_among(self, rows: Int64Array) -> Int64Array:
        """Driver calls that are neither copies nor waits: those have causes of their own."""
        launches = self._rows_with("correlation_id", rows)
        kind = self.kind_of(launches)
        result: Int64Array = launches[(kind == HostNameKind.OTHER) | (kind == HostNameKind.OP)]
        return result

    def _split_ops(self, ops: Int64Array, launches: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Launches with the ops that only launch, and the ops that compute on the host."""
        columns = self._columns
        if not self._has_queue:
            return np.empty(0, dtype=np.int64), ops[is_in(ops, self._trace.shared_rows)]
        if not ops.size:
            return launches, ops
        start = columns.start_ps[launches]
        if (start[1:] < start[:-1]).any():
            start = np.sort(start)
        first = places(start, columns.start_ps[ops])
        last = places(start, columns.end_ps[ops])
        computes = (last == first) & (columns.duration_ps[ops] >= SCHEDULING_OP_PS)
        return merged_rows((launches, ops[~computes])), ops[computes]

    @cached_property
    def _replica_work(self) -> IntervalSet:
        columns, rows = self._trace.device_columns, self._trace.device_rows(self._host)
        return union(columns.start_ps[rows], columns.end_ps[rows])

    @cached_property
    def _async_input(self) -> IntervalSet:
        """Iterator ops on tf.data threads that block a graph call of the model: they share its id."""
        rows = self._rows_of_kind(HostNameKind.ASYNC_INPUT)
        id_ = self._stat("id")
        called = id_.value[is_in(id_.row, self._call_rows)]
        waited = among(id_.row, rows, values=id_.value)
        rows = among(rows, id_.row)
        return self._spans(rows[is_in(waited, called)])

    def _traced(self, rows: Int64Array) -> IntervalSet:
        """Calls that traced a `tf.function`, up to where they run the traced graph."""
        traced = among(self._traced_calls, rows)
        if not traced.size:
            return NEVER
        columns, runs = self._columns, self._call_rows
        end = columns.end_ps[traced].copy()
        for index, row in enumerate(traced.tolist()):
            inside = (
                (columns.line[runs] == columns.line[row])
                & (columns.start_ps[runs] >= columns.start_ps[row])
                & (columns.end_ps[runs] <= columns.end_ps[row])
            )
            # Tracing may make variables, and call what begins them, before.
            ends = columns.end_ps[runs[inside]]
            is_last = ends == ends.max(initial=0)
            end[index] = columns.start_ps[runs[inside][is_last]].min(initial=end[index])
        return union(columns.start_ps[traced], end)

    @cached_property
    def _traced_calls(self) -> Int64Array:
        """Calls of this host that traced a `tf.function`."""
        calls = self._stat("tf_function_call")
        is_traced = self._trace.names.where(calls.value, lambda name: name.startswith(b"traced-"))
        return calls.row[is_traced]

    def _jitted(self, rows: Int64Array, compiles: Int64Array) -> IntervalSet:
        """Calls of functions of JAX that compiled, up to the end of that: Python traces and looks things up in between."""
        calls, columns = among(self._call_rows, rows), self._columns
        if not calls.size or not compiles.size:
            return NEVER
        is_jitted = self._trace.names.where(
            columns.name[calls], lambda name: name.startswith(_JITTED)
        )
        spans = self._spans(calls[is_jitted])
        if not spans.start.size:
            return NEVER
        place = np.searchsorted(spans.start, columns.start_ps[compiles], side="right") - 1
        last = spans.end[place]
        inside = (place >= 0) & (columns.start_ps[compiles] < last)
        end = np.minimum(columns.end_ps[compiles], last)
        return union(spans.start[place[inside]], end[inside])

    def _prepared(self, rows: Int64Array) -> IntervalSet:
        """When a graph was prepared for its first call: the thread recorded nothing but copies, among them constants."""
        copies = among(self.copies_of_constants, rows)
        if not copies.size:
            return NEVER
        columns = self._columns
        spoken = self._spans(rows[self.is_spoken(rows) & (self.kind_of(rows) != HostNameKind.H2D)])
        copied = columns.start_ps[copies]
        copied = copied[spoken.within(copied, copied + 1) == 0]
        place = np.searchsorted(spoken.start, copied, side="right")
        first, last = columns.start_ps[rows].min(), columns.end_ps[copies].max()
        return union(np.append(first, spoken.end)[place], np.append(spoken.start, last)[place])

    def _python(self, thread: int) -> IntervalSet:
        """When Python ran on a thread: from the end of what it recorded to the next thing that Python calls.

        Where no op does, Python calls drivers too. A marker does not say who began it, so it is passed over.
        """
        columns, rows = self._columns, self.rows_of_thread(thread)
        frames = rows[self._is_frame[columns.name[rows]]]
        called = self._is_called(rows) | is_in(self.kind_of(rows), _DRIVER_CALLS)
        is_spoken = self.is_spoken(rows)
        rows, called = rows[is_spoken], called[is_spoken]
        order = np.lexsort((~called, columns.start_ps[rows]))
        start, called = columns.start_ps[rows[order]], called[order]
        reach = np.maximum.accumulate(columns.end_ps[rows[order]])
        hole = np.flatnonzero(called[1:] & (start[1:] > reach[:-1]))
        return joined_spans((union(reach[hole], start[hole + 1]), self._spans(frames)))

    def _reads(self, rows: Int64Array) -> IntervalSet:
        """Copies from a device that the calling thread waited for: it began no event between the call and the end."""
        copies, calls = self._reads_of_devices
        if not calls.size:
            return NEVER
        columns = self._columns
        is_own = is_in(calls, rows)
        calls, copied = calls[is_own], self._trace.device_columns.end_ps[copies[is_own]]
        started = np.sort(columns.start_ps[rows]) if calls.size else columns.start_ps[calls]
        after = np.searchsorted(started, columns.end_ps[calls])
        waits = after >= np.searchsorted(started, copied)
        return union(columns.start_ps[calls[waits]], copied[waits])

    @cached_property
    def _reads_of_devices(self) -> tuple[Int64Array, Int64Array]:
        """Copies from the devices of this host, and the host rows of their calls."""
        device, rows = self._trace.device_columns, self._trace.device_rows(self._host)
        is_read = (device.class_[rows] == ActivityClass.D2H) & (device.launch[rows] != NONE)
        copies = rows[is_read]
        return copies, device.launch[copies].astype(np.int64)

    @kept
    def timeline(self, thread: int) -> StateTimeline:
        """The causes that a thread shows, over all time."""
        is_caller = thread == self.caller
        layers = self._caller_layers() if is_caller else self._executor_layers(thread)
        return stacked(list(layers))

    def own_timeline(self, thread: int) -> StateTimeline:
        """The causes that the events of one thread show, whatever other threads do."""
        own = self._evidence(thread)
        layers = [*own.strong, (State.LAUNCH, own.launch)] if self._has_queue else [*own.strong]
        layers += [(State.HOST_OPS, own.host_ops), (State.INPUT, own.pipeline)]
        return stacked([*layers, (self._scheduling, own.scheduling)])

    def _caller_layers(self) -> Iterable[Layer]:
        own, others = self._evidence(self.caller), self._executors
        called = self.calls
        yield from own.strong
        for cause, layer in others.strong:
            is_anywhere = cause == State.H2D and not self._has_queue
            yield cause, layer if is_anywhere else intersection(layer, called)
        if self._has_queue:
            yield State.LAUNCH, own.launch
            yield State.LAUNCH, intersection(others.launch, called)
        markers = self.markers
        if markers.start.size:
            yield State.BETWEEN, complement(markers)
        if not self._has_queue:
            yield State.DEVICE_WAIT, self._replica_work
        yield State.HOST_OPS, own.host_ops
        yield State.INPUT, own.pipeline
        yield State.HOST_OPS, intersection(others.host_ops, called)
        yield self._scheduling, own.scheduling
        yield self._scheduling, intersection(others.scheduling, called)
        if self._has_queue:
            yield State.HOST_OPS, intersection(_longer_than(own.unlisted, HANDOVER_PS), called)
        dispatched = (own.scheduling, own.launch, called)
        yield self._scheduling, without_holes(joined_spans(dispatched), BACK_TO_BACK_PS)
        if self.runs_python(self.caller):
            yield State.PYTHON, self._python(self.caller)

    def _executor_layers(self, thread: int) -> Iterable[Layer]:
        own, others = self._evidence(thread), self._executors
        yield from own.strong
        if self._has_queue:
            yield State.LAUNCH, own.launch
            yield State.HOST_OPS, own.host_ops
        yield State.INPUT, own.pipeline
        if self._has_queue:
            yield State.HOST_OPS, own.unlisted
        yield from others.strong
        if self._has_queue:
            yield State.LAUNCH, others.launch
        else:
            yield State.DEVICE_WAIT, self._replica_work
        yield State.HOST_OPS, others.host_ops
        yield self._scheduling, without_holes(others.scheduling, BACK_TO_BACK_PS)
        yield State.INPUT, others.pipeline
        yield self._scheduling, self._handovers
        if self.runs_python(thread):
            yield State.PYTHON, self._python(thread)
        else:
            yield self._scheduling, own.other
        # What the caller prepares has not begun, and what it waits for has not come.
        yield from self._evidence(self.caller).strong

    @cached_property
    def caller_spans(self) -> tuple[IntervalSet, IntervalSet]:
        """When the caller shows what it does, step markers aside, and when it waits for a device."""
        rows = self.rows_of_thread(self.caller)
        rows = rows[self.is_spoken(rows) & ~self.is_marker(rows)]
        spoken = union(self._columns.start_ps[rows], self._columns.end_ps[rows])
        return spoken, self.timeline(self.caller).spans_of((State.SYNC,))

    @property
    def _scheduling(self) -> State:
        """The cause that scheduling counts as: a host of replicas has nothing to launch."""
        return State.LAUNCH if self._has_queue else State.HOST_OPS

    @cached_property
    def _executors(self) -> Evidence:
        """What all other threads of the model show together."""
        others = [self._evidence(thread) for thread in self._threads if thread != self.caller]
        strong = [
            (cause, [shown.strong[at][1] for shown in others])
            for at, (cause, _) in enumerate(STRONG)
        ]
        strong[0][1].append(self._async_input)
        return Evidence(
            tuple((cause, joined_spans(parts)) for cause, parts in strong),
            *(
                joined_spans(getattr(shown, kind) for shown in others)
                for kind in Evidence.__struct_fields__[1:]
            ),
        )

    @cached_property
    def _handovers(self) -> IntervalSet:
        """When a graph call waited for an executor to wake up: none of them recorded anything, for a short time."""
        others = self._executors
        recorded = (others.launch, others.host_ops, others.pipeline, others.scheduling)
        silent = difference(
            self.calls, joined_spans((*recorded, *(layer for _, layer in others.strong)))
        )
        return difference(silent, _longer_than(silent, HANDOVER_PS))

    # The events that show the causes of gaps

    def shown_by(
        self, state: Int64Array, thread: Int32Array, start_ps: Int64Array, end_ps: Int64Array
    ) -> Int64Array:
        """The host row that shows each state from a start to an end at which a thread was late: the innermost, `NONE` without one.

        On that thread or the one that calls graphs, else on any.
        """
        columns, rows, times = self._columns, self.rows_of_model, np.sort(start_ps)
        # Few events run at one of the starts.
        rows = rows[places(times, columns.start_ps[rows]) < places(times, columns.end_ps[rows])]
        rows = rows[~self.is_marker(rows)]
        of_thread = self.thread[columns.line[rows]]
        result = np.full(start_ps.size, NONE, dtype=np.int64)
        for group in groups_of(state, thread):
            shows = self._show(rows, State(state[group[0]]))
            is_near = is_in(of_thread, (int(thread[group[0]]), self.caller))
            for searched in (rows[shows & is_near], rows[shows]):
                left = group[result[group] == NONE]
                nest = nesting(columns.start_ps[searched], columns.end_ps[searched])
                inner, ends = nest.innermost(start_ps[left]), np.append(columns.end_ps[searched], 0)
                for _ in range(_DEEPEST):
                    ends_early = (inner != NONE) & (ends[inner] <= end_ps[left])
                    if not ends_early.any():
                        break
                    inner[ends_early] = nest.parent[inner[ends_early]]
                result[left] = np.append(searched, NONE)[inner]
        return result

    def _show(self, rows: Int64Array, state: State) -> BoolArray:
        """Which rows show a state."""
        if state in (State.PYTHON, State.BETWEEN_CALLS):
            return ~self.is_spoken(rows)
        shows = is_in(self.kind_of(rows), _SHOWN_BY.get(state, ()))
        return shows | self._stat("tf_function_call").has(rows) if state == State.COMPILE else shows


def _longer_than(spans: IntervalSet, length_ps: int) -> IntervalSet:
    is_long = spans.end - spans.start > length_ps
    return union(spans.start[is_long], spans.end[is_long])


def merged_rows(parts: Iterable[Int64Array]) -> Int64Array:
    """Ascending rows, each once, of several that are; in the order of the file, which mostly is that of time."""
    filled = [part for part in parts if part.size]
    if len(filled) < 2:
        return filled[0] if filled else np.empty(0, dtype=np.int64)
    return unique_ids(np.concatenate(filled))
