"""Sums the compute of each device by label (an op, a kernel and an instruction), and says what it would take at least.

What an op is has to be asked once for each label, and not for each event. XLA programs say the floating-point operations of
their instructions, and the bytes that they move; captures say the operations of the ops of TensorFlow's graphs. An op may
run several kernels: it ran as often as that which took longest.

The *roof* of an op is the longer of two times: what its products take at the peak of the device, and what the bytes that it reads
and writes take at the bandwidth of the memory. The longer one is what it is bound by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.analysis.facts.layers import KernelNames, kernel_names
from traceview.analysis.facts.selection import step_bounds
from traceview.analysis.measures.context import Context
from traceview.analysis.measures.peaks import peaks_of
from traceview.base.intervals import BoolArray, Int32Array, Int64Array, union
from traceview.base.sweeping import SWEEPS
from traceview.base.text import lazy_pattern
from traceview.base.units import PS_PER_S
from traceview.ledger.states import State
from traceview.ledger.table import totals
from traceview.trace.columns import NONE
from traceview.trace.device.op_names import label_lines, op_labels
from traceview.trace.model import Recording, Trace
from traceview.xplane.kernel_names import NumberFormat
from traceview.xplane.planes import ActivityClass

FloatArray: TypeAlias = npt.NDArray[np.float64]


class ByLabel(Struct, frozen=True, eq=False):
    """Whole numbers by label (`op_labels`), `count` of them; 0 where a device did not run what the label names, as most do not.

    The others: int32 `label`, ascending, and int64 `value`.
    """

    label: Int32Array
    value: Int64Array
    count: int

    @classmethod
    def of(cls, every: Int64Array) -> ByLabel:
        """The same numbers, of all labels."""
        label = np.flatnonzero(every)
        return cls(label.astype(np.int32), every[label], every.size)

    @property
    def every(self) -> Int64Array:
        """The numbers of all labels, int64 `[labels]`; made anew each time."""
        every = np.zeros(self.count, dtype=np.int64)
        every[self.label] = self.value
        return every

    @property
    def total(self) -> int:
        """Their sum."""
        return int(self.value.sum())

    def where(self, is_wanted: BoolArray) -> ByLabel:
        """The same with 0 for all labels but those that are wanted, bool `[labels]`."""
        chosen = is_wanted[self.label]
        return ByLabel(self.label[chosen], self.value[chosen], self.count)


def time_by_label(context: Context) -> dict[int, ByLabel]:
    """By device how long it computes what each label names, picoseconds; of the rows that take part in sums."""
    ledger, labels = context.ledger, context.trace.once(op_labels)
    columns, is_compute = ledger.columns, context.once(_compute_rows).view(np.uint8)
    slices = {device: ledger.rows_of(device) for device in ledger.devices}
    return {
        device: ByLabel.of(
            SWEEPS.totals(
                labels.of_row[columns.event[own]],
                columns.duration_ps[own],
                labels.row.size,
                is_compute[own],
            )
        )
        for device, own in slices.items()
    }


def _compute_rows(context: Context) -> BoolArray:
    """Rows of the ledger in which a device computes, those that take part in sums."""
    return context.ledger.rows(states=(State.COMPUTE,))


def rows_with(context: Context, device: int, is_wanted: BoolArray) -> Int64Array:
    """The rows of a device in which it computes what these labels name."""
    own, of_row = context.ledger.rows_of(device), context.trace.once(op_labels).of_row
    rows = np.flatnonzero(context.once(_compute_rows)[own]) + own.start
    chosen: Int64Array = rows[is_wanted[of_row[context.ledger.columns.event[rows]]]]
    return chosen


def line_of(context: Context, by_label: Int64Array) -> str | None:
    """The line of Python that made most of what takes some time, int64 by label: more than half of it; None without one."""
    lines, ps_of = context.trace.once(label_lines), dict[str, int]()
    for label in np.flatnonzero(by_label).tolist():
        ps_of[lines[label]] = ps_of.get(lines[label], 0) + int(by_label[label])
    line = max(ps_of, key=lambda line: ps_of[line], default="")
    return line if line and 2 * ps_of[line] > sum(ps_of.values()) else None


def line_of_rows(context: Context, rows: BoolArray) -> str | None:
    """The line of Python that made most of the ops that run in these rows of the ledger, or begin after them."""
    columns, labels = context.ledger.columns, context.trace.once(op_labels)
    known = rows & (columns.event != NONE)
    of_row = labels.of_row[columns.event[known]]
    return line_of(context, totals(of_row, columns.duration_ps[known], labels.row.size))


def counted_events(context: Context, device: int) -> Int64Array:
    """The compute of a device that begins in a used step, or without steps in the window; rows of the device columns."""
    trace, ledger = context.trace, context.ledger
    columns, own = trace.device_columns, trace.device_columns.rows_of(device)
    begin, window = columns.start_ps[own], context.selection.window_of_device(trace, device)
    starts, ends = step_bounds(context.selection.used_of(trace.device_list[device].host))
    if not ledger.has_steps and window is not None:
        starts, ends = np.array([[window.start_ps], [window.end_ps]], dtype=np.int64)
    is_counted = columns.class_[own] == ActivityClass.COMPUTE
    place = np.searchsorted(starts, begin, side="right") - 1
    inside = (place >= 0) & (begin < np.append(ends, 0)[place])
    rows: Int64Array = np.flatnonzero(is_counted & inside) + own.start
    return rows


# Operations

_PRODUCT: Final = lazy_pattern(r"MatMul|Conv[23]D|Conv[23]d|Einsum|Attention|RNN")
_OTHER_WORK: Final = lazy_pattern(
    r"Xla|[Pp]y_?[Ff]unc|LSTM|GRU|TRTEngine|TPUExecute|Banded|Call$|^_?(?:Stateless)?(?:While|If|Case)$|Cholesky|Svd|Qr$|Eig|FFT|^Lu$|Matrix(?:Inverse|Solve|Tri|Det|Exp|Log)"
)
"""Types of ops that multiply, or run what does, without saying how much."""

_MOST_SCOPES: Final = 32


class LabelFlops(Struct, frozen=True, eq=False):
    """By label (`op_labels`): float64 `flops` and `bytes` of one run, NaN where they are not known."""

    flops: FloatArray
    bytes: FloatArray


def label_flops(trace: Recording) -> LabelFlops:
    """The operations of each label, which are 0 for what is no product."""
    columns, rows = trace.device_columns, trace.once(op_labels).row
    instruction, op = columns.instruction[rows], columns.op[rows]
    flops = _by_instruction([each.flops for each in trace.instructions])[instruction]
    moved = _by_instruction([each.bytes for each in trace.instructions])[instruction]
    recorded = _recorded(trace)
    for label in np.flatnonzero((instruction == NONE) & (op != NONE)).tolist():
        flops[label] = _of_op(trace.names.text(int(op[label])) or "", recorded)
    return LabelFlops(flops, moved)


def _by_instruction(values: Sequence[int | None]) -> FloatArray:
    """The values of instructions, and last that of `NONE`."""
    return np.array([*(np.nan if value is None else value for value in values), np.nan])


def _recorded(trace: Recording) -> dict[str, int | None]:
    """Operations by op from the captures of all hosts, None where they differ."""
    found: dict[str, int | None] = {}
    for host in trace.hosts:
        for name, flops in host.captured.graphs.flops.items():
            found[name] = flops if found.setdefault(name, flops) == flops else None
    return found


def _of_op(text: str, recorded: Mapping[str, int | None]) -> float:
    """The operations of an op by its text, `scope/name:Type`; the runtime may put the names of calls before its own."""
    name, _, type_ = text.rpartition(":")
    if not name or _OTHER_WORK.search(type_):
        return np.nan
    if not _PRODUCT.search(type_):
        return 0.0
    for _ in range(_MOST_SCOPES):
        if name in recorded:
            flops = recorded[name]
            return np.nan if flops is None else float(flops)
        _, slash, name = name.partition("/")
        if not slash:
            break
    return np.nan


class DeviceFlops(Struct, frozen=True, eq=False):
    """The ops of one device that begin in its used steps, by label: how many events, how long they took, and how often the op ran.

    `of_label`: what one run takes. `ran_ps`: how long at least one of them ran. On the CPU it is longer than the compute
    of the ledger, in which short ops are a part of dispatch.
    """

    of_label: LabelFlops
    runs: ByLabel
    count: ByLabel
    duration_ps: ByLabel
    ran_ps: int

    @property
    def flops(self) -> FloatArray:
        """The operations by label, NaN where not known."""
        return self.runs.every * self.of_label.flops

    @property
    def bytes(self) -> FloatArray:
        """The bytes that move by label, NaN where not known."""
        return self.runs.every * self.of_label.bytes

    @property
    def known_flops(self) -> FloatArray:
        """The operations, 0 where not known."""
        return np.nan_to_num(self.flops)


def flops_by_device(context: Context) -> dict[int, DeviceFlops]:
    """The operations of each device that ran any op in its used steps."""
    trace, ledger = context.trace, context.ledger
    columns, labels = trace.device_columns, trace.once(op_labels)
    of_label = trace.once(label_flops)
    # An instruction of a program, else an op; a kernel without a name is by itself.
    instruction, op = columns.instruction[labels.row], columns.op[labels.row].astype(np.int64)
    group = np.where(instruction != NONE, -2 - instruction.astype(np.int64), op)
    result = {}
    for device in ledger.devices:
        rows = counted_events(context, device)
        if not rows.size:
            continue
        label = labels.of_row[rows]
        time = SWEEPS.totals(label, columns.duration_ps[rows], group.size)
        count = ByLabel.of(np.bincount(label, minlength=group.size))
        own = group[count.label]
        order = np.lexsort((time[count.label], own))
        is_longest = np.zeros(group.size, dtype=np.bool_)
        is_longest[count.label[order[np.append(np.diff(own[order]) != 0, True)]]] = True
        result[device] = DeviceFlops(
            of_label,
            count.where(is_longest),
            count,
            ByLabel.of(time),
            int(union(columns.start_ps[rows], columns.end_ps[rows]).length),
        )
    return result


# Roofs

_FORMATS: Final[Mapping[int | None, NumberFormat]] = {
    2: NumberFormat.INT8,
    10: NumberFormat.FP16,
    12: NumberFormat.FP64,
    16: NumberFormat.BF16,
    **dict.fromkeys((19, 20, 23, 24, 25, 28, 29), NumberFormat.FP8),
}
"""The precision of a product by the type of what it multiplies in a program (`PrimitiveType`); float32 may become TF32."""


def roof_of(trace: Trace, device: int, of: DeviceFlops) -> tuple[FloatArray, FloatArray]:
    """By label (`op_labels`) what the ops of a device would take at least, float64 picoseconds, NaN where not known.

    First of products at the peak of their precision, 0 for what has none; then of bytes at the bandwidth of the memory. The
    longer one is the roof.
    """
    flops, rates, peaks = of.flops, np.full(len(NumberFormat), np.nan), peaks_of(trace, device)
    rates[list(peaks.flops)] = list(peaks.flops.values())
    compute_ps: FloatArray = flops / rates[trace.once(label_precisions)] * PS_PER_S
    compute_ps[flops == 0] = 0
    return compute_ps, of.bytes / (peaks.bandwidth or np.nan) * PS_PER_S


def label_kernels(trace: Recording) -> KernelNames:
    """What the names of kernels show, by label (`op_labels`)."""
    of, name = trace.once(kernel_names), trace.device_columns.name[trace.once(op_labels).row]
    return KernelNames(of.precision[name], of.tensor_core[name], of.is_matrix[name])


def label_precisions(trace: Recording) -> npt.NDArray[np.uint8]:
    """By label (`op_labels`) the `NumberFormat` that its kernel shows, else that of its instruction, uint8."""
    precision, unknown = trace.once(label_kernels).precision, NumberFormat.UNKNOWN
    known = [_FORMATS.get(each.operand_type, unknown) for each in trace.instructions]
    of_instruction = np.array([*known, unknown], dtype=np.uint8)[
        trace.device_columns.instruction[trace.once(op_labels).row]
    ]
    return np.where(precision == unknown, of_instruction, precision)
