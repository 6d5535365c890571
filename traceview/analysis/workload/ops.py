"""Ranks the ops and kernels of each device by the time that they take in the window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Final

import numpy as np
from msgspec import convert

from traceview.analysis.facts.selection import Selection, rows_in
from traceview.analysis.measures.context import Analysis, Context, View
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
    SourceLine,
    one_of,
)
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, table
from traceview.document.vocabulary import CLASSES, look_of
from traceview.trace.device.table import Table, op_table
from traceview.trace.model import Trace
from traceview.xplane.columns import joined

TITLE: Final = "Top ops"

_LEAD: Final = "By total time in the window."
_LEAD_OF_CPUS: Final = (
    "By total time in the window, including waits for a core, which layers leave out."
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
        source_line: The line of Python that made the op; null where not known.
        count: Events.
        total_ps: Sum of durations, picoseconds.
        mean_ps: Mean duration, picoseconds, rounded down.
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
    source_line: SourceLine | None
    count: Count
    total_ps: Picoseconds
    mean_ps: Picoseconds
    p95_ps: Picoseconds
    share_ratio: float | None
    bytes: Count | None

    @property
    def kernel_of_op(self) -> str | None:
        """The kernel beside an op; what has no op is named by its kernel already."""
        is_named = self.op in (None, self.kernel)
        return None if is_named or self.kernel is None else self.kernel.removeprefix("void ")


class TopOps(Record, frozen=True):
    """The ops and kernels that take most time.

    Attributes:
        rows: The top rows of each device, longest total first.
        row_count: Rows of the whole table.
    """

    rows: tuple[OpRow, ...]
    row_count: Count


def device_rows(trace: Trace, selection: Selection, device: int) -> Int64Array:
    """The rows of a device that overlap the window of its host."""
    columns, window = trace.device_columns, selection.window_of_device(trace, device)
    if window is None:
        return np.empty(0, dtype=np.int64)
    rows = columns.rows_of(device)
    inside: Int64Array = rows_in(columns.start_ps[rows], columns.end_ps[rows], window) + rows.start
    return inside


def table_in_window(context: Context) -> Table:
    """The whole op table over the events that overlap the window of their host."""
    trace = context.trace
    rows = [device_rows(trace, context.selection, of) for of in range(len(trace.device_list))]
    return op_table(trace, joined(rows, np.int64))


def compute(context: Context) -> TopOps | Skipped:
    """The top rows of each device by total time, as many as the options say."""
    if context.trace.device_columns.count == 0:
        return Skipped("no device events")
    every, top = table_in_window(context), context.options.top
    seen, chosen = Counter[str](), []
    for place, device in enumerate(every["device"]):
        if top is None or seen[device] < top:
            chosen.append(place)
        seen[device] += 1
    return TopOps(tuple(convert(row, OpRow) for row in every.at(chosen).rows()), every.count)


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
            # On a terminal the names get the room.
            shown_columns = [each for each in _OPS if not view.is_brief or each.priority < 5]
            blocks += table(f"Ops of {devices[0]}", kept, shown_columns)
    if hidden_count := result.row_count - len(shown):
        of_all = f"{numbers.count(hidden_count)} of {numbers.plural(result.row_count, 'row')}"
        command = f"{view.command('show ops')} -o ops.csv"
        blocks.append(doc.Remark(f"{of_all} are not shown; all of them:", command))
    return doc.Section("ops", TITLE, tuple(blocks), lead=_lead(result.rows))


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


_OPS: Final = (
    Shown("op or kernel", lambda row: row.op or row.kernel, kind="name"),
    Shown("total", "total_ps"),
    Shown(
        "of compute",
        "share_ratio",
        1,
        meaning="of the time in which the device computes; ops that overlap count more than once",
    ),
    Shown("count", "count", 3),
    Shown("class", lambda row: look_of(CLASSES, row.class_), 4, "look"),
    Shown("mean", "mean_ps", 5),
    Shown("p95", "p95_ps", 6, meaning="95th percentile"),
    Shown("type", "op_type", 7),
    Shown("kernel", "kernel_of_op", 2, "name"),
    Shown("line", "source_line", 2, "name"),
)


def op_rows_section(device: str, rows: Table) -> doc.Section:
    """All ops and kernels of a device."""
    ops = [convert(row, OpRow) for row in rows.rows()]
    return doc.Section(
        f"ops-{device}", device, table("Ops and kernels", ops, _OPS), lead=_lead(ops)
    )


def _lead(rows: Sequence[OpRow]) -> str:
    # Kernels wait for no core.
    is_of_cpus = any(row.class_ == "compute" and row.kernel is None for row in rows)
    return _LEAD_OF_CPUS if is_of_cpus else _LEAD


ANALYSIS: Final = Analysis[TopOps](
    "ops",
    compute=compute,
    sections=(section,),
    title_if_absent=TITLE,
    table=table_in_window,
)
