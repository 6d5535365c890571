"""Measures what each op takes of the used steps and of the critical path, for a comparison with another run.

The table of ops says what takes the window. A comparison needs more: how sure the time of a step is, and what of the
length of the step it makes. Both are sums of rows of the ledger: each instant of a device belongs to the event that began
first, so the times of all ops, of waiting and of idle time sum to the step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

import numpy as np
from msgspec import Struct

from traceview.analysis.measures.context import Analysis, Context
from traceview.analysis.rules.finding import Skipped
from traceview.base.ids import unique_ids
from traceview.base.intervals import Int32Array, Int64Array
from traceview.base.record import Count, KernelName, OpName, OpType, Picoseconds, Record, one_of
from traceview.base.stats import variance_of_mean
from traceview.base.sweeping import SWEEPS
from traceview.ledger.columns import IDLE
from traceview.ledger.table import totals
from traceview.trace.device.op_names import op_labels, op_names, read_once
from traceview.trace.model import NONE, Recording, Trace
from traceview.xplane.planes import CLASS_KEYS

MOST_OPS: Final = 100
"""Ops by the time of a step, and as many by their time on the path."""
_SIGNATURE: Final = re.compile(r"[<(]")
_UNNAMED: Final = "(anonymous namespace)::"


class OpInSteps(Record, frozen=True):
    """An op with a kernel in the used steps, on all visible devices.

    Attributes:
        class_: Class of activity.
        op: Name of the op without its replica part; null where not recorded.
        op_type: Type of the op; null where not recorded.
        kernel: Name of the kernel without arguments and types; null for host ops of a replica.
        device_count: Devices on which it ran.
        count: Events that take time in the used steps, on all devices.
        ps_per_step: Time in which it is what a device does, summed over all devices, mean of the used steps, rounded down,
            picoseconds.
        error_ps: Standard error of this mean, picoseconds; null for fewer than two steps.
        error_degrees: Degrees of freedom of the standard error; null where that is.
        path_ps: Its time on the critical path, all walked steps together, picoseconds.
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


