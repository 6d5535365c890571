"""Which ops and kernels take the time of each device?"""

from __future__ import annotations

from traceview.render import numbers
from traceview.render.device_names import joined
from traceview.render.html.blocks import (
    Block,
    Section,
    Subheading,
    View,
    counts,
    names,
    notes,
    shares,
    table,
    times,
    words,
)
from traceview.render.html.shown import name
from traceview.render.ops import grouped

SHOWN_GROUPS = 8
"""Devices, or groups of devices that run the same ops, with a table each."""


def ops_section(view: View) -> Section | None:
    """The first ops of each device; devices that run the same ones share a table."""
    ops = view.report.results.ops
    if ops is None or not ops.rows:
        return None
    groups = grouped(ops.rows, view.most_rows)
    blocks: list[Block] = []
    shown = 0
    for keys, rows in groups[:SHOWN_GROUPS]:
        shown += len(rows)
        others = (
            f", and the same ops on {joined(keys[1:])} with their own times" if keys[1:] else ""
        )
        blocks.append(Subheading(f"{name(keys[0])}{others}"))
        blocks += table(
            f"Ops of {name(keys[0])}",
            [
                names("op", [row.op for row in rows]),
                times("total", [row.total_ps for row in rows]),
                shares("share", [row.share_ratio for row in rows], "of the compute of the device"),
                counts("count", [row.count for row in rows]),
                times("mean", [row.mean_ps for row in rows]),
                times("95%", [row.p95_ps for row in rows]),
                words("class", [row.class_ for row in rows]),
                names("type", [row.op_type for row in rows]),
                names("kernel", [row.kernel for row in rows]),
            ],
        )
    remarks = []
    if any(row.share_ratio is not None and row.share_ratio > 1 for row in ops.rows):
        remarks.append("A share may pass 100%: kernels of one op overlap.")
    left = ops.row_count - shown
    if left > 0:
        remarks.append(f"{numbers.plural(left, 'more row')}: {view.command('ops')}")
    return Section("ops", "Ops, by total time", (*blocks, *notes(remarks)))
