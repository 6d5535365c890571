"""With which kinds of numbers did each GPU compute, and were its tensor cores used?

What a kernel computes with is read from its name (`xplane.kernel_names`). Where kernels of several kinds run at
once on several streams, an instant belongs to the narrowest, so that the times by precision sum to the compute
time, exactly. What no name proves stays `unknown`: kernels made by XLA and CUDA graphs recorded as one event are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt

from traceview.analysis.activity import DeviceActivity
from traceview.analysis.base import Confidence, Evidence, Finding, Skipped
from traceview.analysis.context import Analysis
from traceview.analysis.launches.result import computing_rows
from traceview.analysis.selection import Selection
from traceview.document import numbers
from traceview.ids import unique_ids
from traceview.intervals import BoolArray, Int64Array, union
from traceview.record import (
    Count,
    DeviceKey,
    Hostname,
    Integer,
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
from traceview.trace.ops import split_op
from traceview.trace.windows import Window
from traceview.xplane.kernel_names import NumberFormat, kernel_name
from traceview.xplane.planes import ActivityClass

LOW_PRECISION_RATIO: Final = 0.10
"""Share of compute in 16 bits or less below which it is said (METRICS 12: low-precision-unused; XProf's threshold)."""

UNKNOWN_RATIO: Final = 0.50
"""Share of compute of unknown precision above which nothing is said of the rest."""

TRUSTED_UNKNOWN_RATIO: Final = 0.10
"""Share of compute of unknown precision up to which it cannot change what is said."""

FIRST_TENSOR_CORES: Final = 7.0
"""Compute capability of Volta, the first with tensor cores; those of 8.0 also take bfloat16 and TF32."""

FIRST_BFLOAT16: Final = 8.0

_WITHOUT_THEM: Final = "GTX 16"
"""A series of capability 7.5 that has no tensor cores."""

FIRST_MATRIX_CORES: Final = 9.4
"""That of MI300 as ROCm counts. GPUs below that are 9.0 with matrix cores (MI100, MI200) and without (MI50)."""

TOP_KERNELS: Final = 10
"""Kernels off the tensor cores that a report names per device."""

PRECISIONS: Final = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "unknown")
LOW_PRECISIONS: Final = ("bf16", "fp16", "fp8", "int8")
_WITH_TENSOR_CORES: Final = (NumberFormat.FP32, NumberFormat.FP16, NumberFormat.BF16)


class OrdinaryKernel(Record, frozen=True):
    """A kernel that multiplies matrices or convolves in a precision that tensor cores take, and not on them.

    Attributes:
        op: Name of the op without its replica part; null if not recorded.
        op_type: Type of the op; null if not recorded.
        kernel: Name of the kernel.
        precision: Precision of what it multiplies.
        count: Times it ran.
        total_ps: Sum of durations, picoseconds.
        share_ratio: That over the compute time of the device; more than 1 is possible where streams overlap.
            Null without compute time.
    """

    op: OpName | None
    op_type: OpType | None
    kernel: KernelName
    precision: Annotated[str, one_of("fp32", "bf16", "fp16")]
    count: Count
    total_ps: Picoseconds
    share_ratio: Ratio | None


class DevicePrecision(Record, frozen=True):
    """The compute time of one GPU in its window, by precision.

    Attributes:
        host: Name of the host.
        device: Key of the device.
        ordinal: Number in the name of the device.
        compute_ps: Compute time in the window, picoseconds.
        precision_ps: Compute time by precision, picoseconds; exclusive, of kernels at once the narrowest
            counts, so that they sum to compute_ps. unknown: the name of the kernel proves nothing.
        low_precision_ratio: Share of the compute time in 16 bits or less.
        unknown_ratio: Share of the compute time of kernels whose name proves nothing.
        has_tensor_cores: Whether the GPU has tensor cores (AMD: matrix cores); null where that is not known.
        tensor_core_ps: Compute time of kernels whose names show that they use them, picoseconds.
        tensor_core_ratio: That over the compute time.
        ordinary_ps: Compute time of matrix products and convolutions in a precision that tensor cores take and
            not on them, picoseconds; null where the GPU is not known to have any.
        ordinary_kernels: Those kernels by op, the longest first; no more than ten.
        ordinary_kernel_count: How many of those there are.
    """

    host: Hostname
    device: DeviceKey
    ordinal: Integer
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
    """Every GPU with compute in its window; `tensor_core_ratio` over the compute time of all of them.

    Attributes:
        tensor_core_ratio: Share of the compute time of all of them in kernels whose names show that they use
            tensor cores.
        devices: GPUs in the order of hosts and ordinals.
    """

    tensor_core_ratio: Share
    devices: tuple[DevicePrecision, ...]


