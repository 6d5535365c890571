"""Ranks the ops and kernels of each device, and the types of its ops, by the time that they take in the window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Final

import numpy as np

from traceview.analysis.facts.of_hosts import OfHosts
from traceview.analysis.facts.selection import Selection, rows_in
from traceview.analysis.measures.context import Analysis, View
from traceview.analysis.rules.finding import Skipped
from traceview.base.intervals import Int64Array
from traceview.base.record import (
    Count,
    DeviceKey,
    KernelName,
    OpName,
    OpType,
    Picoseconds,
    Record,
    one_of,
)
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import CLASSES, look_of
from traceview.trace.device.ops import OpTable, op_table
from traceview.trace.model import UNKNOWN_BYTES, Trace

TITLE: Final = "Top ops"

_LEAD: Final = "By total time in the window; shares are of the time in which the device computes."
SHARE_ABOVE_ALL: Final = (
    "Ops that run at the same time all count in full, so their shares may add up to more than 100% of the time in which "
    "the device computes."
)

MOST_GROUPS: Final = 8
"""Devices, or groups of devices with the same ops, that have a table each."""


class OpRow(Record, frozen=True):
    """An op with a kernel on a device, over the events that overlap the window, with their whole durations.

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


class OpTypeRow(Record, frozen=True):
    """All ops of one type on a device, such as every Cast, over the events that overlap the window.

    Attributes:
        device: Key of the device.
        class_: Class of activity.
        op_type: Type of the ops.
        op_count: Ops of this type; one that runs several kernels counts with each.
        count: Events.
        total_ps: Sum of their durations, picoseconds.
        share_ratio: total_ps over the compute time of the device; it may exceed 1 where kernels overlap; null
            for classes other than compute.
    """

    device: DeviceKey
    class_: Annotated[str, one_of("compute", "collective", "h2d", "d2h", "d2d", "memset")]
    op_type: OpType
    op_count: Count
    count: Count
    total_ps: Picoseconds
    share_ratio: float | None


class TopOps(Record, frozen=True):
    """The ops and kernels that take most time.

    Attributes:
        rows: The top rows of each device, longest total first.
        row_count: Rows of the whole table.
        left_out_count: Rows of the whole table that are not here.
        types: The top types of ops of each device, longest total first; ops whose type was not recorded are in none.
    """

    rows: tuple[OpRow, ...]
    row_count: Count
    left_out_count: Count
    types: tuple[OpTypeRow, ...] = ()


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


def compute(trace: Trace, selection: Selection, top: int | None) -> TopOps | Skipped:
    """The `top` rows of each device by total time; None for all."""
    if trace.device_columns.count == 0:
        return Skipped("no device events")
    table = table_in_window(trace, selection)
    rank = np.arange(table.device.size) - np.searchsorted(table.device, table.device)
    chosen = range(table.count.size) if top is None else np.flatnonzero(rank < top).tolist()
    rows = tuple(_row(trace, table, index) for index in chosen)
    return TopOps(
        rows, int(table.count.size), int(table.count.size) - len(rows), _types(trace, table, top)
    )


def join(hosts: OfHosts[TopOps]) -> TopOps:
    """The rows of all devices."""
    return TopOps(
        hosts.rows(lambda ops: ops.rows),
        sum(ops.row_count for ops in hosts.by_host),
        sum(ops.left_out_count for ops in hosts.by_host),
        hosts.rows(lambda ops: ops.types),
    )


def _types(trace: Trace, table: OpTable, top: int | None) -> tuple[OpTypeRow, ...]:
    """The `top` types of each device."""
    places: dict[tuple[int, int, str], list[int]] = {}
    for place, type_ in enumerate(table.type):
        if type_ is not None:
            key = (int(table.device[place]), int(table.class_[place]), type_)
            places.setdefault(key, []).append(place)
    by_device: dict[int, list[OpTypeRow]] = {}
    for (device, class_, type_), of_type in places.items():
        share = float(table.share_ratio[of_type].sum())
        row = OpTypeRow(
            device=trace.device_key(device),
            class_=trace.class_name(class_),
            op_type=type_,
            op_count=len(of_type),
            count=int(table.count[of_type].sum()),
            total_ps=int(table.total_ps[of_type].sum()),
            share_ratio=None if math.isnan(share) else share,
        )
        by_device.setdefault(device, []).append(row)
    return tuple(
        row
        for _, rows in sorted(by_device.items())
        for row in sorted(rows, key=lambda row: -row.total_ps)[:top]
    )


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


