"""Defines `traceview history`: the saved reports of a folder in order, and where the step time changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from traceview.cli.options import Force, Output, Width, argument, folder_of, format_option, option
from traceview.cli.output import Target, format_of

_FORMATS: Final = ("terminal", "markdown", "html", "csv", "json")


def history(
    folder: Annotated[
        Path, argument("DIR", "A folder of saved reports or baselines.", parser=folder_of)
    ],
    keep: Annotated[
        int | None,
        option("N", "Delete the report files of all but the newest N runs of each series.", min=1),
    ] = None,
    format_: Annotated[str | None, format_option(*_FORMATS)] = None,
    output: Output = None,
    force: Force = False,
    width: Width = None,
) -> None:
    """List saved reports in order, with the changes of the step time.

    Each kind of devices and batch size is a series. At most 5% of series without a change get a mark.

    Example: traceview history reports/ -o history.html
    """
    from traceview.comparison.history import (
        history_of,
        history_section,
        history_table,
        saved_reports,
        with_newest,
    )

    target = Target.of(output, force=force, width=width)
    format_ = format_of(format_, target.path, _FORMATS)
    reports = saved_reports(folder)
    made = history_of(with_newest(reports, keep) if keep else reports)
    if format_ == "csv":
        from traceview.export.tables import csv_of

        target.write_parts(csv_of(history_table(made), is_escaped=target.is_terminal))
        return
    title = f"history of {folder}"
    target.write_record(made, [history_section(made)], format_, title=title)
