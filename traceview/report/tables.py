"""Makes the tables of a run, one for each name, and writes them as CSV or Parquet; a million rows take seconds.

`traceview show` prints them, files hold them, and DataFrames are made of them. A table imports its topic when it is asked
for: all topics take as long as reading a file of 10 MB.

A spreadsheet takes a cell that begins with `=`, `+`, `-` or `@`, also in full width, for a formula and runs it. Names come
from the trace, so such a text gets an apostrophe in front, and so does one that begins with a tab or a line break. Where
the spreadsheet's language has a comma in its numbers, semicolons and line breaks divide cells, in quotes or not, so the
same holds behind each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from traceview.analysis.facts.selection import Selection, rows_in
from traceview.analysis.measures.context import Analysis, Context
from traceview.analysis.rules.finding import Finding
from traceview.base.errors import UsageError
from traceview.base.intervals import Int64Array
from traceview.base.text import did_you_mean, encodable, lazy_pattern
from traceview.document.sanitize import sanitize
from traceview.trace.device import table as event_tables
from traceview.trace.device.table import (
    Column,
    Table,
    floats,
    integers,
    record_columns,
    table,
    texts,
)
from traceview.trace.model import Trace
from traceview.xplane.columns import joined


def host_rows(trace: Trace, selection: Selection, host: int) -> Int64Array:
    """The rows of a host that overlap its window."""
    columns, window = trace.host_columns, selection.windows.get(host)
    if window is None:
        return np.empty(0, dtype=np.int64)
    rows = columns.rows_of_host(host)
    inside: Int64Array = rows_in(columns.start_ps[rows], columns.end_ps[rows], window) + rows.start
    return inside


_TOPICS: Final = {
    "gaps": "gpu_time.idle",
    "steps": "gpu_time.steps",
    "devices": "gpu_time.device_time",
    "ops": "workload.ops",
    "layers": "workload.layers",
    "efficiency": "workload.efficiency",
    "memory": "workload.memory",
    "input": "gpu_time.input",
    "copies": "exchange.transfers",
    "collectives": "exchange.collectives",
    "balance": "exchange.balance",
}
"""The tables of `traceview show`, each with the module of its topic."""

_EVENTS: Final = ("device_events", "host_events", "copy_events")
TABLES: Final = (*_TOPICS, *_EVENTS)
"""The names: those of `traceview show`, and the events that overlap the window."""


def topic_of(name: str) -> Analysis[Any]:
    """The topic that a table of `traceview show` is of."""
    topic: Analysis[Any] = import_module(f"traceview.analysis.{_TOPICS[name]}").ANALYSIS
    return topic


def table_of(context: Context, name: str) -> Table:
    """The table of a run with this name, all of its rows; without rows where there is no result.

    `context`: with options that leave out no row. Raises `UsageError` for a name that no table has.
    """
    if name not in TABLES:
        hint = did_you_mean(name, TABLES, f"one of {', '.join(TABLES)}")
        raise UsageError(f"no table is called {name!r}", hint=hint)
    if name not in _EVENTS:
        return _of_topic(context, name)
    trace, selection = context.trace, context.selection
    if name == "host_events":
        rows = [host_rows(trace, selection, host) for host in range(len(trace.hosts))]
        return event_tables.host_events(trace, joined(rows, np.int64))
    from traceview.analysis.workload.ops import device_rows

    devices = range(len(trace.device_list))
    every = joined([device_rows(trace, selection, of) for of in devices], np.int64)
    of_events = event_tables.device_events if name == "device_events" else event_tables.copies
    return of_events(trace, every)


def _of_topic(context: Context, name: str) -> Table:
    topic = topic_of(name)
    if topic.table is not None:
        return topic.table(context)
    assert topic.rows is not None
    kind, rows_of = topic.rows
    result = context.record(topic)
    rows = () if result is None else tuple(rows_of(result))
    return table(name, *record_columns(kind, rows))


def findings_table(findings: Sequence[Finding]) -> Table:
    """A row for each finding."""
    losses = [finding.loss for finding in findings]
    return table(
        "findings",
        texts("code", [finding.code for finding in findings]),
        texts("severity", [finding.severity for finding in findings]),
        floats("gpu_time_ratio", [loss.gpu_time_ratio if loss else None for loss in losses]),
        texts("title", [finding.title for finding in findings]),
        texts("devices", [", ".join(finding.devices) or None for finding in findings]),
        integers("ps_per_step", [loss.ps_per_step if loss else None for loss in losses]),
        texts("states", [", ".join(loss.states) if loss else None for loss in losses]),
        texts("confidence", [finding.confidence for finding in findings]),
        texts("action", [finding.action for finding in findings]),
    )


_FORMULA_START: Final = lazy_pattern(
    r"(?:^|(?<=[;\t\r\n]))(?=[ \"']*[=+\-@＝＋－＠])|^(?=[\t\r\n])"
)
_NEEDS_QUOTES: Final = lazy_pattern(r'[",\r\n]')
_ROWS_AT_ONCE: Final = 1 << 13
"""Bounds the memory that the text takes, to some MB."""


def csv_of(table: Table, *, is_escaped: bool = False) -> Iterator[bytes]:
    """The file in parts: one line per row below a line with the names of the columns; what is not known is empty.

    `is_escaped`: for a terminal, which must not be sent the control characters of a name.
    """
    yield (",".join(column.name for column in table.columns) + "\n").encode()
    texts = _Texts(is_escaped)
    for first in range(0, table.count, _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        cells = (_cells(column.at(rows), texts) for column in table.columns)
        yield ("\n".join(map(",".join, zip(*cells, strict=True))) + "\n").encode()


def _cells(column: Column, texts: _Texts) -> list[str]:
    if column.kind in ("text", "category"):
        return [texts[cell] for cell in column.cells()]
    return ["" if cell is None else str(cell) for cell in column.cells()]


class _Texts(dict[str | None, str]):
    """The cells of texts, each made once: most of a column repeat."""

    def __init__(self, is_escaped: bool) -> None:
        super().__init__({None: ""})
        self._is_escaped = is_escaped

    def __missing__(self, text: str) -> str:
        """A cell with a text that no spreadsheet takes for a formula, in quotes where it needs them."""
        shown = sanitize(text) if self._is_escaped else text
        cell = encodable(_FORMULA_START.sub("'", shown))
        if _NEEDS_QUOTES.search(cell):
            cell = f'"{cell.replace(chr(34), chr(34) * 2)}"'
        self[text] = cell
        return cell


def check_pyarrow(what: str) -> None:
    """Raise `UsageError` if Parquet, which `what` needs, cannot be written."""
    if find_spec("pyarrow") is None:
        raise UsageError(f"{what} needs pyarrow", hint="pip install 'traceview[parquet]'")


def parquet_of(table: Table) -> bytes:
    """The content of a Parquet file, as pandas writes it, so that it reads the exact types."""
    from traceview.trace.device.table import frame_of

    # A category without labels would have no type in the file.
    columns = (
        replace(column, labels=column.labels or ("",) if column.kind == "category" else ())
        for column in table.columns
    )
    content = BytesIO()
    frame_of(replace(table, columns=tuple(columns))).to_parquet(content, engine="pyarrow")
    return content.getvalue()
