"""Measures how much of each GPU its kernels can fill: by the warps that fit, and by the blocks that there are.

Tracers record of a kernel its registers, its block and its grid. A GPU hides the time that memory takes by running many warps;
a kernel with few of them, or with fewer blocks than there are multiprocessors, leaves much of the GPU idle while the GPU is busy.
Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; openxla/xla `cupti_collector.cc`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.kernels import kernel_names
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.measures.op_work import FloatArray, label_flops
from traceview.analysis.rules.finding import Evidence, Finding, OfDevice, Skipped
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import Lost, Ops
from traceview.base.ids import unique_ids
from traceview.base.intervals import BoolArray, Int64Array
from traceview.base.record import Count, KernelName, OpName, Picoseconds, Record, Share
from traceview.base.sweeping import SWEEPS
from traceview.document import model as doc
from traceview.document.columns import DEVICE, Shown, table
from traceview.document.phrase import Token, phrase
from traceview.ledger.states import State
from traceview.trace.device.op_names import op_labels, split_op
from traceview.trace.model import NONE, Device, Trace
from traceview.xplane.planes import parse_details

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

_GRID: Final = re.compile(rb"(\d{1,10}),(\d{1,10}),(\d{1,10})")
_WARP: Final = 32
_REGISTERS: Final = 1 << 16
_REGISTERS_AT_ONCE: Final = 256
"""A multiprocessor has 65,536 registers, and gives them to warps by 256."""

_MOST_WARPS_AND_BLOCKS: Final = {
    (6, 0): (64, 32),
    (6, 1): (64, 32),
    (7, 0): (64, 32),
    (7, 5): (32, 16),
    (8, 0): (64, 32),
    (8, 6): (48, 16),
    (8, 9): (48, 24),
    (9, 0): (64, 32),
    (10, 0): (64, 32),
    (12, 0): (48, 24),
}
"""Of a multiprocessor, by compute capability."""


class Launch(NamedTuple):
    """How a kernel was launched: blocks, and its theoretical occupancy, None where that is not known."""

    block_count: int
    occupancy: float | None


def launch_of(details: bytes, device: Device) -> Launch | None:
    """What the details of a kernel say; None without a grid."""
    pairs = parse_details(details)
    grid, block = (_GRID.fullmatch(pairs.get(key, b"")) for key in (b"grid", b"block"))
    if grid is None or block is None:
        return None
    blocks, threads = prod(map(int, grid.groups())), prod(map(int, block.groups()))
    if not blocks or not 0 < threads <= 1024 or blocks > 1 << 62:
        return None
    percent, registers = (_number(pairs.get(key, b"")) for key in (b"occ_pct", b"regs"))
    if percent and 0 < percent <= 100:
        return Launch(blocks, percent / 100)
    return Launch(blocks, _most_warps(registers, threads, device))


def _number(text: bytes) -> float | None:
    try:
        return float(text) if len(text) < 20 else None
    except ValueError:
        return None


_Limits: TypeAlias = tuple[int, int] | None


def _limits_of(device: Device) -> _Limits:
    """The most warps and blocks of a multiprocessor; None where they are not known."""
    capability = device.count("compute_cap_major"), device.count("compute_cap_minor")
    is_amd = device.stats.get("device_vendor") == "AMD"
    known = _MOST_WARPS_AND_BLOCKS.items()
    return None if is_amd else next((most for chip, most in known if chip == capability), None)


def _most_warps(registers: float | None, threads: int, device: Device) -> float | None:
    """The occupancy that registers and blocks allow; shared memory may allow less."""
    limits = _limits_of(device)
    if limits is None or not registers or not 0 < registers <= 255:
        return None
    most_warps, most_blocks = limits
    warps = -(-threads // _WARP)
    of_warp = -(-int(registers) * _WARP // _REGISTERS_AT_ONCE) * _REGISTERS_AT_ONCE
    blocks = min(most_blocks, most_warps // warps, _REGISTERS // of_warp // warps)
    return min(blocks * warps / most_warps, 1.0)


# The topic


class _Kernels(Struct, frozen=True, eq=False):
    """The kernels of one device by label and details, longest first.

    `label`, `duration_ps`: int64. `block_count`: int64, -1 where no grid is recorded; `occupancy`: float64, nan where not known.
    `is_sparse`: which fill little of the GPU.
    """

    label: Int64Array
    duration_ps: Int64Array
    block_count: Int64Array
    occupancy: FloatArray
    is_sparse: BoolArray


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
    launches: dict[_Limits, tuple[Int64Array, FloatArray]] = {}
    texts = unique_ids(columns.details)
    texts = texts[texts != NONE]
    for device in ledger.devices if texts.size else ():
        own = ledger.rows_of(device)
        rows = np.flatnonzero(is_compute[own]) + own.start
        event = ledger.columns.event[rows]
        if (columns.details[event] != NONE).any():
            nothing = np.zeros(rows.size, dtype=np.uint8)
            of_row, first = SWEEPS.labelled(labels.of_row[event], columns.details[event], nothing)
            times = SWEEPS.totals(of_row, ledger.columns.duration_ps[rows], first.size)
            label = labels.of_row[event][first].astype(np.int64)
            entry = trace.device_list[device]
            limits = _limits_of(entry)
            if limits not in launches:
                launches[limits] = _launches(trace, texts, entry)
            details = columns.details[event][first]
            blocks, occupancy = (of_name[details] for of_name in launches[limits])
            is_sparse = _is_sparse(trace, device, label, blocks, occupancy)
            order = np.argsort(-times, kind="stable")
            is_sparse_row[rows[is_sparse[of_row]]] = True
            if times[blocks >= 0].any():
                kernels = _Kernels(
                    label[order],
                    times[order],
                    blocks[order],
                    occupancy[order],
                    is_sparse[order],
                )
                made.append(_of_device(context, device, kernels))
    return _Devices(tuple(made), is_sparse_row)


def _launches(trace: Trace, texts: Int64Array, device: Device) -> tuple[Int64Array, FloatArray]:
    """Blocks and occupancy of kernels, as of `_Kernels`, by the name of their details; `texts`: the names that are details.

    They are those of all devices with the limits of this one.
    """
    # The last place is that of `NONE`.
    blocks = np.full(len(trace.names) + 1, -1, dtype=np.int64)
    ratios = np.full(blocks.size, np.nan)
    for name in texts.tolist():
        launch = launch_of(trace.names[name], device)
        if launch is not None:
            blocks[name] = launch.block_count
            ratios[name] = np.nan if launch.occupancy is None else launch.occupancy
    return blocks, ratios


def _is_sparse(
    trace: Trace, device: int, label: Int64Array, blocks: Int64Array, occupancy: FloatArray
) -> BoolArray:
    """Which kernels fill little of the GPU; one of which that is not known may be a product."""
    name = trace.device_columns.name[trace.once(op_labels).row[label]]
    is_other = ~trace.once(kernel_names).is_matrix[name] & (
        trace.once(label_flops).flops[label] == 0
    )
    limits, cores = LOW_OCCUPANCY.limits, trace.device_list[device].count("core_count") or 0
    has_few_warps = is_other & (occupancy < limits["occupancy_ratio"])
    sparse: BoolArray = (blocks >= 0) & ((blocks < limits["block_ratio"] * cores) | has_few_warps)
    return sparse


def compute(context: Context) -> Occupancy | Skipped:
    """The occupancy of each GPU."""
    rows = context.once(_devices).rows
    return Occupancy(rows) if rows else Skipped("no kernel recorded how it was launched")


def _of_device(context: Context, device: int, of: _Kernels) -> DeviceOccupancy:
    trace, count = context.trace, context.ledger.steps_of_device[device] or 1
    columns, event_of = trace.device_columns, trace.once(op_labels).row
    times, is_known = of.duration_ps, ~np.isnan(of.occupancy)
    occupied_ps = int(times[is_known].sum())
    kernels = []
    for place in np.flatnonzero(of.is_sparse)[:MOST_KERNELS].tolist():
        event = int(event_of[of.label[place]])
        op = trace.names.text(int(columns.op[event]))
        kernels.append(
            SparseKernel(
                op=None if op is None else split_op(op)[0],
                kernel=trace.names.text(int(columns.name[event])) or "",
                compute_ps_per_step=int(times[place]) // count,
                occupancy_ratio=float(of.occupancy[place]) if is_known[place] else None,
                block_count=int(of.block_count[place]),
                multiprocessor_count=trace.device_list[device].count("core_count") or 0,
            )
        )
    mean = float((of.occupancy * times)[is_known].sum()) / occupied_ps if occupied_ps else None
    return DeviceOccupancy(
        *trace.identity(device),
        known_ratio=int(times[of.block_count >= 0].sum()) / int(times.sum()),
        occupancy_ratio=None if mean is None else min(mean, 1.0),
        sparse_ps_per_step=int(times[of.is_sparse].sum()) // count,
        kernels=tuple(kernels),
    )


# Finding

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


def diagnose(context: Context, result: Occupancy) -> Iterator[Finding | None]:
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


# Section

_COLUMNS: Final = (
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


def section(view: View, result: Occupancy) -> doc.Section | None:
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
            *view.device_table("Occupancy", result.devices, _COLUMNS),
            *((subheading,) if worst.kernels else ()),
            *table(
                "Kernels that fill little", worst.kernels, _KERNEL_COLUMNS, most_rows=view.most_rows
            ),
        ),
    )


ANALYSIS: Final = Analysis[Occupancy](
    "occupancy",
    compute=compute,
    rules=(LOW_OCCUPANCY,),
    diagnose=diagnose,
    sections=(section,),
)
