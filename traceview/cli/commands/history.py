"""Defines `traceview history`: the saved reports of a folder in order, and where the step time changed."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

from traceview.cli.options import Force, Output, Width, argument, folder_of, format_option
from traceview.cli.output import Target, format_of


class Format(str, Enum):
    """What a history can be written as."""

    terminal = "terminal"
    markdown = "markdown"
    html = "html"
    csv = "csv"
    json = "json"


_BY_SUFFIX = {
    ".md": Format.markdown,
    ".html": Format.html,
    ".csv": Format.csv,
    ".json": Format.json,
}


def history(
    folder: Annotated[
        Path, argument("DIR", "A folder of saved reports or baselines.", parser=folder_of)
    ],
    format_: Annotated[
        Format | None, format_option("terminal", "markdown", "html", "csv", "json")
    ] = None,
    output: Output = None,
    force: Force = False,
    width: Width = None,
) -> None:
    """List saved reports in order, with the changes of the step time.

    Reports are ordered by when their runs were recorded. Those with other devices or another batch size are series of
    their own. A change is shown beyond chance: of series without one at most 5% get a mark. html has the step times as a
    chart.

    Example: traceview history reports/ -o history.html
    """
    from traceview.comparison.history import (
        headline,
        history_of,
        history_section,
        history_table,
        saved_reports,
    )

    target = Target.of(output, force=force)
    format_ = format_ or format_of(target.path, _BY_SUFFIX, Format.terminal)
    made = history_of(saved_reports(folder))
    if format_ is Format.json:
        from traceview.document.json_text import dumped

        target.write(dumped(made))
    elif format_ is Format.csv:
        from traceview.export import csv

        target.write_parts(csv.written(history_table(made), is_escaped=target.is_terminal))
    elif format_ is Format.html:
        from traceview.document.html.printer import render_sections

        page = render_sections(f"history of {folder}", headline(made), [history_section(made)])
        target.write(page.encode())
    elif format_ is Format.markdown:
        from traceview.document.markdown import render_section

        target.write(render_section(history_section(made)))
    else:
        target.write_section(history_section(made), width)