@dataclass(frozen=True, eq=False)
class _OfNames:
    """What the names of kernels prove, by name of the trace."""

    precision: npt.NDArray[np.uint8]
    tensor_core: BoolArray
    is_matrix: BoolArray


def compute(
    trace: Trace, selection: Selection, activities: Sequence[DeviceActivity]
) -> Precision | Skipped:
    """Ask of each GPU what it computed with; `activities` by device index."""
    gpus = [index for index, device in enumerate(trace.device_list) if device.kind == "gpu"]
    if not gpus:
        return Skipped("not applicable: there is no GPU")
    gpus.sort(key=lambda i: (trace.device_list[i].host, trace.device_list[i].ordinal))
    known = _of_names(trace)
    rows = []
    for index in gpus:
        window = selection.window_of_device(trace, index)
        kernels = computing_rows(trace, index, window)
        if window is not None and kernels.size:
            rows.append(_row(trace, index, window, kernels, known, activities[index]))
    if not rows:
        return Skipped("no GPU ran a kernel in the window")
    whole = sum(row.compute_ps for row in rows)
    return Precision(_ratio(sum(row.tensor_core_ps for row in rows), whole), tuple(rows))


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _of_names(trace: Trace) -> _OfNames:
    columns = trace.device_columns
    names = unique_ids(columns.name[columns.class_ == ActivityClass.COMPUTE])
    found = [kernel_name(trace.names[int(name)]) for name in names]
    count = len(trace.names)
    precision = np.full(count, NumberFormat.UNKNOWN, dtype=np.uint8)
    tensor_core, is_matrix = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    precision[names] = [one.precision for one in found]
    tensor_core[names] = [one.tensor_core for one in found]
    is_matrix[names] = [one.is_matrix for one in found]
    return _OfNames(precision, tensor_core, is_matrix)


def _row(
    trace: Trace,
    device: int,
    window: Window,
    kernels: Int64Array,
    known: _OfNames,
    activity: DeviceActivity,
) -> DevicePrecision:
    columns, entry = trace.device_columns, trace.device_list[device]
    names = columns.name[kernels]
    whole = activity.by_class[ActivityClass.COMPUTE]
    compute_ps = int(whole.within(window.start_ps, window.end_ps))

    def lasted(which: BoolArray) -> int:
        if which.all():
            return compute_ps
        covered = union(columns.start_ps[kernels[which]], columns.end_ps[kernels[which]])
        return int(covered.within(window.start_ps, window.end_ps))

    precision = known.precision[names]
    by_precision = dict.fromkeys(PRECISIONS, 0)
    before = 0
    for one in unique_ids(precision).tolist():
        so_far = lasted(precision <= one)
        by_precision[NumberFormat(one).name.lower()] = so_far - before
        before = so_far
    tensor_core = known.tensor_core[names]
    tensor_core_ps = lasted(tensor_core)
    has_tensor_cores = _has_tensor_cores(entry, is_shown=bool(tensor_core.any()))
    could = known.is_matrix[names] & ~tensor_core & np.isin(precision, _WITH_TENSOR_CORES)
    ordinary = _ordinary(trace, kernels[could], known, compute_ps) if has_tensor_cores else []
    return DevicePrecision(
        host=trace.hosts[entry.host].name,
        device=trace.device_key(device),
        ordinal=entry.ordinal,
        compute_ps=compute_ps,
        precision_ps=by_precision,
        low_precision_ratio=_ratio(sum(by_precision[one] for one in LOW_PRECISIONS), compute_ps),
        unknown_ratio=_ratio(by_precision["unknown"], compute_ps),
        has_tensor_cores=has_tensor_cores,
        tensor_core_ps=tensor_core_ps,
        tensor_core_ratio=_ratio(tensor_core_ps, compute_ps),
        ordinary_ps=lasted(could) if has_tensor_cores else None,
        ordinary_kernels=tuple(ordinary[:TOP_KERNELS]),
        ordinary_kernel_count=len(ordinary),
    )


# What the GPU has


def _capability(device: Device) -> float | None:
    major, minor = (device.stats.get(f"compute_cap_{part}") for part in ("major", "minor"))
    if not isinstance(major, int) or not isinstance(minor, int):
        return None
    return major + minor / 10


def _is_amd(device: Device) -> bool:
    return device.stats.get("device_vendor") == "AMD"


def _has_tensor_cores(device: Device, *, is_shown: bool) -> bool | None:
    """Whether a GPU has tensor cores, AMD: matrix cores; `is_shown`: a kernel of it uses them.

    Without a recorded capability, and for AMD's 9.0, only a kernel tells.
    """
    capability = _capability(device)
    if is_shown:
        return True
    if capability is None:
        return None
    if _is_amd(device):
        return True if capability >= FIRST_MATRIX_CORES else None
    return capability >= FIRST_TENSOR_CORES and _WITHOUT_THEM not in (device.model or "")


