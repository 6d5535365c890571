"""Kernels of GPUs: in which precision they compute, whether on tensor cores, and how much of the GPU they can fill.

The precision of a kernel is read from its name (`xplane.kernel_names`). Kernels whose names show none are `unknown`, as those
made by XLA and CUDA graphs that are recorded as one event.

Tracers record of a kernel its block, its grid and its theoretical occupancy. A GPU hides the time that memory takes by running many
warps; a kernel with few of them, or with fewer blocks than there are multiprocessors, leaves much of the GPU idle while the GPU is
busy. Source: openxla/xla `cupti_collector.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from math import prod
from typing import Annotated, Final

import numpy as np
from msgspec import Struct

from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.measures.op_work import (
    FloatArray,
    label_flops,
    label_kernels,
    time_by_label,
)
from traceview.analysis.rules.finding import Evidence, Finding, OfDevice, Skipped
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import Lost, Number, Ops, Part
from traceview.base.ids import unique_ids
from traceview.base.intervals import BoolArray, Int64Array
from traceview.base.record import (
    LARGEST_RECORDED,
    Count,
    KernelName,
    OpName,
    Picoseconds,
    Record,
    Share,
    one_of,
)
from traceview.base.sweeping import SWEEPS
from traceview.base.text import lazy_pattern
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import DEVICE, Shown, table
from traceview.document.phrase import Token, phrase
from traceview.ledger.states import State
from traceview.trace.columns import NONE
from traceview.trace.device.op_names import op_labels, split_op
from traceview.trace.model import Device, Recording, Trace
from traceview.xplane.kernel_names import NumberFormat
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
        precision_ps: Compute time by precision, picoseconds; they add up to compute_ps. unknown: the name of the kernel shows no
            precision.
        low_precision_ratio: Share of the compute time in 16 bits or less.
        unknown_ratio: Share of the compute time in kernels whose name shows no precision.
        has_tensor_cores: Whether the GPU has tensor cores (AMD: matrix cores); null where that is not known.
        tensor_core_ps: Compute time of kernels whose names show that they use tensor cores, picoseconds.
        tensor_core_ratio: The same over the compute time.
        opaque_count: CUDA graphs recorded as one event, whose kernels are not known.
    """

    compute_ps: Picoseconds
    precision_ps: dict[Annotated[str, one_of(*PRECISIONS)], Picoseconds]
    low_precision_ratio: Share
    unknown_ratio: Share
    has_tensor_cores: bool | None
    tensor_core_ps: Picoseconds
    tensor_core_ratio: Share
    opaque_count: Count


