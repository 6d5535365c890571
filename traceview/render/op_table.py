"""The whole op table: one section per device for a terminal, or data."""

from __future__ import annotations

from collections.abc import Sequence

from traceview.analyses.ops import OpRow
from traceview.render import numbers
from traceview.render.json import dumped, plain
from traceview.render.ops import add_op_rows, add_overlap_note
from traceview.render.page import Page
from traceview.report.model import ReportWindow
from traceview.version import VERSION


def render(
    run: str,
    windows: Sequence[ReportWindow],
    rows: Sequence[OpRow],
    left_out_count: int,
    *,
    width: int,
    color: bool,
    unicode: bool = True,
) -> str:
    """The rows of each device in their order; `left_out_count` of the table are not among them."""
    page = Page(width, color, unicode)
    lengths = [numbers.time(window.end_ps - window.start_ps) for window in windows]
    page.facts(
        [
            f"run {run}",
            f"window {' and '.join(dict.fromkeys(lengths))}" if lengths else "no window",
            numbers.plural(len(rows), "row")
            + (f", {numbers.count(left_out_count)} left out" if left_out_count else ""),
            "share is of the device's compute time",
        ]
    )
    for device in dict.fromkeys(row.device for row in rows):
        page.heading(device)
        add_op_rows(page, [row for row in rows if row.device == device])
    add_overlap_note(page, rows)
    return page.render()


def render_json(
    logdir: str,
    run: str,
    windows: Sequence[ReportWindow],
    rows: Sequence[OpRow],
    left_out_count: int,
) -> str:
    """The rows with the keys that they have in the report."""
    return dumped(
        {
            "traceview_version": VERSION,
            "logdir": plain(logdir),
            "run": plain(run),
            "windows": plain(windows),
            "rows": plain(rows),
            "left_out_count": left_out_count,
        }
    )