# Kernels that could use them


def _ordinary(
    trace: Trace, kernels: Int64Array, known: _OfNames, compute_ps: int
) -> list[OrdinaryKernel]:
    """One entry per op and kernel, the longest first."""
    columns = trace.device_columns
    pairs = np.stack((columns.op[kernels], columns.name[kernels]), axis=1).astype(np.int64)
    found, place = np.unique(pairs, axis=0, return_inverse=True)
    count = np.bincount(place.reshape(-1), minlength=len(found))
    total = np.zeros(len(found), dtype=np.int64)
    np.add.at(total, place.reshape(-1), columns.duration_ps[kernels])
    groups: dict[tuple[str | None, str | None, int], tuple[int, int]] = {}
    for (op, name), one_count, one_total in zip(
        found.tolist(), count.tolist(), total.tolist(), strict=True
    ):
        text = trace.names.text(op)
        key = (*((None, None) if text is None else split_op(text)), name)
        earlier = groups.get(key, (0, 0))
        groups[key] = (earlier[0] + one_count, earlier[1] + one_total)
    rows = [
        OrdinaryKernel(
            op=op,
            op_type=op_type,
            kernel=trace.names.text(name) or "",
            precision=NumberFormat(known.precision[name]).name.lower(),
            count=one_count,
            total_ps=one_total,
            share_ratio=one_total / compute_ps if compute_ps else None,
        )
        for (op, op_type, name), (one_count, one_total) in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row.total_ps, row.op or "", row.kernel))


# Findings


def diagnose(trace: Trace, result: Precision | Skipped) -> list[Finding]:
    """GPUs with tensor cores that compute in 32 bits or more."""
    if isinstance(result, Skipped):
        return []
    rows = [
        row
        for row in result.devices
        if row.has_tensor_cores
        and row.compute_ps
        and row.unknown_ratio <= UNKNOWN_RATIO
        and row.low_precision_ratio < LOW_PRECISION_RATIO
    ]
    if not rows:
        return []
    most = max(rows, key=lambda row: row.compute_ps)
    unknown = max(row.unknown_ratio for row in rows)
    sure: Confidence = "high" if unknown <= TRUSTED_UNKNOWN_RATIO else "low"
    return [
        Finding(
            code="low-precision-unused",
            severity="info",
            title=f"{numbers.share(most.low_precision_ratio)} of the compute of {most.device} is in 16 bits or less",
            explanation=(
                f"{numbers.listed([row.device for row in rows])} can multiply 16-bit numbers on tensor cores, at "
                "several times the speed of float32, and 16-bit tensors take half the memory traffic. "
                f"{_told(most)}"
            ),
            advice=_advice(trace, rows),
            confidence=sure,
            confidence_reason=(
                "the names of the kernels tell their precision"
                if sure == "high"
                else f"the names of kernels with {unknown:.0%} of the compute do not tell their precision"
            ),
            evidence=tuple(
                Evidence(
                    "low_precision_ratio", row.low_precision_ratio, LOW_PRECISION_RATIO, row.device
                )
                for row in rows
            ),
            devices=tuple(row.device for row in rows),
        )
    ]


def _told(row: DevicePrecision) -> str:
    spent = {name: length for name, length in row.precision_ps.items() if length}
    parts = [f"{numbers.share(length / row.compute_ps)} {name}" for name, length in spent.items()]
    told = f"The compute of {row.device} is {numbers.listed(parts)}."
    if row.ordinary_kernels:
        first = row.ordinary_kernels[0]
        told += f" The longest product off the tensor cores: {first.op or first.kernel}, {numbers.time(first.total_ps)}."
    return told


def _advice(trace: Trace, rows: Sequence[DevicePrecision]) -> str:
    wanted = {row.device for row in rows}
    capabilities = [
        _capability(device) or 0.0
        for index, device in enumerate(trace.device_list)
        if trace.device_key(index) in wanted
    ]
    if min(capabilities) >= FIRST_BFLOAT16:
        return (
            'Train in mixed precision: tf.keras.mixed_precision.set_global_policy("mixed_bfloat16"). If float32 '
            "it must be, leave TF32 on: tf.config.experimental.enable_tensor_float_32_execution(True)."
        )
    return (
        'Train in mixed precision: tf.keras.mixed_precision.set_global_policy("mixed_float16"), which scales the '
        "loss by itself in Model.fit; keep the last layer in float32."
    )


ANALYSIS: Final = Analysis[Precision](
    "precision",
    compute=lambda context: compute(context.trace, context.selection, context.activities),
    diagnose=lambda context, result: diagnose(context.trace, result),
)
