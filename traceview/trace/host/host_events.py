"""Tells what the events of one host's threads are: which thread runs the steps, and which thread handed on what work.

The caller is the thread that calls graphs; executors are all other threads. Threads of the input pipeline (`tf_data…`)
have no events here, except for iterator ops that a graph call waits for.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from traceview.base.ids import is_in, unique_ids, unique_inverse
from traceview.base.intervals import (
    NEVER,
    BoolArray,
    Int32Array,
    Int64Array,
    IntervalSet,
    places,
    union,
)
from traceview.trace.columns import NONE, HostStat, kept
from traceview.trace.device.correlation import (
    EventsAround,
    ProducerConsumerLinks,
    calls_of_runs,
)
from traceview.trace.device.op_names import SideWork, side_work_of
from traceview.trace.model import HostSteps, Trace
from traceview.xplane.columns import joined
from traceview.xplane.planes import (
    ActivityClass,
    HostNameKind,
    host_name_kind,
    is_copy_to_device,
    is_pipeline_call,
    is_python_call,
    is_python_frame,
)

LONG_AGO_PS: Final = -(1 << 61)
"""A time before any event."""

_EXPLICIT_METHODS: Final = ("marker", "keras")
_LONGEST_CHAIN: Final = 8
_MAIN_THREAD: Final = "python"
_HAND_ON: Final = (b"ExecutorDoneCallback",)
"""What hands on the results of a function."""
DELETES: Final = (b"TFE_DeleteTensorHandle",)
"""What any thread of Python may begin that collects garbage."""
_CONSTANT: Final = b"MakeTensorFromProto"
"""The op of a copy that puts a constant of a graph on a device, when the graph's kernels are made (TensorFlow)."""


