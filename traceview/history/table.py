"""Makes a table of a history, from which CSV is written."""

from __future__ import annotations

from traceview.history.result import History, HistoryRow
from traceview.trace.table import Table, record_columns, table


def history_table(history: History) -> Table:
    """A row for each report, with the keys of the JSON."""
    return table("history", *record_columns(HistoryRow, history.rows))
