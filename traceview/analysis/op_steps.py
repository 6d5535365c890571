"""Measures what each op takes of the used steps and of the critical path, for a comparison with another run.

The table of ops says what takes the window. A comparison needs more: how sure the time of a step is, and what of the
length of the step it makes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Final, NamedTuple, TypeAlias

import numpy as np
from msgspec import Meta, Struct

from traceview.analysis.base import Skipped
from traceview.analysis.context import Analysis, Context
from traceview.analysis.path.parts import FIRST_CAUSE
from traceview.analysis.path.result import walked_steps
from traceview.analysis.selection import step_bounds
from traceview.ids import unique_ids, unique_inverse
from traceview.intervals import Int64Array, places
from traceview.mean_variance import variance_of_mean
from traceview.record import Count, KernelName, OpName, OpType, Picoseconds, Record, one_of
from traceview.sweeping import SWEEPS
from traceview.trace.cause import CLASS_KEYS
from traceview.trace.model import NONE, Trace
from traceview.trace.op_labels import OpLabels, op_labels
from traceview.trace.ops import split_op
from traceview.xplane.columns import joined

MOST_OPS: Final = 100
"""Ops by the time of a step, and as many by their time on the path."""
MOST_SHAPES: Final = 8
"""Of one op."""

_SHAPE: Final = (
    r"(?:float|double|half|bfloat16|bool|string|resource|variant|complex\d+|u?int\d+|qu?int\d+|float8_e\dm\d\w{0,3})"
    r"(?:_ref)?\[[\d,?]*\]"
)
_SHAPES: Final = re.compile(rf"\((?:{_SHAPE}(?:;{_SHAPE})*)?\)")
Shapes: TypeAlias = Annotated[str, Meta(pattern=f"^{_SHAPES.pattern}$")]
"""The shapes of the inputs of an op: `(float[32,784];float[784,10])`."""

_SIGNATURE: Final = re.compile(r"[<(]")
_UNNAMED: Final = "(anonymous namespace)::"


class OpInSteps(Record, frozen=True):
    """An op with a kernel in the used steps, on all devices; events count in the step in which they start.

    Attributes:
        class_: Class of activity.
        op: Name of the op without its replica part; null where not recorded.
        op_type: Type of the op; null where not recorded.
        kernel: Name of the kernel without arguments and types; null for host ops of a replica.
        device_count: Devices on which it ran.
        count: Events in all used steps, on all devices.
        ps_per_step: Sum of their durations over all devices, mean of the used steps, rounded down, picoseconds.
        error_ps: Standard error of this mean, picoseconds; null for fewer than two steps.
        error_degrees: Degrees of freedom of the standard error; null where that is.
        path_ps: Its time on the critical path, all walked steps together, picoseconds.
        shapes: The distinct shapes of its inputs, in order; empty where not recorded. Of very many the first.
    """

    class_: Annotated[str, one_of(*CLASS_KEYS)]
    op: OpName | None
    op_type: OpType | None
    kernel: KernelName | None
    device_count: Count
    count: Count
    ps_per_step: Picoseconds
    error_ps: float | None
    error_degrees: float | None
    path_ps: Picoseconds
    shapes: tuple[Shapes, ...] = ()


class OpSteps(Record, frozen=True):
    """What the ops take of the used steps.

    Attributes:
        rows: The ops that take longest, and those that take most of the path, longest first.
        step_count: Used steps, with those of the same number on several hosts as one.
        walked_count: Steps of all hosts whose path was walked; path_ps is of all of them.
        left_out_count: Ops that are not among the rows.
        left_out_ps_per_step: Time of the longest of them in a step, picoseconds; 0 without any.
    """

    rows: tuple[OpInSteps, ...]
    step_count: Count
    walked_count: Count
    left_out_count: Count
    left_out_ps_per_step: Picoseconds


class _Op(NamedTuple):
    """What makes two events the same op."""

    class_: int
    op: str | None
    op_type: str | None
    kernel: str | None


def kernel_stem(name: str) -> str:
    """`void gemm<float, 4>(float*)` without types and arguments: `gemm`."""
    short = name.removeprefix("void ").replace(_UNNAMED, "")
    return _SIGNATURE.split(short, maxsplit=1)[0].strip() or name


def compute(context: Context) -> OpSteps | Skipped:
    """The ops of the used steps with the largest time."""
    trace = context.trace
    numbers = sorted({step.number for step in context.selection.used_steps})
    if not numbers:
        return Skipped("no used step")
    numbering = _Numbering(trace)
    devices = [_of_device(device, numbering) for device in _devices_in_steps(context, numbers)]
    walked = context.once(walked_steps)
    path = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    if not isinstance(walked, Skipped):
        is_activity = walked.parts.kind < FIRST_CAUSE
        rows = walked.parts.row[is_activity]
        path = numbering.of_rows(rows), walked.parts.duration_ps[is_activity]
    ops = numbering.ops
    total, count, device_count = np.zeros((3, len(ops)), dtype=np.int64)
    for device in devices:
        total += SWEEPS.totals(device.op, device.total_ps, len(ops))
        of_device = SWEEPS.totals(device.op, device.count, len(ops))
        count += of_device
        device_count += of_device > 0
    on_path = SWEEPS.totals(*path, len(ops))
    chosen = _largest(ops, total, on_path)
    place = np.full(len(ops), NONE, dtype=np.int64)
    place[chosen] = np.arange(chosen.size)
    series = np.zeros((chosen.size, len(numbers)), dtype=np.int64)
    for device in devices:
        of_label = np.full(numbering.labels.row.size, NONE, dtype=np.int64)
        of_label[device.label] = place[device.op]
        series += device.events.tabulated(numbering.labels, of_label, chosen.size, len(numbers))[0]
    is_left_out = np.ones(len(ops), dtype=np.bool_)
    is_left_out[chosen] = False
    made = []
    for row, op in enumerate(chosen.tolist()):
        times = series[row].astype(np.float64)
        variance, degrees = variance_of_mean(times) if len(numbers) > 1 else (None, None)
        made.append(
            OpInSteps(
                class_=CLASS_KEYS[ops[op].class_],
                op=ops[op].op,
                op_type=ops[op].op_type,
                kernel=ops[op].kernel,
                device_count=int(device_count[op]),
                count=int(count[op]),
                ps_per_step=int(total[op]) // len(numbers),
                error_ps=None if variance is None else round(variance**0.5, 1),
                error_degrees=None if degrees is None else round(degrees, 2),
                path_ps=int(on_path[op]),
                shapes=numbering.shapes_of(op),
            )
        )
    return OpSteps(
        rows=tuple(made),
        step_count=len(numbers),
        walked_count=0 if isinstance(walked, Skipped) else int(walked.length_ps.size),
        left_out_count=int(is_left_out.sum()),
        left_out_ps_per_step=int(total[is_left_out].max(initial=0)) // len(numbers),
    )


class _Events(Struct, frozen=True, eq=False):
    """The events of one device that start in a used step.

    `rows`: all of the device. `low`, `high`: by used step of its host those that start in it, counted from the first of
    these rows. `step`: the place of the number of the step.
    """

    trace: Trace
    device: int
    rows: slice
    low: Int64Array
    high: Int64Array
    step: Int64Array

    @property
    def started(self) -> Int64Array:
        """The rows of the events that start in one of the steps."""
        spans = zip(self.low.tolist(), self.high.tolist(), strict=True)
        return joined([np.arange(low, high) + self.rows.start for low, high in spans], np.int64)

    def tabulated(
        self, labels: OpLabels, row_of: Int64Array, rows: int, step_count: int
    ) -> tuple[Int64Array, Int64Array]:
        """By row and step the time and the number of the events; the label gives the row, `NONE` for none."""
        found: tuple[Int64Array, Int64Array] = SWEEPS.tabulated(
            labels.of_row[self.rows],
            self.trace.device_columns.duration_ps[self.rows],
            self.low,
            self.high,
            row_of,
            self.step if step_count > 1 else np.zeros_like(self.step),
            rows,
            step_count,
        )
        return found


class _DeviceOps(Struct, frozen=True, eq=False):
    """What one device ran in the used steps, by label, int64 `[labels of the device]`.

    `op`: the number of the op; `total_ps`, `count`: of all steps.
    """

    events: _Events
    label: Int64Array
    op: Int64Array
    total_ps: Int64Array
    count: Int64Array


def _devices_in_steps(context: Context, numbers: list[int]) -> Iterator[_Events]:
    trace, columns = context.trace, context.trace.device_columns
    place_of = {number: place for place, number in enumerate(numbers)}
    for index, device in enumerate(trace.device_list):
        used = context.selection.used_of(device.host)
        if not used:
            continue
        start, end = step_bounds(used)
        # An event belongs to the step that began last before it, if that has not ended.
        end = np.minimum(end, np.append(start[1:], end[-1]))
        rows = columns.rows_of(index)
        low, high = places(columns.start_ps[rows], start), places(columns.start_ps[rows], end)
        step = np.array([place_of[step.number] for step in used], dtype=np.int64)
        yield _Events(trace, index, rows, low, high, step)


def _of_device(events: _Events, numbering: _Numbering) -> _DeviceOps:
    count = numbering.labels.row.size
    sums, counts = events.tabulated(numbering.labels, np.arange(count), count, 1)
    label = np.flatnonzero(counts)
    op = numbering.of(events.device, label)
    if numbering.has_shapes:
        numbering.of_rows(events.started)
    return _DeviceOps(events, label, op, sums[label, 0], counts[label, 0])


class _Numbering:
    """Numbers ops in the order in which they are asked for. `ops`: by number."""

    def __init__(self, trace: Trace) -> None:
        self.ops: list[_Op] = []
        self.labels = trace.once(op_labels)
        self._columns = columns = trace.device_columns
        self._is_replica = [device.kind == "replica" for device in trace.device_list]
        self._number_of: dict[_Op, int] = {}
        # By kind of device and label.
        self._known: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._first = [
            column[self.labels.row] for column in (columns.class_, columns.op, columns.name)
        ]
        self.has_shapes = bool((columns.shape != NONE).any())
        self._shapes: set[tuple[int, int]] = set()
        self._text = trace.names.text
        text = trace.names.text
        self._op_of = cache(lambda name: _op_of(text(name)))
        self._stem_of = cache(lambda name: _stem_of(text(name)))

    def of_rows(self, rows: Int64Array) -> Int64Array:
        """The number of the op of each of these events."""
        result = np.empty(rows.size, dtype=np.int64)
        device_of = self._columns.device[rows]
        for device in unique_ids(device_of).tolist():
            own = np.flatnonzero(device_of == device)
            labels, index = unique_inverse(self.labels.of_row[rows[own]])
            result[own] = self.of(device, labels)[index]
        if self.has_shapes:
            self._note_shapes(rows, result)
        return result

    def of(self, device: int, labels: Int64Array) -> Int64Array:
        """The number of the op of each of these labels on a device, int64."""
        is_replica = self._is_replica[device]
        known = self._known[is_replica]
        found = []
        columns = (column[labels].tolist() for column in self._first)
        for label, class_, op, kernel in zip(labels.tolist(), *columns, strict=True):
            number = known.get(label)
            if number is None:
                key = _Op(class_, *self._op_of(op), None if is_replica else self._stem_of(kernel))
                number = known[label] = self._number_of.setdefault(key, len(self.ops))
                if number == len(self.ops):
                    self.ops.append(key)
            found.append(number)
        return np.array(found, dtype=np.int64)

    def _note_shapes(self, rows: Int64Array, op: Int64Array) -> None:
        """Take down the shapes of these events, the numbers of whose ops are `op`."""
        shape = self._columns.shape[rows]
        known = np.flatnonzero(shape != NONE)
        own, shape = op[known].astype(np.int32), shape[known]
        _, first = SWEEPS.labelled(own, shape, np.zeros(known.size, dtype=np.uint8))
        self._shapes.update(zip(own[first].tolist(), shape[first].tolist(), strict=True))

    def shapes_of(self, op: int) -> tuple[str, ...]:
        """The shapes of the op of this number; what TensorFlow would not write as a shape is none."""
        texts = {self._text(shape) or "" for number, shape in self._shapes if number == op}
        return tuple(sorted(filter(_SHAPES.fullmatch, texts))[:MOST_SHAPES])


def _op_of(text: str | None) -> tuple[str | None, str | None]:
    return (None, None) if text is None else split_op(text)


def _stem_of(text: str | None) -> str | None:
    return None if text is None else kernel_stem(text)


def _largest(ops: Sequence[_Op], total: Int64Array, on_path: Int64Array) -> Int64Array:
    """The ops of most time and of most time on the path, those of most time first; of equal ones by name."""

    def by(time: Int64Array) -> list[int]:
        return sorted(range(len(ops)), key=lambda op: (-int(time[op]), _key(ops[op])))

    by_total = by(total)
    wanted = {*by_total[:MOST_OPS], *(op for op in by(on_path)[:MOST_OPS] if on_path[op])}
    return np.array([op for op in by_total if op in wanted], dtype=np.int64)


def _key(op: _Op) -> tuple[int, str, str, str]:
    return op.class_, op.op or "", op.op_type or "", op.kernel or ""


ANALYSIS: Final = Analysis[OpSteps]("op_steps", compute)
