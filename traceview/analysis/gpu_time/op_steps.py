"""Measures what each op, and each line and layer, takes of the used steps and of the critical path, to compare runs.

The table of ops says what takes the window. A comparison needs more: how sure the time of a step is, and what of the
length of the step it makes. Both are sums of rows of the ledger: each instant of a device belongs to the event that began
first, so the times of all ops, of waiting and of idle time sum to the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

from traceview.analysis.facts.layers import label_places
from traceview.analysis.measures.context import Analysis, Context
from traceview.analysis.rules.finding import Skipped
from traceview.base.ids import unique_ids
from traceview.base.intervals import BoolArray, Int32Array
from traceview.base.record import (
    Count,
    KernelName,
    OpName,
    OpType,
    Picoseconds,
    Record,
    SourceLine,
    one_of,
)
from traceview.base.stats import variance_of_mean
from traceview.base.sweeping import SWEEPS
from traceview.base.text import lazy_pattern
from traceview.ledger.columns import IDLE
from traceview.ledger.states import State
from traceview.ledger.table import totals
from traceview.trace.columns import NONE
from traceview.trace.device.op_names import op_labels, op_names, read_once
from traceview.trace.model import Trace
from traceview.xplane.planes import CLASS_KEYS, ActivityClass

T = TypeVar("T")

MOST_OPS: Final = 100
"""Ops by the time of a step, and as many by their time on the path."""
_SIGNATURE: Final = lazy_pattern(r"[<(]")
_UNNAMED: Final = "(anonymous namespace)::"


class TimeInSteps(Record, frozen=True):
    """The time of something in the used steps, on all visible devices.

    Attributes:
        device_count: Devices on which it ran.
        count: Events that take time in the used steps, on all devices.
        ps_per_step: Time in which it is what a device does, summed over all devices, mean of the used steps, rounded down,
            picoseconds.
        error_ps: Standard error of this mean, picoseconds; null for fewer than two steps.
        error_degrees: Degrees of freedom of the standard error; null where that is.
        path_ps: Its time on the critical path, all walked steps together, picoseconds.
    """

    device_count: Count
    count: Count
    ps_per_step: Picoseconds
    error_ps: float | None
    error_degrees: float | None
    path_ps: Picoseconds


class OpInSteps(TimeInSteps, frozen=True):
    """An op with a kernel.

    Attributes:
        class_: Class of activity.
        op: Name of the op without its replica part; null where not recorded.
        op_type: Type of the op; null where not recorded.
        kernel: Name of the kernel without arguments and types; null for host ops of a replica.
        layer: Of an instruction of XLA the layer that made it; null where no name shows any.
        source_line: The line of Python that made it; null where none was recorded.
    """

    class_: Annotated[str, one_of(*CLASS_KEYS)]
    op: OpName | None
    op_type: OpType | None
    kernel: KernelName | None
    layer: OpName | None = None
    source_line: SourceLine | None = None


class PartInSteps(TimeInSteps, frozen=True):
    """Compute of one layer that one line of Python made.

    Attributes:
        layer: The layer; null where no name shows any.
        source_line: The line; null where none was recorded.
    """

    layer: OpName | None
    source_line: SourceLine | None


class OpSteps(Record, frozen=True):
    """The time of ops in the used steps.

    Attributes:
        rows: The ops that take longest, and those that take most of the path, longest first.
        parts: The same of what is compute, without waits for a core, by layer and line, but for what has neither.
        step_count: Used steps, with those of the same number on several hosts as one.
        walked_count: Steps of all hosts whose path was walked; path_ps is of all of them.
        left_out_count: Ops that are not among the rows.
        left_out_ps_per_step: Time of the longest of them in a step, picoseconds; 0 without any.
        left_out_part_ps_per_step: Time of the longest part that is not among the parts, picoseconds; 0 without any.
    """

    rows: tuple[OpInSteps, ...]
    parts: tuple[PartInSteps, ...]
    step_count: Count
    walked_count: Count
    left_out_count: Count
    left_out_ps_per_step: Picoseconds
    left_out_part_ps_per_step: Picoseconds


class _Op(NamedTuple):
    """The key that makes two events the same op."""

    class_: str
    op: str | None
    op_type: str | None
    kernel: str | None
    layer: str | None = None
    line: str | None = None


def kernel_stem(name: str) -> str:
    """`void gemm<float, 4>(float*)` without types and arguments: `gemm`."""
    short = name.removeprefix("void ").replace(_UNNAMED, "")
    return _SIGNATURE.split(short, maxsplit=1)[0].strip() or name


def compute(context: Context) -> OpSteps | Skipped:
    """The ops and parts of the used steps with the largest time."""
    if not context.selection.used_steps:
        return Skipped("no used step")
    ops, op_of_event = _ops(context.trace)
    parts, part_of_event = _parts(context.trace)
    columns = context.ledger.columns
    of_ops = _times(context, columns.activity != IDLE, ops, op_of_event, _key)
    is_compute = columns.state == State.COMPUTE
    of_parts = _times(context, is_compute, parts, part_of_event, lambda part: part)
    return OpSteps(
        rows=tuple(OpInSteps(*measured, *ops[op]) for op, measured in of_ops.rows),
        parts=tuple(
            PartInSteps(*measured, *(text or None for text in parts[part]))
            for part, measured in of_parts.rows
        ),
        step_count=len({step.number for step in context.selection.used_steps}),
        walked_count=int(context.ledger.is_used.sum()) if context.ledger.path.row.size else 0,
        left_out_count=of_ops.left_out_count,
        left_out_ps_per_step=of_ops.left_out_ps,
        left_out_part_ps_per_step=of_parts.left_out_ps,
    )


_Measured: TypeAlias = tuple[int, int, int, float | None, float | None, int]
"""The fields of `TimeInSteps`."""


class _Times(NamedTuple):
    """Of what takes longest its place and its time; how much is left out, and the longest of that per step."""

    rows: list[tuple[int, _Measured]]
    left_out_count: int
    left_out_ps: int


def _times(
    context: Context,
    counted: BoolArray,
    names: Sequence[T],
    of_event: Int32Array,
    key: Callable[[T], tuple[int | str, ...]],
) -> _Times:
    """The time of what events are in the rows that count, by device event its number among the names or `NONE`; of equal ones by key."""
    trace, ledger, walked = context.trace, context.ledger, context.ledger.path
    columns, devices = ledger.columns, trace.device_columns.device
    numbers = sorted({step.number for step in context.selection.used_steps})
    # By step its place among the numbers; the steps of rows that count are used ones.
    of_step = np.searchsorted(numbers, [step.number for step in ledger.steps])
    of_row = np.where(counted, of_event[columns.event], NONE)
    rows, on_path = np.flatnonzero((of_row != NONE) & ledger.counts), of_row[walked.row] != NONE
    number, length = of_row[rows], columns.duration_ps[rows]
    path_ps = totals(of_row[walked.row[on_path]], walked.duration_ps[on_path], len(names))
    total = totals(number, length, len(names))
    events = unique_ids(columns.event[rows])
    count = np.bincount(of_event[events], minlength=len(names))
    # What runs on a device is a number.
    on_device = unique_ids(of_event[events] * np.int64(len(trace.device_list)) + devices[events])
    device_count = np.bincount(on_device // len(trace.device_list), minlength=len(names))

    def rank(place: int) -> tuple[int, tuple[int | str, ...]]:
        return -int(total[place]), key(names[place])

    longest = sorted(np.flatnonzero(total).tolist(), key=rank)[:MOST_OPS]
    walks = np.flatnonzero(path_ps).tolist()
    most_walked = sorted(walks, key=lambda at: (-int(path_ps[at]), key(names[at])))[:MOST_OPS]
    chosen = np.array(sorted({*longest, *most_walked}, key=rank), dtype=np.int64)
    place = np.full(len(names), NONE, dtype=np.int64)
    place[chosen] = np.arange(chosen.size)
    cell = place[number] * len(numbers) + of_step[columns.step[rows]]
    series = totals(cell, length, chosen.size * len(numbers)).reshape(chosen.size, len(numbers))
    made = []
    for at, of_steps in zip(chosen.tolist(), series.astype(np.float64), strict=True):
        variance, degrees = variance_of_mean(of_steps) if len(numbers) > 1 else (None, None)
        measured = (
            int(device_count[at]),
            int(count[at]),
            int(total[at]) // len(numbers),
            None if variance is None else round(variance**0.5, 1),
            None if degrees is None else round(degrees, 2),
            int(path_ps[at]),
        )
        made.append((at, measured))
    left_out_ps = total[(place == NONE) & (count > 0)]
    return _Times(made, left_out_ps.size, int(left_out_ps.max(initial=0)) // len(numbers))


def _ops(trace: Trace) -> tuple[list[_Op], Int32Array]:
    """The ops of all labels, also as a replica would run them, and of each device event the number of its op, int32."""
    labels, columns = trace.once(op_labels), trace.device_columns
    names, op_of_label = trace.once(op_names)
    stems, stem_of_label = read_once(trace, columns.name, kernel_stem, None)
    row = labels.row
    op, class_ = np.tile(op_of_label, 2), np.tile(columns.class_[row], 2)
    # A kernel does not tell ops of replicas apart.
    stem = np.append(stem_of_label, np.zeros(row.size, dtype=np.int32))
    # Of each program the compiler names instructions alike. The last maker is that of `NONE`.
    made = trace.once(label_places)
    makers = [("/".join(each.scopes) or None, each.line or None) for each in made.places]
    makers.append((None, None))
    is_made = (columns.instruction[row] != NONE) & np.array([not type_ for _, type_ in names])[
        op_of_label
    ]
    place = np.tile(np.where(is_made, made.place, NONE), 2).astype(np.int32)
    number, _ = SWEEPS.labelled(op, stem, class_)
    number, first = SWEEPS.labelled(number, place, class_)
    keys = (column[first].tolist() for column in (class_, op, stem, place))
    ops = [
        _Op(CLASS_KEYS[of_class], *names[int(name)], stems[kernel], *makers[at])
        for of_class, name, kernel, at in zip(*keys, strict=True)
    ]
    is_replica = np.array([device.kind == "replica" for device in trace.device_list], np.bool_)
    of_replica = np.where(is_replica, row.size, 0)[columns.device]
    return ops, number[labels.of_row + of_replica]


def _parts(trace: Trace) -> tuple[list[tuple[str, str]], Int32Array]:
    """Layers with lines, and of each device event the number of its own; `NONE` where none is known, and of no compute."""
    made, labels = trace.once(label_places), trace.once(op_labels)
    makers = [("/".join(place.scopes), place.line) for place in made.places]
    number_of = {maker: number for number, maker in enumerate(dict.fromkeys(filter(any, makers)))}
    number = np.array([number_of.get(maker, NONE) for maker in makers], dtype=np.int32)
    is_compute = trace.device_columns.class_[labels.row] == ActivityClass.COMPUTE
    return list(number_of), np.where(is_compute, number[made.place], NONE)[labels.of_row]


def _key(op: _Op) -> tuple[int | str, ...]:
    return CLASS_KEYS.index(op.class_), *(text or "" for text in op[1:])


ANALYSIS: Final = Analysis[OpSteps]("op_steps", compute)