def section(view: View, result: TopOps) -> doc.Section | None:
    """A table of ops per device; devices with the same ops share one."""
    if result.row_count and not result.rows:
        return None  # not a row was asked for
    groups = _groups(view.split(result.rows)[0])
    if not groups:
        return doc.Section("ops", TITLE, (), lead="No op ran in the window.")
    blocks: list[doc.Block] = []
    shown: list[OpRow] = []
    for devices, rows in groups[:MOST_GROUPS]:
        kept = rows[: view.most_rows - len(shown)]
        if kept:
            shown += kept
            others = numbers.joined_devices(devices[1:])
            same = f"and the same ops on {others}, with their own times" if others else ""
            blocks.append(doc.Subheading(devices[0], same))
            if not view.is_brief:
                blocks += _types_table(devices[0], result.types)
            blocks += _table(devices[0], kept, is_brief=view.is_brief)
    shares: dict[str, float] = {}
    for row in shown:
        shares[row.device] = shares.get(row.device, 0.0) + (row.share_ratio or 0.0)
    if any(share > 1 for share in shares.values()):
        blocks += doc.remarks(SHARE_ABOVE_ALL)
    if hidden_count := result.row_count - len(shown):
        of_all = f"{numbers.count(hidden_count)} of {numbers.plural(result.row_count, 'row')}"
        blocks.append(doc.Remark(f"{of_all} are not shown; all of them:", view.command("show ops")))
    return doc.Section(
        "ops",
        TITLE,
        tuple(blocks),
        lead=_LEAD,
    )


def _groups(rows: Sequence[OpRow]) -> list[tuple[list[str], list[OpRow]]]:
    """Devices that have the same ops, with the rows of the first one."""
    rows_by_device: dict[str, list[OpRow]] = {}
    for row in rows:
        rows_by_device.setdefault(row.device, []).append(row)
    groups: dict[frozenset[tuple[str | None, ...]], tuple[list[str], list[OpRow]]] = {}
    for device, of_device in rows_by_device.items():
        ops = frozenset((row.class_, row.op, row.kernel) for row in of_device)
        groups.setdefault(ops, ([], of_device))[0].append(device)
    return list(groups.values())


def _shares(ratios: Sequence[float | None]) -> doc.Column:
    return doc.shares(
        "share",
        ratios,
        priority=1,
        meaning="of the time in which the device computes; ops that overlap count more than once",
    )


def _types_table(device: str, types: Sequence[OpTypeRow]) -> tuple[doc.Table, ...]:
    """A row per type; none where no type has more than one op, for then the ops say it all."""
    rows = [row for row in types if row.device == device]
    if all(row.op_count == 1 for row in rows):
        return ()
    return doc.table(
        f"Types of ops of {device}",
        (
            doc.names("type of op", [row.op_type for row in rows]),
            doc.times("total", [row.total_ps for row in rows]),
            _shares([row.share_ratio for row in rows]),
            doc.counts("ops", [row.op_count for row in rows], priority=2),
            doc.counts("count", [row.count for row in rows], priority=3),
            doc.looks("class", [look_of(CLASSES, row.class_) for row in rows], priority=4),
        ),
        row_count=len(rows),
    )


def _table(device: str, rows: Sequence[OpRow], *, is_brief: bool) -> tuple[doc.Table, ...]:
    """What has no op is named by its kernel. A brief table leaves the room to the names."""
    kernels = [row.kernel and row.kernel.removeprefix("void ") for row in rows]
    details = (
        doc.times("mean", [row.mean_ps for row in rows], priority=5),
        doc.times("p95", [row.p95_ps for row in rows], priority=6, meaning="95th percentile"),
        doc.names("type", [row.op_type for row in rows], priority=7),
    )
    return doc.table(
        f"Ops of {device}",
        (
            doc.names("op or kernel", [row.op or row.kernel for row in rows]),
            doc.times("total", [row.total_ps for row in rows]),
            _shares([row.share_ratio for row in rows]),
            doc.counts("count", [row.count for row in rows], priority=3),
            doc.looks("class", [look_of(CLASSES, row.class_) for row in rows], priority=4),
            *(() if is_brief else details),
            doc.names(
                "kernel",
                [
                    kernel if row.op not in (None, row.kernel) else None
                    for row, kernel in zip(rows, kernels, strict=True)
                ],
                priority=2,
            ),
        ),
        row_count=len(rows),
    )


ANALYSIS: Final = Analysis[TopOps](
    "ops",
    compute=lambda context: compute(context.trace, context.selection, context.options.top),
    join=join,
    sections=(section,),
    title_if_absent=TITLE,
)