class HostEvents:
    """The events of one host by thread, and what each shows.

    `thread`: int32, the thread of each line of the trace. `caller`: the thread that runs the steps, `NONE`
    if the host recorded no thread.
    """

    def __init__(self, trace: Trace, host: int) -> None:
        self._trace = trace
        self._host = host
        self._has_queue = any(
            trace.device_list[device].kind != "replica" for device in trace.devices_of_host[host]
        )
        self._columns = trace.host_columns
        self._span = trace.host_columns.rows_of_host(host)
        self.thread: Int32Array = _with_driver_lines(trace, host)
        self._steps: HostSteps = trace.steps_by_host[host]
        self._markers: Int64Array = np.array(self._steps.markers, dtype=np.int64)
        of_host = np.flatnonzero(trace.host_of_line == host).tolist()
        self._lines = [line for line in of_host if trace.lines[line].is_thread]

    @cached_property
    def caller(self) -> int:
        """The thread that runs the steps (docs/method.md, "Which thread is the caller")."""
        if self._markers.size:
            return int(self.thread[self._columns.line[self._markers[0]]])
        if self._call_rows.size:
            return self._busiest(self._call_rows)
        for line in self._lines:
            if self._trace.lines[line].name.startswith(_MAIN_THREAD):
                return int(self.thread[line])
        # Its rows are those of the host alone.
        launches = self._stat("correlation_id").row
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

        Defined in docs/method.md, "Which thread counts"; `LONG_AGO_PS` without any handover. Rows of the caller itself are
        never handed over: their time is far in the future.
        """
        columns = self._columns
        thread, start = self.thread[columns.line[rows]], columns.start_ps[rows]
        result, called_until = last_begun(self.calls, start)
        dispatched, _ = last_begun(self._dispatches, start)
        result = np.where(called_until <= start, np.maximum(result, dispatched), result)
        if self._runs_executed:
            runs = self._stat("run_id").at(rows, NONE).tolist()
            known = zip(runs, result.tolist(), strict=True)
            result = np.array([self._runs_executed.get(*pair) for pair in known], dtype=np.int64)
            by = [self._run_by.get(run, self.caller) for run in runs]
            thread = np.where(np.array(by) != self.caller, by, thread)
        result[thread == self.caller] = -LONG_AGO_PS
        links = self.links
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
            threads, place = unique_inverse(producing)
            runs_python = [self.runs_python(one) for one in threads.tolist()]
            is_python = np.array(runs_python, dtype=np.bool_)[place]
            thread[open_[is_python]] = producing[is_python]
        return result, thread

    @cached_property
    def _runs_executed(self) -> dict[int, int]:
        """When the caller began to execute each run of a program of XLA."""
        start, runs = self._columns.start_ps, calls_of_runs(self._trace, self._host).items()
        return {run: int(start[row]) for run, row in runs if self._run_by[run] == self.caller}

    @cached_property
    def _run_by(self) -> dict[int, int]:
        """The thread that executed each run of a program of XLA."""
        runs = calls_of_runs(self._trace, self._host).items()
        return {run: int(self.thread[self._columns.line[row]]) for run, row in runs}

    @property
    def lines_of_python(self) -> list[int]:
        """The lines of the threads of this host on which Python calls TensorFlow, or JAX, for more than to delete a tensor."""
        columns, names = self._columns, self._trace.names
        found = []
        for line in self._lines:
            called = self._called_by_python(int(self.thread[line]))
            if called.size > names.matching(columns.name[called], DELETES).sum():
                found.append(line)
        return found

    @cached_property
    def guests(self) -> dict[int, Int64Array]:
        """Ops on CPU devices that another thread of Python handed on while the caller ran graphs of its own: no part of the steps.

        Of XLA whenever it did, on devices for which the caller executes programs. By thread their rows in the device columns, ascending.
        """
        threads = {int(self.thread[line]) for line in self.lines_of_python} - {self.caller}
        if self._has_queue or not threads or not self.calls.start.size:
            return {}
        columns, rows = self._trace.device_columns, self._trace.device_rows(self._host)
        rows = rows[columns.launch[rows] != NONE]
        _, thread = self.handed_over(columns.launch[rows].astype(np.int64))
        runs = self._stat("run_id").at(columns.launch[rows], NONE).tolist()
        is_of_caller = np.array([run in self._runs_executed for run in runs], dtype=np.bool_)
        of_caller = unique_ids(columns.device[rows[is_of_caller]])
        found = {}
        for each in sorted(threads):
            own = np.sort(rows[thread == each])
            start, end = columns.start_ps[own], columns.end_ps[own]
            # For the threads of replicas outside of graphs the caller waits, in none of its own.
            is_beside = 2 * int(self.calls.within(start, end).sum()) > int((end - start).sum())
            if is_beside or (own.size and is_in(columns.device[own], of_caller).all()):
                found[each] = own
        return found

    @kept
    def runs_python(self, thread: int) -> bool:
        """Whether a thread recorded something that only Python begins: a call or a frame of it."""
        rows = self.rows_of_thread(thread)
        is_frame = self._is_frame[self._columns.name[rows]]
        return bool(is_frame.any()) or bool(self._called_by_python(thread).size)

    def _called_by_python(self, thread: int) -> Int64Array:
        """The rows that Python begins: executors of graphs call functions, too, as a loop does."""
        rows = self.rows_of_thread(thread)
        return rows[self._is_called(rows) & ~is_in(rows, self._of_executors)]

    @cached_property
    def _of_executors(self) -> Int64Array:
        """The rows of functions that an op calls, or what goes on where one has ended."""
        columns, names = self._columns, self._trace.names
        own = columns.rows_of_host(self._host)
        runs, executes = (
            own.start + np.flatnonzero(names.matching(columns.name[own], each))
            for each in (_RUNS, _EXECUTES)
        )
        around = EventsAround(executes, columns, self.thread).innermost(runs)
        inside: Int64Array = runs[around != NONE]
        return inside

    def rows_of_thread(self, thread: int) -> Int64Array:
        """The events of a thread, ascending; none if it belongs to the input pipeline."""
        spans = map(self._columns.rows_of, self._model_lines.get(thread, ()))
        return joined([np.arange(span.start, span.stop) for span in spans], np.int64)

    @cached_property
    def _model_lines(self) -> dict[int, list[int]]:
        """The lines of each thread that runs the model."""
        found: dict[int, list[int]] = {}
        for line in np.flatnonzero(self._is_model_line).tolist():
            found.setdefault(int(self.thread[line]), []).append(line)
        return found

    def around(self, thread: int, start_ps: int, end_ps: int) -> tuple[int, int]:
        """The events of a thread that ended last before a span and began first after it, of those that show what it does.

        `NONE` without any.
        """
        rows, ended = self._spoken_rows(thread)
        before = int(np.searchsorted(self._columns.end_ps[ended], start_ps, side="right")) - 1
        after = int(np.searchsorted(self._columns.start_ps[rows], end_ps))
        return (
            int(ended[before]) if before >= 0 else NONE,
            int(rows[after]) if after < rows.size else NONE,
        )

    @kept
    def _spoken_rows(self, thread: int) -> tuple[Int64Array, Int64Array]:
        """The events of a thread that show what it does, by start and by end."""
        rows = self.by_start(thread)
        rows = rows[self.is_spoken(rows)]
        return rows, rows[np.argsort(self._columns.end_ps[rows], kind="stable")]

    @kept
    def by_start(self, thread: int) -> Int64Array:
        """The events of a thread by start."""
        rows = self.rows_of_thread(thread)
        return rows[np.argsort(self._columns.start_ps[rows], kind="stable")]

    def spans_by_thread(self, rows: Int64Array) -> dict[int, IntervalSet]:
        """When each thread has one of some events of this host open."""
        thread = self.thread[self._columns.line[rows]]
        return {
            number: self._spans(rows[thread == number]) for number in unique_ids(thread).tolist()
        }

    @cached_property
    def rows_of_model(self) -> Int64Array:
        """The events of all threads of the model, and the iterator ops on tf.data threads that the model waits for."""
        waited = self._kinds == HostNameKind.ASYNC_INPUT
        is_of_model = waited | self._is_model_line[self._columns.line[self._span]]
        rows: Int64Array = np.flatnonzero(is_of_model) + self._span.start
        return rows

    def kind_of(self, rows: Int64Array) -> npt.NDArray[np.uint8]:
        """The activity of the thread at each row of this host, as `HostNameKind`."""
        result: npt.NDArray[np.uint8] = self._kinds.take(rows - self._span.start)
        return result

    @cached_property
    def pipeline_work(self) -> Int64Array:
        """Ops and executor loops of the input pipeline, on whichever thread they run; cheap ops record no event.

        On its own threads also what hands on the results of a function.
        """
        columns = self._columns
        is_work = is_in(self._kinds, (HostNameKind.OP, HostNameKind.EXECUTOR)) & self._in_pipeline
        hands_on = self._trace.names.matching(columns.name[self._span], _HAND_ON)
        is_work |= hands_on & ~self._is_model_line[columns.line[self._span]]
        result: Int64Array = np.flatnonzero(is_work) + self._span.start
        return result

    @cached_property
    def pipeline_python(self) -> Int64Array:
        """Those of them that are Python functions: of a generator, or of `tf.py_function`."""
        rows = self.pipeline_work
        # Few of the names of a trace are those of its pipeline.
        is_python = self._trace.names.where(
            self._columns.name[rows], lambda name: side_work_of(name) is SideWork.PYTHON
        )
        return rows[is_python]

    def is_marker(self, rows: Int64Array) -> BoolArray:
        """Which rows of this host are step markers."""
        return is_in(rows, self._markers)

    @cached_property
    def links(self) -> ProducerConsumerLinks:
        """What its threads handed on to others."""
        return ProducerConsumerLinks(self._columns, self.thread, self._span)

    @cached_property
    def _kinds(self) -> npt.NDArray[np.uint8]:
        """The same by row of this host, counted from its first; to devices that are threads only XLA copies."""
        kind = self._trace.names.every(host_name_kind, np.uint8)
        if not self._has_queue:
            copies = self._trace.names.every(is_copy_to_device, np.bool_)
            kind = np.where(
                (kind == HostNameKind.H2D) & ~copies, np.uint8(HostNameKind.OTHER), kind
            )
        return kind[self._columns.name[self._span]]

    def _stat(self, key: str) -> HostStat:
        """A stat of the events of this host."""
        return self._columns.stat(key).among(self._span)

    def _rows_with(self, key: str, rows: Int64Array) -> Int64Array:
        """Which of some ascending rows of this host have a stat."""
        return rows[self._stat(key).has(rows)]

    @cached_property
    def _is_python_call(self) -> BoolArray:
        return self._trace.names.every(is_python_call, np.bool_)

    @cached_property
    def _is_frame(self) -> BoolArray:
        return self._trace.names.every(is_python_frame, np.bool_)

    @cached_property
    def _in_pipeline(self) -> BoolArray:
        """Which rows of this host are of the input pipeline: they began in a call of it, or in what runs under its id."""
        columns, id_ = self._columns, self._stat("id")
        first = self._span.start
        is_call = self._trace.names.every(is_pipeline_call, np.bool_)
        is_root = is_call[columns.name[self._span]]
        captured = id_.value[is_root[id_.row - first]]
        is_root[id_.row[is_in(id_.value, captured)] - first] = True
        result = np.zeros(is_root.size, dtype=np.bool_)
        roots = np.flatnonzero(is_root) + first
        for number, spans in self.spans_by_thread(roots).items():
            for line in np.flatnonzero(self.thread == number).tolist():
                own = columns.rows_of(line)
                start = columns.start_ps[own]
                result[own.start - first : own.stop - first] = start < last_begun(spans, start)[1]
        return result

    @cached_property
    def _is_model_line(self) -> BoolArray:
        """Lines of this host on which the model runs, not its input pipeline."""
        result: BoolArray = self._trace.runs_model & (self._trace.host_of_line == self._host)
        return result

    def _rows_of_kind(self, kind: HostNameKind) -> Int64Array:
        result: Int64Array = np.flatnonzero(self._kinds == kind) + self._span.start
        return result

    def _spans(self, rows: Int64Array) -> IntervalSet:
        if not rows.size:
            return NEVER
        return union(self._columns.start_ps[rows], self._columns.end_ps[rows])

    @cached_property
    def _call_rows(self) -> Int64Array:
        """The events that run a graph, except those of the input pipeline."""
        rows = self._rows_of_kind(HostNameKind.CALL)
        return rows[self._is_model_line[self._columns.line[rows]]]

    @cached_property
    def calls(self) -> IntervalSet:
        """When the caller runs a graph."""
        rows = self._call_rows
        return self._spans(rows[self.thread[self._columns.line[rows]] == self.caller])

    @cached_property
    def markers(self) -> IntervalSet:
        """When the host was in a step, if markers show it; function calls do not show what lies between steps."""
        return self._spans(self._markers) if self._steps.method in _EXPLICIT_METHODS else NEVER

    @cached_property
    def copies_of_constants(self) -> Int64Array:
        """Host rows of the calls on this host that put constants of graphs on devices."""
        device, rows = self._trace.device_columns, self._trace.device_rows(self._host)
        is_constant = self._trace.names.matching(device.op[rows], [_CONSTANT])
        is_constant &= (device.class_[rows] == ActivityClass.H2D) & (device.launch[rows] != NONE)
        return device.launch[rows[is_constant]].astype(np.int64)

    @cached_property
    def frames(self) -> IntervalSet:
        """When the tracer of Python shows a frame on any thread."""
        is_frame = self._is_frame[self._columns.name[self._span]]
        return self._spans(np.flatnonzero(is_frame) + self._span.start)

    def is_spoken(self, rows: Int64Array) -> BoolArray:
        """Which rows show what the thread does: not frames of Python, scopes of programs and notes of allocators."""
        stats = ("correlation_id", "tf_function_call")
        result: BoolArray = self.kind_of(rows) != HostNameKind.OTHER
        for stat in stats:
            result |= self._stat(stat).has(rows)
        return result

    def _is_called(self, rows: Int64Array) -> BoolArray:
        """Which rows Python begins."""
        result: BoolArray = self._is_python_call.take(self._columns.name[rows])
        return result | self._stat("tf_function_call").has(rows)

    @cached_property
    def _dispatches(self) -> IntervalSet:
        """What Python called on the caller."""
        rows = self.rows_of_thread(self.caller)
        return self._spans(rows[self._is_called(rows)])


_RUNS: Final = (b"FunctionRun",)
_EXECUTES: Final = (b"ExecutorState::Process", b"ExecutorDoneCallback")

_FEWEST_CALLS: Final = 8
"""Of fewer calls it may be chance that they lie inside the events of another line."""


def _with_driver_lines(trace: Trace, host: int) -> Int32Array:
    """The thread of each line. A line of driver calls is part of the thread whose events hold every one of its calls."""
    thread, columns = trace.thread_of_line, trace.host_columns
    of_host = np.flatnonzero(trace.host_of_line == host).tolist()
    rows_of = {
        line: rows
        for line in of_host
        if trace.lines[line].is_thread and (rows := columns.rows_of(line)).start < rows.stop
    }
    calls = columns.stat("correlation_id").among(columns.rows_of_host(host)).row
    call_count = np.bincount(columns.line[calls], minlength=thread.size)
    line_count = np.bincount(thread, minlength=thread.size)
    drivers = [
        line
        for line, rows in rows_of.items()
        if call_count[line] == rows.stop - rows.start >= _FEWEST_CALLS
        and line_count[thread[line]] == 1
    ]
    if not drivers:
        return thread
    is_frame = trace.names.every(is_python_frame, np.bool_)
    opened: list[tuple[int, int, IntervalSet]] = []
    for line, rows in rows_of.items():
        if call_count[line] == rows.stop - rows.start:
            continue
        known = ~is_frame[columns.name[rows]]
        spans = union(columns.start_ps[rows][known], columns.end_ps[rows][known])
        opened.append((spans.length, int(thread[line]), spans))
    opened.sort(key=lambda each: each[:2])
    holders = []
    for line in drivers:
        start, end = columns.start_ps[rows_of[line]], columns.end_ps[rows_of[line]]
        holds = (n for _, n, spans in opened if (spans.within(start, end) == end - start).all())
        holders.append(next(holds, NONE))
    result = thread.copy()
    for line, holder in zip(drivers, holders, strict=True):
        if holder != NONE and holders.count(holder) == 1:
            result[line] = holder
    return result


def among(rows: Int64Array, wanted: Int64Array, values: Int64Array | None = None) -> Int64Array:
    """The `rows` that are in `wanted`, or their `values`."""
    return (rows if values is None else values)[is_in(rows, wanted)]


def last_begun(spans: IntervalSet, time: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Start and end of the last span that began by each instant, `LONG_AGO_PS` without one."""
    place = places(spans.start, time, right=True)
    return np.append(LONG_AGO_PS, spans.start)[place], np.append(LONG_AGO_PS, spans.end)[place]
