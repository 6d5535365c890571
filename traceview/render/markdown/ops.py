"""Which ops and kernels take the time of each device?"""

from __future__ import annotations

from typing import Final

from traceview.analysis.ops import OpRow
from traceview.render import numbers
from traceview.render.device_names import joined
from traceview.render.markdown.blocks import Column, Section, table
from traceview.render.markdown.inline import code, plain
from traceview.report.model import Report

SHOWN: Final = 10
"""Rows per device."""

SHOWN_GROUPS: Final = 4
"""Devices, or groups of devices that run the same ops, with a table each."""


def ops_section(report: Report) -> Section | None:
    """The first ops of each device; devices that run the same ones share a table."""
    ops = report.results.ops
    if ops is None or not ops.rows:
        return None
    groups: dict[tuple[tuple[str, str | None, str | None], ...], list[str]] = {}
    rows_of: dict[str, list[OpRow]] = {}
    for row in ops.rows:
        rows_of.setdefault(row.device, []).append(row)
    for device, rows in rows_of.items():
        same = tuple((row.class_, row.op, row.kernel) for row in rows[:SHOWN])
        groups.setdefault(same, []).append(device)
    blocks = []
    shown_count = 0
    for devices in list(groups.values())[:SHOWN_GROUPS]:
        rows = rows_of[devices[0]][:SHOWN]
        shown_count += len(rows)
        others = f"; the same ops on {code(joined(devices[1:]))}" if len(devices) > 1 else ""
        blocks += [f"{code(devices[0])}{others}", _table(rows)]
    left = ops.row_count - shown_count
    if left > 0:
        blocks.append(f"{numbers.plural(left, 'more row')}: `traceview ops`.")
    return Section("Ops, by total time", tuple(blocks))


def _table(rows: list[OpRow]) -> str:
    return table(
        [
            Column("total", [numbers.time(row.total_ps) for row in rows], right=True),
            Column("share", [plain(numbers.share(row.share_ratio)) for row in rows], right=True),
            Column("count", [numbers.count(row.count) for row in rows], right=True),
            Column("mean", [numbers.time(row.mean_ps) for row in rows], right=True),
            Column("class", [plain(row.class_) for row in rows]),
            Column("op", [code(row.op) if row.op else "" for row in rows]),
            Column("type", [code(row.op_type, 40) if row.op_type else "" for row in rows]),
            Column("kernel", [code(row.kernel, 90) if row.kernel else "" for row in rows]),
        ]
    )