class OpSteps(Record, frozen=True):
    """The time of ops in the used steps.

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
    """The key that makes two events the same op."""

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
    if not context.selection.used_steps:
        return Skipped("no used step")
    ledger, columns, walked = context.ledger, context.ledger.columns, context.ledger.path
    numbers = sorted({step.number for step in context.selection.used_steps})
    # By step its place among the numbers; the steps of rows that count are used ones.
    of_step = np.searchsorted(numbers, [step.number for step in ledger.steps])
    numbering, is_busy = _Numbering(context.trace), columns.activity != IDLE
    is_counted = is_busy & ledger.counts
    spans = map(ledger.rows_of, ledger.devices)
    busy = [np.flatnonzero(is_counted[own]) + own.start for own in spans]
    op_of_rows = [numbering.of(columns.event[rows]) for rows in busy]
    on_path = walked.row[is_busy[walked.row]]
    op_of_path = numbering.of(columns.event[on_path])
    ops = numbering.ops
    path_ps = totals(op_of_path, walked.duration_ps[is_busy[walked.row]], len(ops))
    total, count, device_count = np.zeros((3, len(ops)), dtype=np.int64)
    for rows, op in zip(busy, op_of_rows, strict=True):
        total += totals(op, columns.duration_ps[rows], len(ops))
        events = numbering.of(unique_ids(columns.event[rows]))
        of_device = np.bincount(events, minlength=len(ops))
        count += of_device
        device_count += of_device > 0
    chosen = _largest(ops, total, path_ps)
    place = np.full(len(ops), NONE, dtype=np.int64)
    place[chosen] = np.arange(chosen.size)
    series = np.zeros((chosen.size, len(numbers)), dtype=np.int64)
    for rows, op in zip(busy, op_of_rows, strict=True):
        kept = place[op] != NONE
        cell = place[op[kept]] * len(numbers) + of_step[columns.step[rows[kept]]]
        series += totals(cell, columns.duration_ps[rows[kept]], series.size).reshape(series.shape)
    is_left_out = place == NONE
    made = []
    for at, number in enumerate(chosen.tolist()):
        op_of, of_steps = ops[number], series[at].astype(np.float64)
        variance, degrees = variance_of_mean(of_steps) if len(numbers) > 1 else (None, None)
        made.append(
            OpInSteps(
                class_=CLASS_KEYS[op_of.class_],
                op=op_of.op,
                op_type=op_of.op_type,
                kernel=op_of.kernel,
                device_count=int(device_count[number]),
                count=int(count[number]),
                ps_per_step=int(total[number]) // len(numbers),
                error_ps=None if variance is None else round(variance**0.5, 1),
                error_degrees=None if degrees is None else round(degrees, 2),
                path_ps=int(path_ps[number]),
            )
        )
    return OpSteps(
        rows=tuple(made),
        step_count=len(numbers),
        walked_count=int(ledger.is_used.sum()) if walked.row.size else 0,
        left_out_count=int(is_left_out.sum()),
        left_out_ps_per_step=int(total[is_left_out].max(initial=0)) // len(numbers),
    )


class _KernelStems(Struct, frozen=True, eq=False):
    """`stems`: what kernels are called without types and arguments. `of_name`: int32, the place of its stem by name."""

    stems: tuple[str | None, ...]
    of_name: Int32Array


def _kernel_stems(recording: Recording) -> _KernelStems:
    return _KernelStems(*read_once(recording, recording.device_columns.name, kernel_stem, None))


class _Numbering:
    """Numbers ops in the order in which they are asked for; `ops`: by number."""

    def __init__(self, trace: Trace) -> None:
        self.ops: list[_Op] = []
        self._labels = trace.once(op_labels)
        self._columns = trace.device_columns
        self._is_replica = np.array([device.kind == "replica" for device in trace.device_list])
        self._number_of: dict[_Op, int] = {}
        self._number_of_code = np.full(2 * self._labels.row.size, NONE, dtype=np.int32)
        self._names = trace.once(op_names)
        self._stems = trace.once(_kernel_stems)

    def of(self, rows: Int64Array) -> Int32Array:
        """The number of the op of each of these events, int32."""
        columns = self._columns
        if not rows.size:
            return np.empty(0, dtype=np.int32)
        # A kernel does not tell ops of replicas apart.
        code = self._labels.of_row[rows] * np.int32(2) + self._is_replica[columns.device[rows]]
        number_of_row: Int32Array = self._number_of_code.take(code)
        is_new = number_of_row == NONE
        if is_new.any():
            self._number(unique_ids(code[is_new]))
            number_of_row = self._number_of_code.take(code)
        return number_of_row

    def _number(self, codes: Int64Array) -> None:
        """Number the ops of labels, each twice itself, and one more where a replica runs it."""
        columns, row = self._columns, self._labels.row[codes >> 1]
        op, stem = self._names.of_name[columns.op[row]], self._stems.of_name[columns.name[row]]
        stem[codes & 1 == 1] = NONE
        label, first = SWEEPS.labelled(op, stem, columns.class_[row])
        keys = (column[first].tolist() for column in (columns.class_[row], op, stem))
        numbers = [self._number_of_op(*key) for key in zip(*keys, strict=True)]
        self._number_of_code[codes] = np.array(numbers, dtype=np.int32)[label]

    def _number_of_op(self, class_: int, op: int, stem: int) -> int:
        """The number of an op from those of its name and type and of its kernel."""
        kernel = None if stem == NONE else self._stems.stems[stem]
        made = _Op(class_, *self._names.ops[op], kernel)
        number = self._number_of.setdefault(made, len(self.ops))
        if number == len(self.ops):
            self.ops.append(made)
        return number


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
