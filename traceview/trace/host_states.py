"""Builds a timeline of causes for each thread that devices wait for: what the host did while a device was idle.

The events open on a thread show its state. If it has none and runs a graph, the executor threads of the host show it:

    thread that calls     ▕ train ───────────────────────────────▏            ▕ train ──
      its own events      ▕ IteratorGetNext ▏▕ FunctionRun ──────▏            ▕
      executors in a call                    ▕ Process ▕ op ▏▕op▏▏            ▕
      its timeline        │ input            │ launch or host_compute │ callback │ …
                                                              outside of markers ↑

The caller is the thread that calls graphs; executors are all other threads. Threads of the input pipeline
(`tf_data…`) have no state of their own; an iterator op there counts as `input` of the executors if a graph call
shares its `id`. At each instant the first of these layers that is open gives the cause:

    the caller                                          an executor thread
    1  strong: input, h2d, compile, sync, checkpoint    strong
    2  strong on executors, in a graph call             launch, then host_compute, then pipeline
    3  launch; launch on executors, in a graph call     strong on all executors, then launch
    4  callback: outside of step markers                host_compute on all executors
    5  host_compute, pipeline; on executors, in a call  scheduling on all executors
    6  scheduling; on executors, in a graph call        holes between two of these
    7  graph calls, and holes between scheduling,       pipeline on all executors
       launches and graph calls
    8  python                                           handover in a graph call, then, on a thread of Python,
                                                        its own Python and that of other executors

Strong: events with names of these kinds (`host_names`); a `tf.function` from the start of its tracing to its first
graph call (compile); the preparation of a graph for its first call, which copies its constants to the device (compile);
and a copy from a device, from its call to its end, if no event began on the calling thread between the return of the
call and that end (sync).
Launch: driver calls that are neither copies nor waits, and ops that make such a call or are shorter than
`SCHEDULING_OP_PS`; also holes of up to `BACK_TO_BACK_PS` between two of these on one thread, in which Python and C++
code runs that records no event.
Host_compute: the other ops.
Pipeline: ops and scheduling of the input pipeline on threads of the model. It counts as `input`.
Scheduling: dispatches, executor loops and calls of a `tf.function`. It counts as `launch`, and so do graph calls and
holes of up to `BACK_TO_BACK_PS` (6 and 7).
Handover: no executor recorded anything for up to `HANDOVER_PS` during a graph call: a thread is being woken up. It
counts as scheduling.
Python: a thread recorded nothing until it began an event that Python calls.

On hosts without device planes the replicas are threads themselves. Nothing there is `launch` or `h2d`. Scheduling
counts as `host_compute`, and so do ops that no replica owns. The ops of another replica are `peer`, which comes
before `host_compute`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.ids import is_in, unique_ids, unique_inverse
from traceview.intervals import (
    BoolArray,
    Int32Array,
    Int64Array,
    IntervalSet,
    difference,
    places,
    union,
)
from traceview.trace.cause import Cause
from traceview.trace.correlation import ProducerConsumerLinks
from traceview.trace.model import NONE, HostStat, HostSteps, Trace
from traceview.trace.state_timeline import (
    Layer,
    StateTimeline,
    complement,
    intersection,
    stacked,
    without_holes,
)
from traceview.units import PS_PER_US
from traceview.xplane.host_names import (
    HostNameKind,
    host_name_kind,
    is_pipeline_call,
    is_python_call,
    is_python_frame,
)
from traceview.xplane.planes import ActivityClass

BACK_TO_BACK_PS: Final = 100 * PS_PER_US
"""TensorFlow's GPU guide gives 20 to 40 µs for a launch; launches more than twice that apart are not back to back."""
SCHEDULING_OP_PS: Final = 50 * PS_PER_US
"""A CPU op shorter than this is part of scheduling; XProf calls an iterator slow from the same duration on."""
HANDOVER_PS: Final = 1000 * PS_PER_US
"""An executor is woken up within this time; 97 % of such holes in 17 recordings on two cores were shorter than 0.5 ms."""

