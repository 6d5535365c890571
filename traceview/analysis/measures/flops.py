"""Finds how many floating-point operations the products in the used steps have, for each op that ran, and the bytes that it moves.

XLA programs say both of their instructions, and captures FLOPs of the ops of TensorFlow's graphs. An op may run several kernels: it
ran as often as that which took longest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.analysis.measures.context import Context
from traceview.analysis.measures.label_times import counted_events
from traceview.base.intervals import BoolArray, Int64Array, union
from traceview.base.sweeping import SWEEPS
from traceview.trace.device.op_names import op_labels
from traceview.trace.model import NONE, Recording

FloatArray = npt.NDArray[np.float64]

_PRODUCT: Final = re.compile(r"MatMul|Conv[23]D|Conv[23]d|Einsum|Attention|RNN")
_OTHER_WORK: Final = re.compile(
    r"Xla|[Pp]y_?[Ff]unc|LSTM|GRU|TRTEngine|TPUExecute|Banded|Call$|^_?(?:Stateless)?(?:While|If|Case)$|Cholesky|Svd|Qr$|Eig|FFT|^Lu$|Matrix(?:Inverse|Solve|Tri|Det|Exp|Log)"
)
"""Types of ops that multiply, or run what does, without saying how much."""

_MOST_SCOPES: Final = 32


class LabelFlops(Struct, frozen=True, eq=False):
    """By label (`op_labels`): float64 `flops` and `bytes` of one run, NaN where they are not known, and whether a program says them."""

    flops: FloatArray
    bytes: FloatArray
    is_program: BoolArray


def label_flops(trace: Recording) -> LabelFlops:
    """The operations of each label, which are 0 for what is no product."""
    columns, rows = trace.device_columns, trace.once(op_labels).row
    instruction, op = columns.instruction[rows], columns.op[rows]
    flops = _by_instruction([each.flops for each in trace.instructions])[instruction]
    moved = _by_instruction([each.bytes for each in trace.instructions])[instruction]
    recorded = _recorded(trace)
    for label in np.flatnonzero((instruction == NONE) & (op != NONE)).tolist():
        flops[label] = _of_op(trace.names.text(int(op[label])) or "", recorded)
    return LabelFlops(flops, moved, instruction != NONE)


def _by_instruction(values: Sequence[int | None]) -> FloatArray:
    """The values of instructions, and last that of `NONE`."""
    return np.array([*(np.nan if value is None else value for value in values), np.nan])


def _recorded(trace: Recording) -> dict[str, int | None]:
    """What the captures of all hosts say, None where they differ."""
    found: dict[str, int | None] = {}
    for host in trace.hosts:
        for name, flops in (host.sidecar.graphs.flops if host.sidecar else {}).items():
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
    """The ops of one device that begin in its used steps, by label: float64 `flops` and `bytes`, NaN where not known, int64 `count` and `duration_ps`.

    `ran_ps`: how long at least one of them ran. On the CPU it is longer than the compute of the ledger, in which short ops
    are a part of dispatch.
    """

    flops: FloatArray
    bytes: FloatArray
    count: Int64Array
    duration_ps: Int64Array
    ran_ps: int

    @property
    def known_flops(self) -> FloatArray:
        """The same, 0 where not known."""
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
        label = labels.of_row[rows]
        count = np.bincount(label, minlength=of_label.flops.size)
        time = SWEEPS.totals(label, columns.duration_ps[rows], of_label.flops.size)
        order = np.lexsort((time, group))
        is_longest = np.append(np.diff(group[order]) != 0, True)[: order.size]
        runs = np.zeros(of_label.flops.size, dtype=np.float64)
        runs[order[is_longest]] = count[order[is_longest]]
        if rows.size:
            ran_ps = union(columns.start_ps[rows], columns.end_ps[rows]).length
            moved = runs * of_label.bytes
            result[device] = DeviceFlops(runs * of_label.flops, moved, count, time, int(ran_ps))
    return result
