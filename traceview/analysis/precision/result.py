"""Measures in which precision each GPU computed, and how much of it ran on tensor cores.

The precision of a kernel is read from its name (`xplane.kernel_names`). Where kernels of several precisions run at
once, the instant belongs to the narrowest, so that the times by precision add up exactly to the compute time. Kernels
whose names show no precision are `unknown`, as those made by XLA and CUDA graphs that are recorded as one event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.analysis.activity import DeviceActivity
from traceview.analysis.base import OfDevice, Skipped
from traceview.analysis.launches.result import computing_gpus
from traceview.analysis.selection import Selection, covered_ps
from traceview.ids import groups_of, is_in, unique_ids
from traceview.intervals import BoolArray, Int64Array, union
from traceview.record import (
    Count,
    KernelName,
    OpName,
    OpType,
    Picoseconds,
    Ratio,
    Record,
    Share,
    one_of,
)
from traceview.trace.model import Device, Trace
from traceview.trace.op_names import split_op
from traceview.trace.windows import Window
from traceview.xplane.kernel_names import NumberFormat, kernel_name
from traceview.xplane.planes import ActivityClass

FIRST_TENSOR_CORES: Final = 7.0
"""Compute capability of Volta, the first with tensor cores."""

_NO_TENSOR_CORES: Final = "GTX 16"
"""A series of compute capability 7.5 without tensor cores."""

FIRST_MATRIX_CORES: Final = 9.4
"""Capability of MI300 in ROCm. Older GPUs are 9.0, with matrix cores (MI100, MI200) and without (MI50)."""

TOP_KERNELS: Final = 10
"""Kernels off the tensor cores per device in a report."""

PRECISIONS: Final = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "unknown")
LOW_PRECISIONS: Final = ("bf16", "fp16", "fp8", "int8")
_WITH_TENSOR_CORES: Final = (NumberFormat.FP32, NumberFormat.FP16, NumberFormat.BF16)


class OrdinaryKernel(Record, frozen=True):
    """A kernel that multiplies matrices or convolves off the tensor cores, in a precision that they support.

    Attributes:
        op: Name of the op without its replica part; null if not recorded.
        op_type: Type of the op; null if not recorded.
        kernel: Name of the kernel.
        precision: Precision of what it multiplies.
        count: Times it ran.
        total_ps: Sum of durations, picoseconds.
        share_ratio: The same over the compute time of the device; may exceed 1 where streams overlap; null
            without compute time.
    """

    op: OpName | None
    op_type: OpType | None
    kernel: KernelName
    precision: Annotated[str, one_of("fp32", "bf16", "fp16")]
    count: Count
    total_ps: Picoseconds
    share_ratio: Ratio | None


class DevicePrecision(OfDevice, frozen=True):
    """The compute time of one GPU in its window, by precision.

    Attributes:
        compute_ps: Compute time in the window, picoseconds.
        precision_ps: Compute time by precision, picoseconds; of kernels that run at once the narrowest counts,
            so that the times add up to compute_ps. unknown: the name of the kernel shows no precision.
        low_precision_ratio: Share of the compute time in 16 bits or less.
        unknown_ratio: Share of the compute time in kernels whose name shows no precision.
        has_tensor_cores: Whether the GPU has tensor cores (AMD: matrix cores); null where that is not known.
        tensor_core_ps: Compute time of kernels whose names show that they use tensor cores, picoseconds.
        tensor_core_ratio: The same over the compute time.
        ordinary_ps: Compute time of matrix products and convolutions off the tensor cores, in a precision that
            they support, picoseconds; null where the GPU is not known to have any.
        ordinary_kernels: Those kernels by op, the longest first; no more than ten.
        ordinary_kernel_count: Number of those kernels.
    """

    compute_ps: Picoseconds
    precision_ps: dict[
        Annotated[str, one_of("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "unknown")],
        Picoseconds,
    ]
    low_precision_ratio: Share
    unknown_ratio: Share
    has_tensor_cores: bool | None
    tensor_core_ps: Picoseconds
    tensor_core_ratio: Share
    ordinary_ps: Picoseconds | None
    ordinary_kernels: tuple[OrdinaryKernel, ...]
    ordinary_kernel_count: Count


class Precision(Record, frozen=True):
    """The precision of every GPU with compute in its window.

    Attributes:
        tensor_core_ratio: Share of the compute time of all GPUs in kernels whose names show that they use tensor
            cores.
        devices: GPUs in the order of hosts and ordinals.
    """

    tensor_core_ratio: Share
    devices: tuple[DevicePrecision, ...]


class _KernelNames(Struct, frozen=True, eq=False):
    """What the names of kernels show, by name of the trace."""

    precision: npt.NDArray[np.uint8]
    tensor_core: BoolArray
    is_matrix: BoolArray


def compute(
    trace: Trace, selection: Selection, activities: Sequence[DeviceActivity]
) -> Precision | Skipped:
    """The precision of the kernels of each GPU in its window; `activities` by device index."""
    computing = computing_gpus(trace, selection)
    if isinstance(computing, Skipped):
        return computing
    shown = _kernel_names(trace)
    return of_devices(
        tuple(
            _row(trace, index, window, kernels, shown, activities[index])
            for index, (window, kernels) in computing.items()
        )
    )


def of_devices(rows: tuple[DevicePrecision, ...]) -> Precision:
    """The precision of all GPUs."""
    whole = sum(row.compute_ps for row in rows)
    return Precision(_ratio(sum(row.tensor_core_ps for row in rows), whole), rows)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _kernel_names(trace: Trace) -> _KernelNames:
    columns = trace.device_columns
    names = unique_ids(columns.name[columns.class_ == ActivityClass.COMPUTE])
    kernels = [kernel_name(trace.names[int(name)]) for name in names]
    count = len(trace.names)
    precision = np.full(count, NumberFormat.UNKNOWN, dtype=np.uint8)
    tensor_core, is_matrix = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    precision[names] = [kernel.precision for kernel in kernels]
    tensor_core[names] = [kernel.tensor_core for kernel in kernels]
    is_matrix[names] = [kernel.is_matrix for kernel in kernels]
    return _KernelNames(precision, tensor_core, is_matrix)


def _row(
    trace: Trace,
    device: int,
    window: Window,
    kernels: Int64Array,
    shown: _KernelNames,
    activity: DeviceActivity,
) -> DevicePrecision:
    columns = trace.device_columns
    names = columns.name[kernels]
    compute_ps = covered_ps(activity.compute, window)

    def lasted(which: BoolArray) -> int:
        if which.all():
            return compute_ps
        covered = union(columns.start_ps[kernels[which]], columns.end_ps[kernels[which]])
        return covered_ps(covered, window)

    precision = shown.precision[names]
    by_precision = dict.fromkeys(PRECISIONS, 0)
    before = 0
    for narrowest in unique_ids(precision).tolist():
        so_far = lasted(precision <= narrowest)
        by_precision[NumberFormat(narrowest).name.lower()] = so_far - before
        before = so_far
    tensor_core = shown.tensor_core[names]
    tensor_core_ps = lasted(tensor_core)
    has_tensor_cores = _has_tensor_cores(
        trace.device_list[device], is_shown=bool(tensor_core.any())
    )
    could = shown.is_matrix[names] & ~tensor_core & is_in(precision, _WITH_TENSOR_CORES)
    ordinary = _ordinary(trace, kernels[could], shown, compute_ps) if has_tensor_cores else []
    return DevicePrecision(
        *trace.identity(device),
        compute_ps=compute_ps,
        precision_ps=by_precision,
        low_precision_ratio=_ratio(sum(by_precision[name] for name in LOW_PRECISIONS), compute_ps),
        unknown_ratio=_ratio(by_precision["unknown"], compute_ps),
        has_tensor_cores=has_tensor_cores,
        tensor_core_ps=tensor_core_ps,
        tensor_core_ratio=_ratio(tensor_core_ps, compute_ps),
        ordinary_ps=lasted(could) if has_tensor_cores else None,
        ordinary_kernels=tuple(ordinary[:TOP_KERNELS]),
        ordinary_kernel_count=len(ordinary),
    )


# What the GPU has


def capability_of(device: Device) -> float | None:
    """The compute capability of a GPU; None where it is not recorded."""
    major, minor = (device.count(f"compute_cap_{part}") for part in ("major", "minor"))
    if major is None or minor is None:
        return None
    return major + minor / 10


def _has_tensor_cores(device: Device, *, is_shown: bool) -> bool | None:
    """Whether a GPU has tensor cores (AMD: matrix cores); `is_shown`: a kernel of it uses them.

    Without a recorded capability, and for AMD GPUs of 9.0, only such a kernel shows it.
    """
    capability = capability_of(device)
    if is_shown or capability is None:
        return is_shown or None
    if device.stats.get("device_vendor") == "AMD":
        return True if capability >= FIRST_MATRIX_CORES else None
    return capability >= FIRST_TENSOR_CORES and _NO_TENSOR_CORES not in (device.model or "")


# Kernels that could use them


def _ordinary(
    trace: Trace, kernels: Int64Array, shown: _KernelNames, compute_ps: int
) -> list[OrdinaryKernel]:
    """One entry per op and kernel, the longest first."""
    columns = trace.device_columns
    # Replicas have ops of their own with one name: their counts and times are added.
    groups: dict[tuple[str | None, str | None, int], tuple[int, int]] = {}
    for members in groups_of(columns.op[kernels], columns.name[kernels]):
        rows_of_op = kernels[members]
        text = trace.names.text(int(columns.op[rows_of_op[0]]))
        op_and_type = (None, None) if text is None else split_op(text)
        key = (*op_and_type, int(columns.name[rows_of_op[0]]))
        count, total = groups.get(key, (0, 0))
        total += int(columns.duration_ps[rows_of_op].sum())
        groups[key] = (count + members.size, total)
    rows = [
        OrdinaryKernel(
            op=op,
            op_type=op_type,
            kernel=trace.names.text(name) or "",
            precision=NumberFormat(shown.precision[name]).name.lower(),
            count=count,
            total_ps=total,
            share_ratio=total / compute_ps if compute_ps else None,
        )
        for (op, op_type, name), (count, total) in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row.total_ps, row.op or "", row.kernel))
