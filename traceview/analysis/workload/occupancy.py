"""Measures how much of each GPU its kernels can fill: by the warps that fit, and by the blocks that there are.

Tracers record of a kernel its block, its grid and its theoretical occupancy. A GPU hides the time that memory takes by running many warps;
a kernel with few of them, or with fewer blocks than there are multiprocessors, leaves much of the GPU idle while the GPU is busy.
Source: openxla/xla `cupti_collector.cc`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.measures.op_work import FloatArray, label_flops, label_kernels
from traceview.analysis.rules.finding import Evidence, Finding, OfDevice, Skipped
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.words import Lost, Ops
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
)
from traceview.base.sweeping import SWEEPS
from traceview.base.text import lazy_pattern
from traceview.document import model as doc
from traceview.document.columns import DEVICE, Shown, table
from traceview.document.phrase import Token, phrase
from traceview.ledger.states import State
from traceview.trace.columns import NONE
from traceview.trace.device.op_names import op_labels, split_op
from traceview.trace.model import Recording, Trace
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


# The topic


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


def compute(context: Context) -> Occupancy | Skipped:
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