class Precision(Record, frozen=True):
    """The precision of every GPU that computes.

    Attributes:
        tensor_core_ratio: Share of the compute time of all GPUs in kernels whose names show that they use tensor
            cores.
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
    is_compute = context.ledger.rows(states=(State.COMPUTE,))
    rows = tuple(_precision_of(context, gpu, is_compute) for gpu in computing)
    whole = sum(row.compute_ps for row in rows)
    return Precision(sum(row.tensor_core_ps for row in rows) / whole, rows)


def _precision_of(context: Context, device: int, is_compute: BoolArray) -> DevicePrecision:
    trace, columns, own = context.trace, context.ledger.columns, context.ledger.rows_of(device)
    by_label, kernels = context.once(time_by_label)[device], trace.once(label_kernels)
    compute_ps = by_label.total
    by_precision = {
        name: by_label.where(kernels.precision == NumberFormat[name.upper()]).total
        for name in PRECISIONS
    }
    tensor_core_ps = by_label.where(kernels.tensor_core).total
    events = unique_ids(columns.event[own][is_compute[own]])
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
        opaque_count=int(trace.device_columns.opaque[events].sum()),
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


# Findings about precision

FIRST_BFLOAT16: Final = 8.0
"""Compute capability from which tensor cores support bfloat16 and TF32."""

_TRUSTED_UNKNOWN_RATIO: Final = 0.10
"""Up to this share of compute of unknown precision the finding is certain."""

LOW_PRECISION_UNUSED: Final = Rule(
    code="low-precision-unused",
    severity="info",
    # The first limit is that of XProf.
    limits={"low_precision_ratio": 0.10, "unknown_ratio": 0.50},
    starts_at=(
        "less than {low_precision_ratio} of the compute in 16 bits or less, on GPUs with tensor cores; not where the "
        "names of the kernels leave more than {unknown_ratio} of the compute unknown"
    ),
    title="{who:does/do} {ratio} of the compute in 16 bits",
    titles={"none": "{who:does/do} no compute in 16 bits"},
    meaning=(
        "Tensor cores multiply 16-bit numbers several times faster than float32, and 16-bit tensors take half the "
        "memory traffic."
    ),
    action='Train in mixed precision: `tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")`.',
    advice=(
        "If it has to be float32, leave TF32 on: `tf.config.experimental.enable_tensor_float_32_execution(True)`."
    ),
    actions={
        "float16": (
            'Train in mixed precision: `tf.keras.mixed_precision.set_global_policy("mixed_float16")`.',
            "It applies loss scaling automatically in `Model.fit`; keep the last layer in float32.",
        ),
        "jax": (
            "Compute in bfloat16: arrays and parameters with dtype `jnp.bfloat16`.",
            "Layers take `dtype=jnp.bfloat16`.",
        ),
    },
    reasons={
        "names": "the names of the kernels show their precision",
        "unknown": "the names of kernels with {unknown} of the compute do not show it",
    },
    metrics={"low_precision_ratio": "share of the compute in 16 bits or less"},
    example="All 4 GPUs do no compute in 16 bits",
)


OPAQUE_CUDA_GRAPH: Final = Rule(
    code="opaque-cuda-graph",
    severity="info",
    starts_at="any CUDA graph that is recorded as one event",
    title="{who:runs/run} {graphs} recorded without kernels",
    meaning=(
        "The tracer recorded CUDA graphs without their kernels. They count as compute; which kernels, ops and "
        "collectives ran in them, and in which precision, is not in the trace."
    ),
    action="Capture once without graphs to see kernels: XLA's are off with `XLA_FLAGS=--xla_gpu_enable_command_buffer=`.",
    metrics={"opaque_count": "CUDA graphs recorded as one event"},
    example="GPU:0 runs 12 CUDA graphs recorded without kernels",
)


def diagnose_precision(context: Context, result: Precision) -> Iterator[Finding | None]:
    """CUDA graphs of which only the whole is recorded, and GPUs with tensor cores that compute in 32 bits or more."""
    opaque = [row for row in result.devices if row.opaque_count]
    yield OPAQUE_CUDA_GRAPH.about(
        context,
        opaque,
        {"graphs": Number(sum(row.opaque_count for row in opaque), "CUDA graph")},
        "opaque_count",
        0,
    )
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
    keys = frozenset(row.device for row in rows)
    yield LOW_PRECISION_UNUSED.about(
        context,
        rows,
        {
            "ratio": Part(low_ps / (sum(row.compute_ps for row in rows) or 1)),
            "unknown": Part(unknown),
        },
        "low_precision_ratio",
        limits["low_precision_ratio"],
        confidence=("low", "unknown") if unknown > _TRUSTED_UNKNOWN_RATIO else ("high", "names"),
        title="" if low_ps else "none",
        action="" if _have_bfloat16(context.trace, keys) else "float16",
    )


def _have_bfloat16(trace: Trace, keys: Collection[str]) -> bool:
    return all(
        (capability_of(device) or 0.0) >= FIRST_BFLOAT16
        for index, device in enumerate(trace.device_list)
        if trace.device_key(index) in keys
    )


def precision_section(view: View, result: Precision) -> doc.Section | None:
    """The compute time of each GPU by precision."""
    if not result.devices:
        return None
    shown = (*_PRECISION_COLUMNS, *_by_precision(result.devices))
    blocks = view.device_table("Compute time by precision", result.devices, shown)
    return doc.Section("precision", "Precision", blocks, lead=_precision_lead(result))


def _precision_lead(result: Precision) -> str:
    if all(row.has_tensor_cores is False for row in result.devices):
        return "The GPUs have no tensor cores."
    return f"{numbers.share(result.tensor_core_ratio)} of the compute runs on tensor cores."


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


def _by_precision(rows: Sequence[DevicePrecision]) -> Iterator[Shown]:
    """A column per precision that occurs, the one with most compute time first."""

    def share_of(name: str) -> Callable[[DevicePrecision], float | None]:
        return lambda row: doc.ratio(row.precision_ps.get(name, 0), row.compute_ps)

    totals = {name: sum(row.precision_ps.get(name, 0) for row in rows) for name in PRECISIONS}
    ranked = sorted((name for name in totals if totals[name]), key=lambda name: -totals[name])
    for place, name in enumerate(ranked):
        yield Shown(name, share_of(name), place and place + 2, "share")


PRECISION: Final = Analysis[Precision](
    "precision",
    compute=compute_precision,
    rules=(OPAQUE_CUDA_GRAPH, LOW_PRECISION_UNUSED),
    diagnose=diagnose_precision,
    sections=(precision_section,),
)


# How much of the GPU kernels can fill

MOST_KERNELS: Final = 10
"""Of each device, those of most time."""


class SparseKernel(Record, frozen=True):
    """A kernel that fills little of the GPU, of one op.

    Attributes:
        op: Name of the op; null where not recorded.
        kernel: Name of the kernel.
        compute_ps_per_step: Its compute, mean of a used step, without steps of the window, picoseconds.
        occupancy_ratio: Warps that a multiprocessor can run of it at once, over those that it can run at most; null where not
            known.
        block_count: Blocks of its grid.
        multiprocessor_count: Multiprocessors of the GPU.
    """

    op: OpName | None
    kernel: KernelName
    compute_ps_per_step: Picoseconds
    occupancy_ratio: Share | None
    block_count: Count
    multiprocessor_count: Count


class DeviceOccupancy(OfDevice, frozen=True):
    """How much of one GPU its kernels can fill, in the used steps; without steps in the window.

    Attributes:
        known_ratio: Share of its compute in kernels whose grid is recorded.
        occupancy_ratio: Mean theoretical occupancy over the compute for which it is known; null without any.
        sparse_ps_per_step: Compute in kernels that fill little of the GPU, mean of a used step, picoseconds: those with blocks
            for less than half of the multiprocessors, and those below a quarter of the warps that are no products, which need
            few warps.
        kernels: The longest of these.
    """

    known_ratio: Share
    occupancy_ratio: Share | None
    sparse_ps_per_step: Picoseconds
    kernels: tuple[SparseKernel, ...]


class Occupancy(Record, frozen=True):
    """How much of the GPUs their kernels can fill.

    Attributes:
        devices: GPUs of whose kernels a grid is recorded.
    """

    devices: tuple[DeviceOccupancy, ...]


# What the details of a kernel say

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


def _launches(trace: Recording) -> FloatArray:
    """What each name of the trace says as the details of a kernel, float64 `[2, names + 1]`; the last place is that of `NONE`."""
    said = np.full((2, len(trace.names) + 1), np.nan)
    for name in unique_ids(trace.device_columns.details).tolist():
        if name != NONE:
            said[:, name] = launch_of(trace.names[name])
    return said


class _Devices(Struct, frozen=True, eq=False):
    """The occupancy of each GPU, and which rows of the ledger are of kernels that fill little of one, bool."""

    rows: tuple[DeviceOccupancy, ...]
    is_sparse: BoolArray


def _devices(context: Context) -> _Devices:
    """Of each device whose kernels have details."""
    trace, ledger = context.trace, context.ledger
    columns, labels = trace.device_columns, trace.once(op_labels)
    is_compute = ledger.rows(states=(State.COMPUTE,))
    made, is_sparse_row = [], np.zeros(ledger.count, dtype=np.bool_)
    for device in ledger.devices if (columns.details != NONE).any() else ():
        own = ledger.rows_of(device)
        rows = np.flatnonzero(is_compute[own]) + own.start
        event = ledger.columns.event[rows]
        nothing = np.zeros(rows.size, dtype=np.uint8)
        of_row, first = SWEEPS.labelled(labels.of_row[event], columns.details[event], nothing)
        times = SWEEPS.totals(of_row, ledger.columns.duration_ps[rows], first.size)
        blocks, occupancy = trace.once(_launches)[:, columns.details[event[first]]]
        if times[blocks > 0].any():
            label = labels.of_row[event[first]].astype(np.int64)
            is_sparse = _is_sparse(trace, device, label, blocks, occupancy)
            is_sparse_row[rows[is_sparse[of_row]]] = True
            made.append(_of_device(context, device, label, times, blocks, occupancy, is_sparse))
    return _Devices(tuple(made), is_sparse_row)


def _is_sparse(
    trace: Trace, device: int, label: Int64Array, blocks: FloatArray, occupancy: FloatArray
) -> BoolArray:
    """Which kernels fill little of the GPU; one of which that is not known may be a product."""
    is_product = trace.once(label_kernels).is_matrix | (trace.once(label_flops).flops != 0)
    is_other = ~is_product[label]
    limits, cores = LOW_OCCUPANCY.limits, trace.device_list[device].count("core_count") or 0
    has_few_blocks = blocks < limits["block_ratio"] * cores
    sparse: BoolArray = has_few_blocks | (is_other & (occupancy < limits["occupancy_ratio"]))
    return sparse


def compute_occupancy(context: Context) -> Occupancy | Skipped:
    """The occupancy of each GPU."""
    rows = context.once(_devices).rows
    return Occupancy(rows) if rows else Skipped("no kernel recorded how it was launched")


def _of_device(
    context: Context,
    device: int,
    label: Int64Array,
    times: Int64Array,
    blocks: FloatArray,
    occupancy: FloatArray,
    is_sparse: BoolArray,
) -> DeviceOccupancy:
    """The row of a device of its kernels by label and details."""
    trace, count = context.trace, context.ledger.steps_of_device[device] or 1
    columns, event_of = trace.device_columns, trace.once(op_labels).row
    is_known = ~np.isnan(occupancy)
    occupied_ps = int(times[is_known].sum())
    kernels = []
    longest = np.argsort(np.where(is_sparse, -times, 1), kind="stable")[:MOST_KERNELS]
    for place in longest[is_sparse[longest]].tolist():
        event = int(event_of[label[place]])
        op = trace.names.text(int(columns.op[event]))
        kernels.append(
            SparseKernel(
                op=None if op is None else split_op(op)[0],
                kernel=trace.names.text(int(columns.name[event])) or "",
                compute_ps_per_step=int(times[place]) // count,
                occupancy_ratio=float(occupancy[place]) if is_known[place] else None,
                block_count=int(blocks[place]),
                multiprocessor_count=trace.device_list[device].count("core_count") or 0,
            )
        )
    mean = float((occupancy * times)[is_known].sum()) / occupied_ps if occupied_ps else None
    return DeviceOccupancy(
        *trace.identity(device),
        known_ratio=int(times[blocks > 0].sum()) / int(times.sum()),
        occupancy_ratio=None if mean is None else min(mean, 1.0),
        sparse_ps_per_step=int(times[is_sparse].sum()) // count,
        kernels=tuple(kernels),
    )


LOW_OCCUPANCY: Final = Rule(
    code="low-occupancy",
    severity="info",
    limit=0.10,
    limits={"block_ratio": 0.5, "occupancy_ratio": 0.25},
    starts_at=(
        "{limit} of the GPU time in kernels with blocks for less than {block_ratio} of the multiprocessors, or below "
        "{occupancy_ratio} of the warps that fit; of products of matrices only the blocks count, for they need few warps"
    ),
    title="{who:computes/compute} {loss} in kernels that fill little of the GPU[, {ops}]",
    meaning=(
        "The GPU counts as busy, but most of its multiprocessors have nothing to do, or too few warps to work while others wait "
        "for memory. Such a kernel takes about as long for several times the work."
    ),
    action="Use a larger batch per GPU: more work in each kernel takes little longer.",
    advice=(
        "`jit_compile=True` on the function inside `strategy.run` fuses small ops. `traceview analyze LOGDIR --full` lists the kernels, with their blocks."
    ),
    actions={
        "jax": (
            "Use a larger batch per GPU: more work in each kernel takes little longer.",
            "Compile the whole step in one `jax.jit`. `traceview analyze LOGDIR --full` lists the kernels, with their blocks.",
        )
    },
    metrics={"sparse_ps_per_step": "in such kernels", "occupancy_ratio": "mean occupancy"},
    example="GPU:0 computes 21.0 of 50.0 ms (42%) in kernels that fill little of the GPU, adam/update/mul",
)


def diagnose_occupancy(context: Context, result: Occupancy) -> Iterator[Finding | None]:
    """GPUs whose kernels leave most of them idle."""
    lost = context.ledger.loss(context.once(_devices).is_sparse)
    if not lost.ps or lost.share < LOW_OCCUPANCY.limit:
        return
    named = [row for row in result.devices if row.device in lost.devices]
    kernels = (kernel for row in named for kernel in row.kernels)
    longest = max(kernels, key=lambda kernel: kernel.compute_ps_per_step)
    yield LOW_OCCUPANCY.about(
        context,
        named,
        {
            "loss": Lost(lost.mean_ps, lost.of_ps, lost.named_share),
            "ops": Ops((longest.op or longest.kernel,)),
        },
        "sparse_ps_per_step",
        evidence=[
            Evidence("occupancy_ratio", row.occupancy_ratio, None, row.device)
            for row in named
            if row.occupancy_ratio is not None
        ],
    )


_OCCUPANCY_COLUMNS: Final = (
    DEVICE,
    Shown(
        "occupancy", "occupancy_ratio", meaning="warps that fit over the most, mean of the compute"
    ),
    Shown(
        "fills little",
        "sparse_ps_per_step",
        meaning="compute in kernels that fill little of the GPU",
    ),
    Shown("known", "known_ratio", 1, meaning="compute in kernels whose grid is recorded"),
)
_KERNEL_COLUMNS: Final = (
    Shown("op or kernel", lambda row: row.op or row.kernel, kind="name"),
    Shown("time", "compute_ps_per_step"),
    Shown("blocks", "block_count"),
    Shown("multiprocessors", "multiprocessor_count", 3),
    Shown("occupancy", "occupancy_ratio", 1),
    Shown("kernel", lambda row: row.kernel if row.op else None, 2, "name"),
)


def occupancy_section(view: View, result: Occupancy) -> doc.Section | None:
    """A row per GPU, and the kernels that fill little of the one where they take most."""
    if view.is_brief and not any(row.kernels for row in result.devices):
        return None
    worst = max(result.devices, key=lambda row: row.sparse_ps_per_step)
    subheading = doc.Subheading(
        phrase("Kernels that fill little of ", Token(worst.device, "device"))
    )
    return doc.Section(
        "occupancy",
        "Occupancy",
        (
            *view.device_table("Occupancy", result.devices, _OCCUPANCY_COLUMNS),
            *((subheading,) if worst.kernels else ()),
            *table(
                "Kernels that fill little", worst.kernels, _KERNEL_COLUMNS, most_rows=view.most_rows
            ),
        ),
    )


OCCUPANCY: Final = Analysis[Occupancy](
    "occupancy",
    compute=compute_occupancy,
    rules=(LOW_OCCUPANCY,),
    diagnose=diagnose_occupancy,
    sections=(occupancy_section,),
)
