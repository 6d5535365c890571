"""How well the compute uses the devices: its precision, whether tensor cores run, how much of a GPU kernels can fill, and FLOP/s.

The precision of a kernel is read from its name (`trace.device.kernel_names`). Kernels whose names show none are `unknown`, as those
made by XLA and CUDA graphs that are recorded as one event.

Tracers record of a kernel its block, its grid and its theoretical occupancy. A GPU hides the time that memory takes by running many
warps; a kernel with few of them, or with fewer blocks than there are multiprocessors, leaves much of the GPU idle while the GPU is
busy. Source: openxla/xla `cupti_collector.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Annotated, Final

import numpy as np

from traceview.analysis.facts.layers import label_kernels
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.measures.op_work import (
    DeviceFlops,
    flops_by_device,
    label_flops,
    label_precisions,
    label_ps,
    peak_flops,
    time_by_label,
)
from traceview.analysis.rules.finding import Finding, OfDevice, Skipped
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import Lost, Ops, Quantity
from traceview.base.ids import unique_inverse
from traceview.base.intervals import BoolArray
from traceview.base.record import (
    LARGEST,
    LARGEST_RECORDED,
    Count,
    Picoseconds,
    Ratio,
    Record,
    Share,
    one_of,
)
from traceview.base.text import lazy_pattern
from traceview.base.units import PS_PER_S
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import DEVICE, Shown
from traceview.ledger.states import State
from traceview.trace.columns import NONE
from traceview.trace.device.kernel_names import NumberFormat
from traceview.trace.device.op_names import op_labels, split_op
from traceview.trace.model import Device
from traceview.xplane.planes import parse_details

FIRST_TENSOR_CORES: Final = 7.0
"""Compute capability of Volta, the first with tensor cores."""

_NO_TENSOR_CORES: Final = "GTX 16"
"""A series of compute capability 7.5 without tensor cores."""

FIRST_MATRIX_CORES: Final = 9.4
"""Capability of MI300 in ROCm. Older GPUs are 9.0, with matrix cores (MI100, MI200) and without (MI50)."""

PRECISIONS: Final = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "unknown")
LOW_PRECISIONS: Final = ("bf16", "fp16", "fp8", "int8")


class DevicePrecision(OfDevice, frozen=True):
    """The compute time of one GPU in the used steps, without steps in the window, by precision.

    Attributes:
        compute_ps: Compute time, picoseconds.
        precision_ps: Compute time by precision, picoseconds; unknown where names show none. They add up to compute_ps.
        low_precision_ratio: Share of the compute time in 16 bits or less.
        unknown_ratio: Share of the compute time in kernels whose name shows no precision.
        has_tensor_cores: Whether the GPU has tensor cores (AMD: matrix cores); null where that is not known.
        tensor_core_ps: Compute time of kernels whose names show that they use tensor cores, picoseconds.
        tensor_core_ratio: The same over the compute time.
        occupancy_ratio: Warps of its kernels that fit over those that would, mean of the compute; null where not known.
        sparse_ps_per_step: Compute in kernels with blocks for less than half of the multiprocessors, or, but for products, below
            a quarter of the warps, mean of a used step, without steps of the window, picoseconds; null where no grid is recorded.
    """

    compute_ps: Picoseconds
    precision_ps: dict[Annotated[str, one_of(*PRECISIONS)], Picoseconds]
    low_precision_ratio: Share
    unknown_ratio: Share
    has_tensor_cores: bool | None
    tensor_core_ps: Picoseconds
    tensor_core_ratio: Share
    occupancy_ratio: Share | None
    sparse_ps_per_step: Picoseconds | None


class Precision(Record, frozen=True):
    """The precision of every GPU that computes.

    Attributes:
        tensor_core_ratio: Share of the compute time of all GPUs in kernels whose names show tensor cores.
        devices: GPUs in the order of hosts and ordinals.
    """

    tensor_core_ratio: Share
    devices: tuple[DevicePrecision, ...]


def compute_precision(context: Context) -> Precision | Skipped:
    """The precision of the kernels of each GPU."""
    of_device = context.once(time_by_label)
    gpus = [at for at, device in enumerate(context.trace.device_list) if device.kind == "gpu"]
    computing = [gpu for gpu in gpus if gpu in of_device and of_device[gpu].total]
    if not computing:
        return Skipped("no GPU ran a kernel" if gpus else "not applicable: there is no GPU")
    rows = tuple(_precision_of(context, gpu) for gpu in computing)
    whole = sum(row.compute_ps for row in rows)
    return Precision(sum(row.tensor_core_ps for row in rows) / whole, rows)


def _precision_of(context: Context, device: int) -> DevicePrecision:
    trace, fill = context.trace, context.once(_fill)[1].get(device)
    by_label, kernels = context.once(time_by_label)[device], trace.once(label_kernels)
    compute_ps = by_label.total
    by_precision = {
        name: by_label.where(kernels.precision == NumberFormat[name.upper()]).total
        for name in PRECISIONS
    }
    tensor_core_ps = by_label.where(kernels.tensor_core).total
    return DevicePrecision(
        *trace.identity(device),
        compute_ps=compute_ps,
        precision_ps=by_precision,
        low_precision_ratio=sum(by_precision[name] for name in LOW_PRECISIONS) / compute_ps,
        unknown_ratio=by_precision["unknown"] / compute_ps,
        has_tensor_cores=_has_tensor_cores(
            trace.device_list[device], is_shown=bool(tensor_core_ps)
        ),
        tensor_core_ps=tensor_core_ps,
        tensor_core_ratio=tensor_core_ps / compute_ps,
        occupancy_ratio=fill[0] if fill else None,
        sparse_ps_per_step=fill[1] if fill else None,
    )


def _has_tensor_cores(device: Device, *, is_shown: bool) -> bool | None:
    """Whether a GPU has tensor cores (AMD: matrix cores); `is_shown`: a kernel of it uses them.

    Without a recorded capability, and for AMD GPUs of 9.0, only such a kernel shows it.
    """
    major, minor = (device.count(f"compute_cap_{part}") for part in ("major", "minor"))
    if is_shown or major is None or minor is None:
        return is_shown or None
    capability = major + minor / 10
    if device.stats.get("device_vendor") == "AMD":
        return True if capability >= FIRST_MATRIX_CORES else None
    return capability >= FIRST_TENSOR_CORES and _NO_TENSOR_CORES not in (device.model or "")


# Findings about precision

_TRUSTED_UNKNOWN_RATIO: Final = 0.10
"""Up to this share of compute of unknown precision the finding is certain."""

LOW_PRECISION_UNUSED: Final = Rule(
    code="low-precision-unused",
    severity="info",
    # The first is that of XProf.
    limits={"low_precision_ratio": 0.10, "unknown_ratio": 0.50},
    starts_at=(
        "less than {low_precision_ratio} of the compute in 16 bits or less, on GPUs with tensor cores; not where the "
        "names of the kernels leave more than {unknown_ratio} of the compute unknown"
    ),
    title="{who:does/do} {ratio} of the compute in 16 bits",
    titles={"none": "{who:does/do} no compute in 16 bits"},
    meaning="Tensor cores multiply 16-bit numbers several times faster than float32, with half the memory traffic.",
    action='Train in mixed precision: `tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")`.',
    advice=(
        'GPUs before Ampere have no bfloat16: `"mixed_float16"` there. If it has to be float32, leave TF32 on: '
        "`tf.config.experimental.enable_tensor_float_32_execution(True)`."
    ),
    actions={
        "jax": (
            "Compute in bfloat16: arrays and parameters with dtype `jnp.bfloat16`.",
            "Layers take `dtype=jnp.bfloat16`.",
        ),
    },
    reasons={"unknown": "the names of kernels with {unknown} of the compute do not show it"},
    metrics={"low_precision_ratio": "share of the compute in 16 bits or less"},
    example="All 4 GPUs do no compute in 16 bits",
)


def _low_precision(context: Context, result: Precision) -> Finding | None:
    """GPUs with tensor cores that compute in 32 bits or more."""
    limits = LOW_PRECISION_UNUSED.limits
    rows = [
        row
        for row in result.devices
        if row.has_tensor_cores
        and row.compute_ps
        and row.unknown_ratio <= limits["unknown_ratio"]
        and row.low_precision_ratio < limits["low_precision_ratio"]
    ]
    low_ps = sum(row.precision_ps[name] for row in rows for name in LOW_PRECISIONS)
    unknown = max((row.unknown_ratio for row in rows), default=0.0)
    return LOW_PRECISION_UNUSED.about(
        context,
        rows,
        {
            "ratio": Quantity(low_ps / (sum(row.compute_ps for row in rows) or 1), "ratio"),
            "unknown": Quantity(unknown, "ratio"),
        },
        "low_precision_ratio",
        limits["low_precision_ratio"],
        confidence=("low", "unknown") if unknown > _TRUSTED_UNKNOWN_RATIO else ("high", ""),
        title="" if low_ps else "none",
    )


# How much of the GPU kernels can fill

_GRID: Final = lazy_pattern(rb"(\d{1,10}),(\d{1,10}),(\d{1,10})")
_MOST_THREADS: Final = 1024
"""In a block."""


def launch_of(details: bytes) -> tuple[float, float]:
    """What the details of a kernel say: how many blocks it has, and the occupancy; nan where not known."""
    pairs = parse_details(details)
    grid, block = (_GRID.fullmatch(pairs.get(key, b"")) for key in (b"grid", b"block"))
    if grid is None or block is None:
        return np.nan, np.nan
    blocks, threads = prod(map(int, grid.groups())), prod(map(int, block.groups()))
    if not 0 < blocks <= LARGEST_RECORDED or not 0 < threads <= _MOST_THREADS:
        return np.nan, np.nan
    text = pairs.get(b"occ_pct", b"")
    try:
        occupancy = float(text) / 100 if len(text) < 20 else np.nan
    except ValueError:
        occupancy = np.nan
    # ROCm writes 0 where it does not know it.
    return blocks, occupancy if 0 < occupancy <= 1 else np.nan


def _fill(context: Context) -> tuple[BoolArray, dict[int, tuple[float | None, int]]]:
    """Which rows of the ledger are of kernels that fill little of a GPU, bool `[n]`.

    By device whose kernels have a grid the mean occupancy, None where not known, and how long a mean step has such kernels,
    picoseconds.
    """
    trace, ledger = context.trace, context.ledger
    columns, limits = trace.device_columns, LOW_OCCUPANCY.limits
    sparse: BoolArray = np.zeros(ledger.count, dtype=np.bool_)
    of_device: dict[int, tuple[float | None, int]] = {}
    details, of_event = unique_inverse(columns.details)
    if not (details != NONE).any():
        return sparse, of_device
    launches = np.array(
        [launch_of(b"" if at == NONE else trace.names[at]) for at in details.tolist()]
    )
    # What is not known to be none may be a product.
    is_product = trace.once(label_kernels).is_matrix | (trace.once(label_flops) != 0)
    is_compute, of_row = ledger.rows(states=(State.COMPUTE,)), trace.once(op_labels).of_row
    for device in ledger.devices:
        own = ledger.rows_of(device)
        rows = np.flatnonzero(is_compute[own]) + own.start
        event, ps = ledger.columns.event[rows], ledger.columns.duration_ps[rows]
        blocks, occupancy = launches[of_event[event]].T
        if not (blocks > 0).any():
            continue
        cores = trace.device_list[device].count("core_count") or 0
        is_sparse = (occupancy < limits["occupancy_ratio"]) & ~is_product[of_row[event]]
        is_sparse |= blocks < limits["block_ratio"] * cores
        sparse[rows[is_sparse]] = True
        is_known = ~np.isnan(occupancy)
        known_ps = int(ps[is_known].sum())
        mean = float((occupancy * ps)[is_known].sum()) / known_ps if known_ps else None
        sparse_ps = int(ps[is_sparse].sum()) // (ledger.steps_of_device[device] or 1)
        of_device[device] = None if mean is None else min(mean, 1.0), sparse_ps
    return sparse, of_device


LOW_OCCUPANCY: Final = Rule(
    code="low-occupancy",
    severity="info",
    limit=0.10,
    limits={"block_ratio": 0.5, "occupancy_ratio": 0.25},
    starts_at=(
        "{limit} of the GPU time in kernels with blocks for less than {block_ratio} of the multiprocessors, or, but for products, "
        "below {occupancy_ratio} of the warps that fit"
    ),
    title="{who:computes/compute} {loss} in kernels that fill little of the GPU[, {ops}]",
    meaning="The GPU counts as busy, but most of it has nothing to do: such a kernel takes as long for several times the work.",
    action="Use a larger batch per GPU: more work in each kernel takes little longer.",
    advice="`jit_compile=True` on the function inside `strategy.run` fuses small ops.",
    actions={
        "jax": (
            "Use a larger batch per GPU: more work in each kernel takes little longer.",
            "Compile the whole step in one `jax.jit`.",
        )
    },
    metrics={"sparse_ps_per_step": "in such kernels"},
    example="GPU:0 computes 21.0 of 50.0 ms (42%) in kernels that fill little of the GPU, adam/update/mul",
)


def _low_occupancy(context: Context, result: Precision) -> Finding | None:
    """GPUs whose kernels leave most of them idle, with the op of those that take longest."""
    rows, ledger, trace = context.once(_fill)[0], context.ledger, context.trace
    lost = ledger.loss(rows)
    if not lost.ps or lost.share < LOW_OCCUPANCY.limit:
        return None
    columns = trace.device_columns
    longest = trace.once(op_labels).row[label_ps(context, rows).argmax()]
    op, kernel = (trace.names.text(int(of[longest])) for of in (columns.op, columns.name))
    return LOW_OCCUPANCY.about(
        context,
        [row for row in result.devices if row.device in lost.devices],
        {
            "loss": Lost(lost.mean_ps, lost.of_ps, lost.named_share),
            "ops": Ops((split_op(op or kernel or "")[0],)),
        },
        "sparse_ps_per_step",
    )


def diagnose(context: Context, result: Precision) -> Iterator[Finding | None]:
    """GPUs that compute with more bits than they need, or that kernels leave mostly idle."""
    yield _low_precision(context, result)
    yield _low_occupancy(context, result)


# Section


def precision_section(view: View, result: Precision) -> doc.Section | None:
    """The compute time of each GPU by precision, and how much of the GPU its kernels fill."""
    if not result.devices:
        return None
    has_grids = any(row.sparse_ps_per_step is not None for row in result.devices)
    fill = _FILL_COLUMNS if has_grids else ()
    shown = (*_PRECISION_COLUMNS, *fill, *_by_precision(result.devices))
    blocks = view.device_table("Compute time by precision", result.devices, shown)
    lead = f"{numbers.share(result.tensor_core_ratio)} of the compute runs on tensor cores."
    if all(row.has_tensor_cores is False for row in result.devices):
        lead = "The GPUs have no tensor cores."
    return doc.Section("precision", "Precision", blocks, lead=lead)


_PRECISION_COLUMNS: Final = (
    DEVICE,
    Shown("compute", "compute_ps", 2),
    Shown(
        "tensor cores",
        lambda row: "none" if row.has_tensor_cores is False else row.tensor_core_ratio,
        kind="share",
        meaning="compute in kernels whose names show that they use tensor cores",
    ),
    Shown("16 bits or less", "low_precision_ratio", 1),
)


_FILL_COLUMNS: Final = (
    Shown("occupancy", "occupancy_ratio", 2, meaning="warps that fit, of the most"),
    Shown("fills little", "sparse_ps_per_step", 2, meaning="per step in kernels that do"),
)


def _by_precision(rows: Sequence[DevicePrecision]) -> Iterator[Shown]:
    """A column per precision that occurs, the one with most compute time first."""

    def share_of(name: str) -> Callable[[DevicePrecision], float | None]:
        return lambda row: doc.ratio(row.precision_ps.get(name, 0), row.compute_ps)

    sums = {name: sum(row.precision_ps.get(name, 0) for row in rows) for name in PRECISIONS}
    ranked = sorted((name for name in sums if sums[name]), key=lambda name: -sums[name])
    for place, name in enumerate(ranked):
        yield Shown(name, share_of(name), place and place + 2, "share")


PRECISION: Final = Analysis[Precision](
    "precision",
    compute=compute_precision,
    rules=(LOW_PRECISION_UNUSED, LOW_OCCUPANCY),
    diagnose=diagnose,
    sections=(precision_section,),
)


# How far devices are from their peak


class DeviceEfficiency(OfDevice, frozen=True):
    """The floating-point operations (FLOPs) of one device in the used steps, or without steps in the window.

    Only products count: of matrices, convolutions and attention, each product with its sum as two. All figures are of
    known products, so they are lower bounds where unknown_ratio is not 0.

    Attributes:
        flops_per_second: FLOPs over the time in which ops run; on a CPU short ops are a part of that time.
        unknown_ratio: Share of the time of ops whose FLOPs are not known.
        flops_per_step: FLOPs of a step, mean; without steps, of the window.
        peak_flops_per_second: What the device can do at most at the precision of these FLOPs; null where that is not known.
        mfu_ratio: Model FLOPs utilization: FLOPs over what the peak allows in the whole step; null where the peak is.
    """

    flops_per_second: Count
    unknown_ratio: Share
    flops_per_step: Count
    peak_flops_per_second: Count | None
    mfu_ratio: Ratio | None


class Efficiency(Record, frozen=True):
    """How close devices are to what their hardware can do.

    Attributes:
        devices: Devices that compute, in the order of the device list.
    """

    devices: tuple[DeviceEfficiency, ...]


def compute_efficiency(context: Context) -> Efficiency | Skipped:
    """The FLOPs of each device."""
    of_device = context.once(flops_by_device)
    if not of_device:
        return Skipped("no device computed in the used steps")
    is_known = context.trace.once(label_flops) > 0
    if not any(of.runs.where(is_known).total for of in of_device.values()):
        return Skipped("no program and no capture says the FLOPs of what ran")
    rows = (_efficiency_of(context, device, of) for device, of in of_device.items())
    return Efficiency(tuple(rows))


def _efficiency_of(context: Context, device: int, of: DeviceFlops) -> DeviceEfficiency:
    ledger = context.ledger
    whole, duration_ps = float(of.known_flops.sum()), of.duration_ps.total
    unknown_ps = of.duration_ps.where(np.isnan(of.of_run)).total
    peak_ps = _at_peak_ps(context, device, of)
    step_ps = ledger.gpu_ps_by_device[device]

    def rounded(number: float) -> int:
        return round(min(number, LARGEST))

    return DeviceEfficiency(
        *context.trace.identity(device),
        flops_per_second=rounded(whole / of.ran_ps * PS_PER_S) if of.ran_ps else 0,
        unknown_ratio=unknown_ps / duration_ps if duration_ps else 0.0,
        flops_per_step=rounded(whole / (ledger.steps_of_device[device] or 1)),
        peak_flops_per_second=rounded(whole / peak_ps * PS_PER_S) if peak_ps else None,
        mfu_ratio=peak_ps / step_ps if peak_ps and step_ps else None,
    )


_KNOWN_RATIO: Final = 0.99
"""Share of the FLOPs whose precision has to be known; the others count as these do."""


def _at_peak_ps(context: Context, device: int, of: DeviceFlops) -> float | None:
    """How long the products would take at the peak of their precision; None where that is not known."""
    peaks, rates = peak_flops(context.trace, device), np.full(len(NumberFormat), np.nan)
    rates[list(peaks)] = list(peaks.values())
    flops, rate = of.known_flops, rates[context.trace.once(label_precisions)]
    is_known = (flops > 0) & ~np.isnan(rate)
    whole, known = float(flops.sum()), float(flops[is_known].sum())
    if not known or known < _KNOWN_RATIO * whole:
        return None
    return float((flops[is_known] / rate[is_known] * PS_PER_S).sum()) * whole / known


_EFFICIENCY_COLUMNS: Final = (
    DEVICE,
    Shown("FLOP/s", "flops_per_second", meaning="known FLOPs over the time in which ops run"),
    Shown("not known", "unknown_ratio", meaning="time of ops whose FLOPs are not known"),
    Shown("MFU", "mfu_ratio", meaning="FLOPs over the peak of the whole step"),
    Shown("peak", "peak_flops_per_second", 1, meaning="at the precision in use"),
    Shown("FLOPs", "flops_per_step", 2, meaning="of a step, without steps of the window"),
)


def efficiency_section(view: View, result: Efficiency) -> doc.Section:
    """A row per device."""
    rows = result.devices
    blocks = view.device_table("Efficiency", rows, _EFFICIENCY_COLUMNS, "efficiency")
    what = "FLOPs of products, convolutions and attention count."
    rate = numbers.flop_rate(sum(row.flops_per_second for row in rows) / len(rows))
    mfus = [row.mfu_ratio for row in rows if row.mfu_ratio is not None]
    if mfus:
        what += " MFU is of the whole step, with all that is no compute."
    mfu = f", MFU {numbers.share_range(mfus)}" if len(mfus) == len(rows) else ""
    lead = f"{rate} while a device computes{mfu}."
    if any(row.unknown_ratio for row in rows):
        unknown = numbers.share_range(row.unknown_ratio for row in rows)
        lead += f" The FLOPs of {unknown} of the time of ops are not known."
    return doc.Section("efficiency", "Efficiency", (*blocks, doc.Remark(what)), lead=lead)


ANALYSIS: Final = Analysis[Efficiency](
    "efficiency",
    compute=compute_efficiency,
    sections=(efficiency_section,),
    rows=(DeviceEfficiency, lambda result: result.devices),
)
