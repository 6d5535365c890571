"""Which ops and kernels take the time of each device in the window?"""

from __future__ import annotations

import math
from typing import Annotated, Final

import numpy as np

from traceview.analysis.base import Skipped
from traceview.analysis.context import Analysis
from traceview.analysis.selection import Selection, rows_in
from traceview.intervals import Int64Array
from traceview.record import (
    Count,
    DeviceKey,
    KernelName,
    OpName,
    OpType,
    Picoseconds,
    Record,
    one_of,
)
from traceview.trace.model import UNKNOWN_BYTES, Trace
from traceview.trace.ops import OpTable, op_table


class OpRow(Record, frozen=True):
    """One device × op × kernel over the events that overlap the window, with their whole durations.

    Attributes:
        device: Key of the device.
        class_: Class of activity.
        op: Name of the op without its replica part; null where not recorded.
        op_type: Type of the op; null where not recorded.
        kernel: Name of the kernel; null for host ops of a replica.
        count: Events.
        total_ps: Sum of durations, picoseconds.
        self_ps: Sum of durations without what is nested inside, picoseconds.
        mean_ps: Mean duration, picoseconds, rounded down.
        median_ps: Median duration, picoseconds, rounded down.
        p95_ps: 95th percentile of the durations by nearest rank, picoseconds.
        share_ratio: total_ps over the compute time of the device; it may exceed 1 where kernels overlap; null
            for classes other than compute.
        bytes: Bytes of the copies whose size was recorded; null without any.
    """

    device: DeviceKey
    class_: Annotated[str, one_of("compute", "collective", "h2d", "d2h", "d2d", "memset")]
    op: OpName | None
    op_type: OpType | None
    kernel: KernelName | None
    count: Count
    total_ps: Picoseconds
    self_ps: Picoseconds
    mean_ps: Picoseconds
    median_ps: Picoseconds
    p95_ps: Picoseconds
    share_ratio: float | None
    bytes: Count | None


class Ops(Record, frozen=True):
    """The top rows of each device, the number of all rows, and how many of them are left out here.

    Attributes:
        rows: The top rows of each device, by falling total.
        row_count: Rows of the whole table.
        left_out_count: Rows of the whole table that are not here.
    """

    rows: tuple[OpRow, ...]
    row_count: Count
    left_out_count: Count


def table_in_window(trace: Trace, selection: Selection) -> OpTable:
    """The whole op table over the events that overlap the window of their host."""
    columns = trace.device_columns
    kept: list[Int64Array] = []
    for index in range(len(trace.device_list)):
        window = selection.window_of_device(trace, index)
        rows = columns.rows_of(index)
        if window is not None:
            inside = rows_in(columns.start_ps[rows], columns.end_ps[rows], window)
            kept.append(inside + rows.start)
    return op_table(trace, np.concatenate(kept) if kept else np.empty(0, dtype=np.int64))


def compute(trace: Trace, selection: Selection, top: int | None) -> Ops | Skipped:
    """The `top` rows of each device by total time; None for all."""
    if trace.device_columns.count == 0:
        return Skipped("no device events")
    table = table_in_window(trace, selection)
    rank = _rank_on_device(table.device)
    chosen = range(table.count.size) if top is None else np.flatnonzero(rank < top).tolist()
    rows = tuple(_row(trace, table, index) for index in chosen)
    return Ops(rows, int(table.count.size), int(table.count.size) - len(rows))


def _rank_on_device(device: np.ndarray[tuple[int], np.dtype[np.int16]]) -> Int64Array:
    first = np.searchsorted(device, device, side="left")
    rank: Int64Array = np.arange(device.size) - first
    return rank


def _row(trace: Trace, table: OpTable, index: int) -> OpRow:
    share, size = float(table.share_ratio[index]), int(table.bytes[index])
    return OpRow(
        device=trace.device_key(int(table.device[index])),
        class_=trace.class_name(int(table.class_[index])),
        op=table.name[index],
        op_type=table.type[index],
        kernel=table.kernel[index],
        count=int(table.count[index]),
        total_ps=int(table.total_ps[index]),
        self_ps=int(table.self_ps[index]),
        mean_ps=int(table.mean_ps[index]),
        median_ps=int(table.median_ps[index]),
        p95_ps=int(table.p95_ps[index]),
        share_ratio=None if math.isnan(share) else share,
        bytes=None if size == UNKNOWN_BYTES else size,
    )


ANALYSIS: Final = Analysis[Ops](
    "ops",
    compute=lambda context: compute(context.trace, context.selection, context.options.top),
    title_if_absent="Ops",
)
