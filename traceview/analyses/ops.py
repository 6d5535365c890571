"""Which ops and kernels take the time of each device in the window?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from traceview.analyses.finding import Skipped
from traceview.analyses.selection import Selection, rows_in
from traceview.intervals import Int64Array
from traceview.trace.model import UNKNOWN_BYTES, Trace
from traceview.trace.ops import OpTable, op_table


@dataclass(frozen=True)
class OpRow:
    """One device × op × kernel over the events that overlap the window, with their whole durations.

    `op`: name without the replica part, None where not recorded; `op_type`; `kernel`: None for host ops of
    a replica. `class`: as in the definitions. `total_ps`: sum of durations; `self_ps`: without what is
    nested inside; `mean_ps`, `median_ps` rounded down, `p95_ps` by nearest rank; `share_ratio`: total over
    the device's compute time, for class compute; `bytes`: of the copies whose size was recorded.
    """

    device: str
    class_: str
    op: str | None
    op_type: str | None
    kernel: str | None
    count: int
    total_ps: int
    self_ps: int
    mean_ps: int
    median_ps: int
    p95_ps: int
    share_ratio: float | None
    bytes: int | None


@dataclass(frozen=True)
class Ops:
    """The top rows of each device, the number of all rows, and how many of them are left out here."""

    rows: tuple[OpRow, ...]
    row_count: int
    left_out_count: int


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
