"""One table of data rows: a page of its own for a terminal, or JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from traceview.document.page import Page
from traceview.render import numbers
from traceview.render.json import dumped, plain
from traceview.report.model import ReportWindow
from traceview.version import VERSION


def render(
    run: str,
    windows: Sequence[ReportWindow],
    rows: Sequence[Any],
    left_out_count: int,
    remarks: Sequence[str],
    add_rows: Callable[[Page], None],
    *,
    width: int,
    color: bool,
    unicode: bool = True,
) -> str:
    """What `add_rows` puts on the page, below the run, the window, the number of rows and `remarks`."""
    page = Page(width, color, unicode)
    lengths = [numbers.time(window.end_ps - window.start_ps) for window in windows]
    page.facts(
        [
            f"run {run}",
            f"window {' and '.join(dict.fromkeys(lengths))}" if lengths else "no window",
            numbers.plural(len(rows), "row")
            + (f", {numbers.count(left_out_count)} left out" if left_out_count else ""),
            *remarks,
        ]
    )
    add_rows(page)
    return page.render()


def render_json(
    logdir: str,
    run: str,
    windows: Sequence[ReportWindow],
    rows: Sequence[Any],
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
