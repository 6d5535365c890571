"""Measures what each op takes of the used steps and of the critical path, for a comparison with another run.

The table of ops says what takes the window. A comparison needs more: how sure the time of a step is, and what of the
length of the step it makes. Both are sums of rows of the ledger: each instant of a device belongs to the event that began
first, so the times of all ops, of waiting and of idle time sum to the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

import numpy as np

from traceview.analysis.measures.context import Analysis, Context
from traceview.analysis.rules.finding import Skipped
from traceview.base.ids import unique_ids
from traceview.base.intervals import Int32Array, Int64Array
from traceview.base.record import Count, KernelName, OpName, OpType, Picoseconds, Record, one_of
from traceview.base.stats import variance_of_mean
from traceview.base.sweeping import SWEEPS
from traceview.base.text import lazy_pattern
from traceview.ledger.columns import IDLE
from traceview.ledger.table import totals
from traceview.trace.columns import NONE
from traceview.trace.device.op_names import op_labels, op_names, read_once
from traceview.trace.model import Trace
from traceview.xplane.planes import CLASS_KEYS

MOST_OPS: Final = 100
"""Ops by the time of a step, and as many by their time on the path."""
_SIGNATURE: Final = lazy_pattern(r"[<(]")
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

    class_: str
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
    trace, ledger, walked = context.trace, context.ledger, context.ledger.path
    columns, devices = ledger.columns, trace.device_columns.device
    numbers = sorted({step.number for step in context.selection.used_steps})
    # By step its place among the numbers; the steps of rows that count are used ones.
    of_step = np.searchsorted(numbers, [step.number for step in ledger.steps])
    ops, op_of_event = _ops(trace)
    is_busy = columns.activity != IDLE
    rows, on_path = np.flatnonzero(is_busy & ledger.counts), is_busy[walked.row]
    op, length = op_of_event[columns.event[rows]], columns.duration_ps[rows]
    path_op = op_of_event[columns.event[walked.row[on_path]]]
    path_ps = totals(path_op, walked.duration_ps[on_path], len(ops))
    total = totals(op, length, len(ops))
    events = unique_ids(columns.event[rows])
    count = np.bincount(op_of_event[events], minlength=len(ops))
    # An op on a device is a number.
    on_device = unique_ids(op_of_event[events] * np.int64(len(trace.device_list)) + devices[events])
    device_count = np.bincount(on_device // len(trace.device_list), minlength=len(ops))
    chosen = _largest(ops, total, path_ps)
    place = np.full(len(ops), NONE, dtype=np.int64)
    place[chosen] = np.arange(chosen.size)
    cell = place[op] * len(numbers) + of_step[columns.step[rows]]
    series = totals(cell, length, chosen.size * len(numbers)).reshape(chosen.size, len(numbers))
    left_out_ps = total[(place == NONE) & (count > 0)]
    made = []
    for at, number in enumerate(chosen.tolist()):
        op_of: _Op = ops[number]
        of_steps = series[at].astype(np.float64)
        variance, degrees = variance_of_mean(of_steps) if len(numbers) > 1 else (None, None)
        made.append(
            OpInSteps(
                *op_of,
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
        left_out_count=left_out_ps.size,
        left_out_ps_per_step=int(left_out_ps.max(initial=0)) // len(numbers),
    )


def _ops(trace: Trace) -> tuple[list[_Op], Int32Array]:
    """The ops of all labels, also as a replica would run them, and of each device event the number of its op, int32."""
    labels, columns = trace.once(op_labels), trace.device_columns
    names, op_of_label = trace.once(op_names)
    stems, stem_of_label = read_once(trace, columns.name, kernel_stem, None)
    row = labels.row
    op, class_ = np.tile(op_of_label, 2), np.tile(columns.class_[row], 2)
    # A kernel does not tell ops of replicas apart.
    stem = np.append(stem_of_label, np.zeros(row.size, dtype=np.int32))
    number, first = SWEEPS.labelled(op, stem, class_)
    keys = (column[first].tolist() for column in (class_, op, stem))
    ops = [
        _Op(CLASS_KEYS[of_class], *names[int(name)], stems[kernel])
        for of_class, name, kernel in zip(*keys, strict=True)
    ]
    is_replica = np.array([device.kind == "replica" for device in trace.device_list], np.bool_)
    of_replica = np.where(is_replica, row.size, 0)[columns.device]
    return ops, number[labels.of_row + of_replica]


def _largest(ops: Sequence[_Op], total: Int64Array, on_path: Int64Array) -> Int64Array:
    """The ops of most time and of most time on the path, those of most time first; of equal ones by name."""

    def by(time: Int64Array) -> list[int]:
        known = np.flatnonzero(time).tolist()
        return sorted(known, key=lambda op: (-int(time[op]), _key(ops[op])))[:MOST_OPS]

    chosen = {*by(total), *by(on_path)}
    return np.array(sorted(chosen, key=lambda op: (-int(total[op]), _key(ops[op]))), dtype=np.int64)


def _key(op: _Op) -> tuple[int, str, str, str]:
    return CLASS_KEYS.index(op.class_), op.op or "", op.op_type or "", op.kernel or ""


ANALYSIS: Final = Analysis[OpSteps]("op_steps", compute)