LONG_AGO_PS: Final = -(1 << 61)
"""A time before any event."""

_EXPLICIT_METHODS: Final = ("marker", "keras")
_LONGEST_CHAIN: Final = 8
_MAIN_THREAD: Final = "python"
_CONSTANT: Final = b"MakeTensorFromProto"
"""The op of a copy that puts a constant of a graph on a device, when the graph's kernels are made (TensorFlow)."""
_STRONG: Final = (
    (Cause.INPUT, HostNameKind.INPUT),
    (Cause.H2D, HostNameKind.H2D),
    (Cause.COMPILE, HostNameKind.COMPILE),
    (Cause.SYNC, HostNameKind.SYNC),
    (Cause.CHECKPOINT, HostNameKind.CHECKPOINT),
)
_DRIVER_CALLS: Final = (HostNameKind.H2D, HostNameKind.D2H, HostNameKind.SYNC)
"""A Python thread makes such calls itself where it hands on an array or reads a value."""


class _Evidence(Struct, frozen=True, eq=False):
    """The time that the events of a set of threads show for each kind of state."""

    strong: tuple[Layer, ...]
    launch: IntervalSet
    host_compute: IntervalSet
    pipeline: IntervalSet
    scheduling: IntervalSet


class HostStates:
    """The timelines of one host's threads, each built on first use.

    `thread`: int32, the thread of each line of the trace. `caller`: the thread that runs the steps, `NONE`
    if the host recorded no thread.
    """

    def __init__(self, trace: Trace, host: int) -> None:
        self._trace = trace
        self._host = host
        self._columns = trace.host_columns
        self._span = trace.host_columns.rows_of_host(host)
        self._stats: dict[str, HostStat] = {}
        self.thread: Int32Array = trace.thread_of_line
        self._has_queue = any(
            trace.device_list[device].kind != "replica" for device in trace.devices_of_host[host]
        )
        self._steps: HostSteps = trace.steps_by_host[host]
        of_host = np.flatnonzero(trace.host_of_line == host).tolist()
        self._lines = [line for line in of_host if trace.lines[line].is_thread]
        self._timelines: dict[int, StateTimeline] = {}
        self._evidence_of: dict[int, _Evidence] = {}
        self._rows_of: dict[int, Int64Array] = {}
        self._is_python_thread: dict[int, bool] = {}
        self._spoken: dict[int, tuple[Int64Array, Int64Array, Int64Array]] = {}
        self._by_start: dict[int, tuple[Int64Array, Int64Array, Int64Array]] = {}

    @cached_property
    def caller(self) -> int:
        """The thread that runs the steps.

        That is the thread of the first marker, else the thread with most graph calls, else the first thread named
        `python…`, else the thread with most driver calls, else the first thread. Of threads with equally many calls
        the one with the earliest call counts.
        """
        if self._steps.marker_line != NONE:
            return int(self.thread[self._steps.marker_line])
        if self._call_rows.size:
            return self._busiest(self._call_rows)
        for line in self._lines:
            if self._trace.lines[line].name.startswith(_MAIN_THREAD):
                return int(self.thread[line])
        launches = _among(self._stat("correlation_id").row, self._rows_of_host)
        if launches.size:
            return self._busiest(launches)
        return int(self.thread[self._lines[0]]) if self._lines else NONE

    def _busiest(self, rows: Int64Array) -> int:
        """The thread with most of the rows, of several the one with the earliest row."""
        candidates, of_row = unique_inverse(self.thread[self._columns.line[rows]])
        count = np.bincount(of_row)
        first = np.full(candidates.size, -LONG_AGO_PS, dtype=np.int64)
        np.minimum.at(first, of_row, self._columns.start_ps[rows])
        return int(candidates[np.lexsort((first, -count))[0]])

    def handed_over(self, rows: Int64Array) -> tuple[Int64Array, Int32Array]:
        """When the caller handed on the work of each host row, int64 picoseconds, and the thread that was late then.

        The chain of producers and consumers leads from the innermost consumer around the row to the first producer
        of its id, and on from there, to an event of the caller; its start is the result. Without such a chain it is
        the start of the last graph calls that began before the row, or if those ended before it, of the last thing
        that Python called before it; `LONG_AGO_PS` without any. Rows of the caller itself are never handed over: their
        time is far in the future.

        The thread is that of the row; but if the chain ends on another thread of Python than the caller, as with a
        thread per replica outside of graphs, it is that one.
        """
        columns = self._columns
        thread, start = self.thread[columns.line[rows]], columns.start_ps[rows]
        result, called_until = _last_begun(self._calls, start)
        dispatched, _ = _last_begun(self._dispatches, start)
        result = np.where(called_until <= start, np.maximum(result, dispatched), result)
        result[thread == self.caller] = -LONG_AGO_PS
        links = self._links
        open_ = np.flatnonzero(thread != self.caller)
        current = rows[open_]
        for _ in range(_LONGEST_CHAIN):
            producer = links.producer_of(current)
            known = producer != NONE
            open_, current = open_[known], producer[known]
            by_caller = self.thread[columns.line[current]] == self.caller
            result[open_[by_caller]] = columns.start_ps[current[by_caller]]
            open_, current = open_[~by_caller], current[~by_caller]
            if open_.size == 0:
                break
            producing = self.thread[columns.line[current]]
            is_python = np.array([self._runs_python(one) for one in producing.tolist()], dtype=bool)
            thread[open_[is_python]] = producing[is_python]
        return result, thread

    def _runs_python(self, thread: int) -> bool:
        """Whether a thread recorded something that only Python begins: a call or a frame of it."""
        if thread not in self._is_python_thread:
            rows = self.rows_of_thread(thread)
            is_python = self._is_called(rows) | self._is_frame[self._columns.name[rows]]
            self._is_python_thread[thread] = bool(is_python.any())
        return self._is_python_thread[thread]

    def rows_of_thread(self, thread: int) -> Int64Array:
        """The events of a thread, ascending; none if it belongs to the input pipeline."""
        if thread not in self._rows_of:
            lines = np.flatnonzero((self.thread == thread) & self._is_model_line)
            spans = [self._columns.rows_of(line) for line in lines.tolist()]
            parts = [np.arange(span.start, span.stop) for span in spans]
            self._rows_of[thread] = np.concatenate([np.empty(0, dtype=np.int64), *parts])
        return self._rows_of[thread]

    def open_in(self, thread: int, start_ps: int, end_ps: int) -> Int64Array:
        """The events of a thread that overlap a span, ascending in start."""
        rows, start, reach = self._sorted_rows(thread)
        # Rows up to the first that reaches the span have ended before it; few rows lie between that and its end.
        near = rows[np.searchsorted(reach, start_ps, side="right") : np.searchsorted(start, end_ps)]
        result: Int64Array = near[self._columns.end_ps[near] > start_ps]
        return result

    def first_after(self, thread: int, time_ps: int) -> int:
        """The first event of a thread that shows what it does and begins at an instant or later; `NONE` without."""
        rows, start, _ = self._spoken_rows(thread)
        place = int(np.searchsorted(start, time_ps))
        return int(rows[place]) if place < rows.size else NONE

    def last_before(self, thread: int, time_ps: int) -> int:
        """The event of a thread that shows what it does and ended last by an instant; `NONE` without any."""
        rows, _, order = self._spoken_rows(thread)
        end = self._columns.end_ps[rows[order]]
        place = int(np.searchsorted(end, time_ps, side="right"))
        return int(rows[order[place - 1]]) if place else NONE

    def line_of(self, thread: int) -> int:
        """The first line of a thread."""
        return int(np.flatnonzero(self.thread == thread)[0])

    def _spoken_rows(self, thread: int) -> tuple[Int64Array, Int64Array, Int64Array]:
        """The events of a thread that show what it does, by start; their starts; and their order by end."""
        if thread not in self._spoken:
            rows, _, _ = self._sorted_rows(thread)
            rows = rows[self.is_spoken(rows)]
            order = np.argsort(self._columns.end_ps[rows], kind="stable")
            self._spoken[thread] = rows, self._columns.start_ps[rows], order
        return self._spoken[thread]

    def _sorted_rows(self, thread: int) -> tuple[Int64Array, Int64Array, Int64Array]:
        """The events of a thread by start, their starts, and the latest end up to each."""
        if thread not in self._by_start:
            rows = self.rows_of_thread(thread)
            start = self._columns.start_ps[rows]
            if (start[1:] < start[:-1]).any():
                order = np.argsort(start, kind="stable")
                rows, start = rows[order], start[order]
            reach = np.maximum.accumulate(self._columns.end_ps[rows])
            self._by_start[thread] = rows, start, reach
        return self._by_start[thread]

    @cached_property
    def rows_of_model(self) -> Int64Array:
        """The events of all threads of the model, and the iterator ops on tf.data threads that the model waits for."""
        rows = self._rows_of_host
        waited = self.kind_of(rows) == HostNameKind.ASYNC_INPUT
        result: Int64Array = rows[waited | self._is_model_line[self._columns.line[rows]]]
        return result

    def kind_of(self, rows: Int64Array) -> npt.NDArray[np.uint8]:
        """The activity of the thread at each host row, as `HostNameKind`."""
        return self._kind[self._columns.name[rows]]

    @cached_property
    def computing_rows(self) -> Int64Array:
        """Ops that compute on the host: they launch nothing and take longer than scheduling."""
        computing = [np.empty(0, dtype=np.int64)]
        for thread in unique_ids(self.thread[self._lines]).tolist():
            rows = self.rows_of_thread(thread)
            ops = rows[(self.kind_of(rows) == HostNameKind.OP) & ~self._is_pipeline(rows)]
            computing.append(self._split_ops(ops, self._launches_among(rows))[1])
        return np.concatenate(computing)

    @cached_property
    def pipeline_ops(self) -> Int64Array:
        """Ops of the input pipeline, on whichever thread they run."""
        rows = self._rows_of_host
        result: Int64Array = rows[(self.kind_of(rows) == HostNameKind.OP) & self._is_pipeline(rows)]
        return result

    def is_in_step(self, rows: Int64Array) -> BoolArray:
        """Which host rows begin inside a step marker."""
        markers = self.markers
        opened = np.searchsorted(markers.start, self._columns.start_ps[rows], side="right") - 1
        result: BoolArray = opened >= 0
        if markers.start.size:
            result &= markers.end[np.maximum(opened, 0)] > self._columns.start_ps[rows]
        return result

    def is_marker(self, rows: Int64Array) -> BoolArray:
        """Which host rows are step markers."""
        return self._is_marker[rows]

    @cached_property
    def _is_marker(self) -> BoolArray:
        """Whether each host row is a step marker."""
        columns = self._columns
        rows = np.flatnonzero(columns.line == self._steps.marker_line)
        spans = np.array((*self._steps.marker_spans, (LONG_AGO_PS, LONG_AGO_PS)), dtype=np.int64)
        spans = spans[np.argsort(spans[:, 0])]
        place = np.searchsorted(spans[:, 0], columns.start_ps[rows], side="right") - 1
        result: BoolArray = np.zeros(columns.line.size, dtype=np.bool_)
        result[rows] = (spans[place, 0] == columns.start_ps[rows]) & (
            spans[place, 1] == columns.end_ps[rows]
        )
        return result

    @cached_property
    def _links(self) -> ProducerConsumerLinks:
        return ProducerConsumerLinks(self._columns, self.thread, self._host)

    def timeline(self, thread: int) -> StateTimeline:
        """The causes that a thread shows, over all time."""
        if thread not in self._timelines:
            layers = (
                self._caller_layers() if thread == self.caller else self._executor_layers(thread)
            )
            self._timelines[thread] = stacked(list(layers))
        return self._timelines[thread]

    def own_timeline(self, thread: int) -> StateTimeline:
        """The causes that the events of one thread show, whatever other threads do."""
        own = self._evidence(thread)
        layers = [*own.strong, (Cause.LAUNCH, own.launch)] if self._has_queue else [*own.strong]
        layers += [(Cause.HOST_COMPUTE, own.host_compute), (Cause.INPUT, own.pipeline)]
        return stacked([*layers, (self._scheduling, own.scheduling)])

    # Layers

    def _caller_layers(self) -> Iterable[Layer]:
        own, others = self._evidence(self.caller), self._executors
        called = self._calls
        yield from own.strong
        yield from ((cause, intersection(layer, called)) for cause, layer in others.strong)
        if self._has_queue:
            yield Cause.LAUNCH, own.launch
            yield Cause.LAUNCH, intersection(others.launch, called)
        markers = self.markers
        if markers.start.size:
            yield Cause.CALLBACK, complement(markers)
        if not self._has_queue:
            yield Cause.PEER, self._replica_work
        yield Cause.HOST_COMPUTE, own.host_compute
        yield Cause.INPUT, own.pipeline
        yield Cause.HOST_COMPUTE, intersection(others.host_compute, called)
        yield self._scheduling, own.scheduling
        yield self._scheduling, intersection(others.scheduling, called)
        dispatched = (own.scheduling, own.launch, called)
        yield self._scheduling, without_holes(_joined(dispatched), BACK_TO_BACK_PS)
        if self._runs_python(self.caller):
            yield Cause.PYTHON, self._python(self.caller)

    def _executor_layers(self, thread: int) -> Iterable[Layer]:
        own, others = self._evidence(thread), self._executors
        yield from own.strong
        if self._has_queue:
            yield Cause.LAUNCH, own.launch
            yield Cause.HOST_COMPUTE, own.host_compute
        yield Cause.INPUT, own.pipeline
        yield from others.strong
        if self._has_queue:
            yield Cause.LAUNCH, others.launch
        else:
            yield Cause.PEER, self._replica_work
        yield Cause.HOST_COMPUTE, others.host_compute
        yield self._scheduling, others.scheduling
        yield self._scheduling, without_holes(others.scheduling, BACK_TO_BACK_PS)
        yield Cause.INPUT, others.pipeline
        yield self._scheduling, self._handovers
        if self._runs_python(thread):
            yield Cause.PYTHON, self._python(thread)
            yield Cause.PYTHON, self._python_on_executors

    @property
    def _scheduling(self) -> Cause:
        """The cause that scheduling counts as: a host of replicas has nothing to launch."""
        return Cause.LAUNCH if self._has_queue else Cause.HOST_COMPUTE

    @cached_property
    def _executors(self) -> _Evidence:
        """What all other threads of the model show together."""
        threads_ = [
            self._evidence(thread)
            for thread in unique_ids(self.thread[self._lines]).tolist()
            if thread != self.caller
        ]
        strong = [
            (cause, _joined(evidence.strong[index][1] for evidence in threads_))
            for index, (cause, _) in enumerate(_STRONG)
        ]
        strong[0] = (Cause.INPUT, _joined((strong[0][1], self._async_input)))
        return _Evidence(
            strong=tuple(strong),
            launch=_joined(evidence.launch for evidence in threads_),
            host_compute=_joined(evidence.host_compute for evidence in threads_),
            pipeline=_joined(evidence.pipeline for evidence in threads_),
            scheduling=_joined(evidence.scheduling for evidence in threads_),
        )

    @cached_property
    def _handovers(self) -> IntervalSet:
        """When a graph call waited for an executor to wake up: none of them recorded anything, for a short time."""
        others = self._executors
        recorded = (others.launch, others.host_compute, others.pipeline, others.scheduling)
        silent = difference(
            self._calls, _joined((*recorded, *(layer for _, layer in others.strong)))
        )
        is_short = silent.end - silent.start <= HANDOVER_PS
        return union(silent.start[is_short], silent.end[is_short])

    def _evidence(self, thread: int) -> _Evidence:
        """What the events of one thread show."""
        if thread not in self._evidence_of:
            self._evidence_of[thread] = self._evidence_in(self.rows_of_thread(thread))
        return self._evidence_of[thread]

    def _evidence_in(self, rows: Int64Array) -> _Evidence:
        kind, in_pipeline = self.kind_of(rows), self._is_pipeline(rows)
        launches = self._launches_among(rows)
        launching, computing = self._split_ops(
            rows[(kind == HostNameKind.OP) & ~in_pipeline], launches
        )
        strong = {cause: self._spans(rows[kind == strong_kind]) for cause, strong_kind in _STRONG}
        if not self._has_queue:
            strong[Cause.H2D] = self._spans(rows[:0])
        strong[Cause.COMPILE] = _joined(
            (strong[Cause.COMPILE], self._traced(rows), self._prepared(rows))
        )
        strong[Cause.SYNC] = _joined((strong[Cause.SYNC], self._reads(rows)))
        functions = _among(self._stat("tf_function_call").row, rows)
        is_scheduling = is_in(kind, (HostNameKind.DISPATCH, HostNameKind.EXECUTOR))
        scheduling = rows[is_scheduling & ~in_pipeline]
        pipeline = rows[(is_scheduling | (kind == HostNameKind.OP)) & in_pipeline]
        return _Evidence(
            strong=tuple(strong.items()),
            launch=without_holes(self._spans(launching), BACK_TO_BACK_PS),
            host_compute=self._spans(computing),
            pipeline=self._spans(pipeline),
            scheduling=self._spans(np.concatenate((scheduling, functions))),
        )

    def _launches_among(self, rows: Int64Array) -> Int64Array:
        """Driver calls that are neither copies nor waits: those have causes of their own."""
        launches = _among(self._stat("correlation_id").row, rows)
        kind = self.kind_of(launches)
        result: Int64Array = launches[(kind == HostNameKind.OTHER) | (kind == HostNameKind.OP)]
        return result

    def _split_ops(self, ops: Int64Array, launches: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Launches with the ops that only launch, and the ops that compute on the host."""
        columns = self._columns
        if not self._has_queue:
            return np.empty(0, dtype=np.int64), ops[is_in(ops, self._trace.shared_rows)]
        start = np.sort(columns.start_ps[launches])
        first = places(start, columns.start_ps[ops])
        last = places(start, columns.end_ps[ops])
        computes = (last == first) & (columns.duration_ps[ops] >= SCHEDULING_OP_PS)
        return np.concatenate((launches, ops[~computes])), ops[computes]

    # What is known of the host

    @cached_property
    def _kind(self) -> npt.NDArray[np.uint8]:
        """The activity of a thread while an event is open, as `HostNameKind`, by name of the trace."""
        names = self._trace.names
        kind = np.zeros(len(names), dtype=np.uint8)
        for name in self._own_names:
            kind[name] = host_name_kind(names[name])
        return kind

    def _names_that(self, matches: Callable[[bytes], bool]) -> BoolArray:
        """Which names of the trace match, of those that the host recorded."""
        names = self._trace.names
        result = np.zeros(len(names), dtype=np.bool_)
        for name in self._own_names:
            result[name] = matches(names[name])
        return result

    @cached_property
    def _own_names(self) -> list[int]:
        """The names of the trace that the host recorded."""
        result: list[int] = unique_ids(self._columns.name[self._span]).tolist()
        return result

    def _stat(self, key: str) -> HostStat:
        """A stat of the events of this host."""
        if key not in self._stats:
            self._stats[key] = self._columns.stat(key).among(self._span)
        return self._stats[key]

    @cached_property
    def _is_python_call(self) -> BoolArray:
        return self._names_that(is_python_call)

    @cached_property
    def _is_frame(self) -> BoolArray:
        return self._names_that(is_python_frame)

    def _is_pipeline(self, rows: Int64Array) -> BoolArray:
        """Which rows of this host belong to the input pipeline."""
        result: BoolArray = self._in_pipeline[rows - self._span.start]
        return result

    @cached_property
    def _in_pipeline(self) -> BoolArray:
        """The same of all rows of this host: they began in a call of the pipeline, or in what runs under its id."""
        columns, id_ = self._columns, self._stat("id")
        rows, first = self._rows_of_host, self._span.start
        is_root = self._names_that(is_pipeline_call)[columns.name[rows]]
        captured = id_.value[is_root[id_.row - first]]
        is_root[id_.row[is_in(id_.value, captured)] - first] = True
        result = np.zeros(rows.size, dtype=np.bool_)
        roots, thread = rows[is_root], self.thread[columns.line[rows]]
        for number in unique_ids(thread[is_root]).tolist():
            own = rows[thread == number]
            spans = self._spans(roots[self.thread[columns.line[roots]] == number])
            _, until = _last_begun(spans, columns.start_ps[own])
            result[own - first] = columns.start_ps[own] < until
        return result

    @cached_property
    def _rows_of_host(self) -> Int64Array:
        return np.arange(self._span.start, self._span.stop)

    @cached_property
    def _is_model_line(self) -> BoolArray:
        """Lines of this host on which the model runs, not its input pipeline."""
        result: BoolArray = self._trace.runs_model & (self._trace.host_of_line == self._host)
        return result

    def _rows_of_kind(self, kind: HostNameKind) -> Int64Array:
        rows = self._rows_of_host
        result: Int64Array = rows[self.kind_of(rows) == kind]
        return result

    def _spans(self, rows: Int64Array) -> IntervalSet:
        return union(self._columns.start_ps[rows], self._columns.end_ps[rows])

    @cached_property
    def _call_rows(self) -> Int64Array:
        """The events that run a graph, except those of the input pipeline."""
        rows = self._rows_of_kind(HostNameKind.CALL)
        return rows[self._is_model_line[self._columns.line[rows]]]

    @cached_property
    def _calls(self) -> IntervalSet:
        """When the caller runs a graph."""
        rows = self._call_rows
        return self._spans(rows[self.thread[self._columns.line[rows]] == self.caller])

    @cached_property
    def markers(self) -> IntervalSet:
        """When the host was in a step, if markers show it; function calls do not show what lies between steps."""
        spans = np.array(self._steps.marker_spans, dtype=np.int64).reshape(-1, 2)
        if self._steps.method not in _EXPLICIT_METHODS:
            spans = spans[:0]
        return union(spans[:, 0], spans[:, 1])

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
        waited = _among(id_.row, rows, values=id_.value)
        rows = _among(rows, id_.row)
        return self._spans(rows[is_in(waited, called)])

    def _traced(self, rows: Int64Array) -> IntervalSet:
        """Calls that traced a `tf.function`, up to where they run the traced graph."""
        columns, calls = self._columns, self._stat("tf_function_call")
        is_traced = [self._trace.names[int(v)].startswith(b"traced-") for v in calls.value]
        traced = _among(calls.row[np.array(is_traced, dtype=np.bool_)], rows)
        runs = self._call_rows
        end = columns.end_ps[traced].copy()
        for index, row in enumerate(traced.tolist()):
            inside = (
                (columns.line[runs] == columns.line[row])
                & (columns.start_ps[runs] >= columns.start_ps[row])
                & (columns.end_ps[runs] <= columns.end_ps[row])
            )
            end[index] = columns.start_ps[runs[inside]].min(initial=end[index])
        return union(columns.start_ps[traced], end)

    def _prepared(self, rows: Int64Array) -> IntervalSet:
        """When a graph was prepared for its first call: the thread recorded nothing but copies, among them constants."""
        columns = self._columns
        copies = _among(self.copies_of_constants, rows)
        if not copies.size:
            return self._spans(copies)
        spoken = self._spans(rows[self.is_spoken(rows) & (self.kind_of(rows) != HostNameKind.H2D)])
        copied = columns.start_ps[copies]
        copied = copied[spoken.within(copied, copied + 1) == 0]
        place = np.searchsorted(spoken.start, copied, side="right")
        first, last = columns.start_ps[rows].min(), columns.end_ps[copies].max()
        return union(np.append(first, spoken.end)[place], np.append(spoken.start, last)[place])

    @cached_property
    def copies_of_constants(self) -> Int64Array:
        """Host rows of the calls on this host that put constants of graphs on devices."""
        device, rows = self._trace.device_columns, self._trace.device_rows(self._host)
        is_constant = self._trace.names.matching(device.op[rows], [_CONSTANT])
        is_constant &= (device.class_[rows] == ActivityClass.H2D) & (device.launch[rows] != NONE)
        result: Int64Array = device.launch[rows[is_constant]]
        return result

    def is_spoken(self, rows: Int64Array) -> BoolArray:
        """Which rows show what the thread does: not frames of Python, scopes of programs and notes of allocators."""
        stats = ("correlation_id", "tf_function_call")
        result: BoolArray = self.kind_of(rows) != HostNameKind.OTHER
        for stat in stats:
            result |= self._stat(stat).has(rows)
        return result

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
        return _joined((union(reach[hole], start[hole + 1]), self._spans(frames)))

    @cached_property
    def _python_on_executors(self) -> IntervalSet:
        """When Python ran on any thread but the caller: of threads that take turns, one may begin late."""
        threads_ = unique_ids(self.thread[self._lines]).tolist()
        return _joined(
            self._python(thread)
            for thread in threads_
            if thread != self.caller and self._runs_python(thread)
        )

    def _is_called(self, rows: Int64Array) -> BoolArray:
        """Which rows Python begins."""
        result: BoolArray = self._is_python_call[self._columns.name[rows]]
        return result | self._stat("tf_function_call").has(rows)

    @cached_property
    def _dispatches(self) -> IntervalSet:
        """What Python called on the caller."""
        rows = self.rows_of_thread(self.caller)
        return self._spans(rows[self._is_called(rows)])

    def _reads(self, rows: Int64Array) -> IntervalSet:
        """Copies from a device that the calling thread waited for: it began no event between the call and the end."""
        columns = self._columns
        copies, calls = self._reads_of_devices
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
        return copies, device.launch[copies]


def _among(rows: Int64Array, wanted: Int64Array, values: Int64Array | None = None) -> Int64Array:
    """The `rows` that are in `wanted`, or their `values`."""
    result: Int64Array = (rows if values is None else values)[is_in(rows, wanted)]
    return result


def _last_begun(spans: IntervalSet, time: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Start and end of the last span that began by each instant, `LONG_AGO_PS` without one."""
    place = places(spans.start, time, right=True)
    return np.append(LONG_AGO_PS, spans.start)[place], np.append(LONG_AGO_PS, spans.end)[place]


def _joined(parts: Iterable[IntervalSet]) -> IntervalSet:
    empty = np.empty(0, dtype=np.int64)
    parts = (union(empty, empty), *parts)
    return union(
        np.concatenate([part.start for part in parts]), np.concatenate([part.end for part in parts])
    )
