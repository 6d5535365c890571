"""Which tables stand beside a report? Those of its window, as Parquet, for whoever wants to compute on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from traceview.export.formats import TABLES, check_pyarrow

if TYPE_CHECKING:
    from traceview.analysis.selection import Selection
    from traceview.report.model import Report
    from traceview.trace.model import Trace

NAMES: Final = TABLES
"""Tables with a file each."""


def file_name(table: str) -> str:
    """Where a table lies in the folder of a report."""
    return f"data/{table}.parquet"


def check_parquet() -> None:
    """Raise `UsageError` if Parquet cannot be written."""
    check_pyarrow("--with-data")


def window_tables(trace: Trace, selection: Selection, report: Report) -> dict[str, bytes]:
    """Every table as the content of a Parquet file, by the name of that file."""
    from traceview.export.parquet import written
    from traceview.export.tables import window_tables as tables_of

    return {file_name(one.name): written(one) for one in tables_of(trace, selection, report)}
