"""How does a command write a table: for a terminal, as CSV, Parquet or JSON?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from traceview.cli.options import device_names
from traceview.cli.output import Target, format_of
from traceview.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

    from traceview.analysis.selection import Selection
    from traceview.document.page import Page
    from traceview.report.model import ReportWindow
    from traceview.trace.model import Trace


class Format(str, Enum):
    """What a table can be written as."""

    terminal = "terminal"
    csv = "csv"
    parquet = "parquet"
    json = "json"


FormatChoice = Annotated[
    Format | None,
    typer.Option(
        "--format", help="By default what FILE ends with, else terminal.", show_default=False
    ),
]
_BY_SUFFIX: Final = {".csv": Format.csv, ".parquet": Format.parquet, ".json": Format.json}


@dataclass(frozen=True)
class Table:
    """What to write: `rows` are data classes of type `row`; `left_out_count` others were not asked for.

    `add_rows` puts them on a page for the terminal; `frame` makes the DataFrame that Parquet holds.
    """

    trace: Trace
    selection: Selection
    row: type
    rows: Sequence[Any]
    left_out_count: int
    remarks: Sequence[str]
    add_rows: Callable[[Page], None]
    frame: Callable[[], pd.DataFrame]


def chosen_format(format_: Format | None, target: Target) -> Format:
    """The format asked for, or that of the file's name; raises `UsageError` where it cannot be written."""
    format_ = format_ or format_of(target.path, _BY_SUFFIX, Format.terminal)
    if format_ is Format.parquet:
        if find_spec("pyarrow") is None:
            raise UsageError("Parquet needs pyarrow", hint="pip install 'traceview[parquet]'")
        if target.is_terminal:
            raise UsageError(
                "a terminal cannot show Parquet", hint="write it to a file: -o table.parquet"
            )
    return format_


def chosen_devices(trace: Trace, wanted: list[str] | None) -> set[str]:
    """The device keys that `--device` names, all without it; raises `UsageError` for one that is not there."""
    from traceview.report.filtering import chosen_devices as chosen

    known = [trace.device_key(index) for index in range(len(trace.device_list))]
    return set(chosen(known, device_names(wanted, known)) if wanted else known)


def write(target: Target, format_: Format, table: Table, width: int | None) -> None:
    """Write a table in a format."""
    if format_ is Format.parquet:
        buffer = BytesIO()
        table.frame().to_parquet(buffer, engine="pyarrow", index=False)
        target.write(buffer.getvalue())
    elif format_ is Format.csv:
        from traceview.render.csv import render as render_csv

        target.write(render_csv(table.rows, table.row, escaped=target.is_terminal).encode())
    elif format_ is Format.json:
        from traceview.render.table import render_json

        name, run = str(table.trace.logdir), table.trace.run
        target.write(
            render_json(name, run, _windows(table), table.rows, table.left_out_count).encode()
        )
    else:
        from traceview.render.table import render

        target.write(
            render(
                table.trace.run,
                _windows(table),
                table.rows,
                table.left_out_count,
                table.remarks,
                table.add_rows,
                width=target.width(width),
                color=target.has_color,
                unicode=target.has_unicode,
            )
        )


def _windows(table: Table) -> list[ReportWindow]:
    from traceview.report.model import ReportWindow

    return [
        ReportWindow(table.trace.hosts[host].name, one.kind, one.start_ps, one.end_ps)
        for host, one in table.selection.windows.items()
    ]
