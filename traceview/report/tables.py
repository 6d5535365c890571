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
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from typing import Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.facts.selection import Selection, rows_in
from traceview.analysis.measures.context import Analysis, Context
from traceview.analysis.rules.finding import Finding
from traceview.base.errors import UsageError
from traceview.base.intervals import Int64Array
from traceview.base.text import did_you_mean, encodable, lazy_pattern
from traceview.document.sanitize import sanitize
from traceview.document.vocabulary import CLASSES, STATES
from traceview.ledger.states import IDLE_STATES, State
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


class TableKind(Struct, frozen=True):
    """A table of `traceview show`.

    `summary`: what its rows are. `topic`: the module of its topic, imported when it is asked for; "" where it is of all topics. `states`: what `--state` takes, without any it has no meaning;
    `state`: the column that holds them, "" where the rows are made for the states. `length`: the column that `--min` bounds,
    or "". `sort`: the column that rows are sorted by. `within`: each value of this column has its own order and its own
    `--top` rows. `things`: columns that together name what `--top` counts and the order is of, where it has several rows;
    such a thing is as large as its largest row. `top`: so many on a terminal. `has_devices`: whether rows are about devices.
    `sums`: columns whose cells add up over rows, for `--by`, which sorts by the first.
    """

    summary: str
    topic: str = ""
    states: tuple[str, ...] = ()
    state: str = ""
    length: str = ""
    sort: str = ""
    things: tuple[str, ...] = ()
    within: str = ""
    top: int | None = None
    has_devices: bool = True
    sums: tuple[str, ...] = ()


_OF_DEVICES: Final = (
    *("busy_ps", "compute_ps", "communication_ps", "copies_ps", "waiting_ps", "idle_ps"),
    *("compute_exposed_ps", "collective_exposed_ps", "memset_exposed_ps"),
    *(f"{way}_{what}" for way in ("h2d", "d2h", "d2d") for what in ("bytes", "exposed_ps")),
)

TABLES: Final = {
    "gaps": TableKind(
        "when a device did nothing, and why",
        "gpu_time.idle",
        states=tuple(state.key for state in IDLE_STATES),
        length="duration_ps",
        top=20,
        sums=("duration_ps", *(f"{state.key}_ps" for state in IDLE_STATES)),
    ),
    "steps": TableKind(
        "how long each step took, and what went into it",
        "gpu_time.steps",
        length="duration_ps",
        things=("host", "number"),
        top=40,
        sums=("duration_ps", *(f"{state.key}_ps" for state in State)),
    ),
    "devices": TableKind(
        "how busy each device was, and with what", "gpu_time.device_time", sums=_OF_DEVICES
    ),
    "ops": TableKind(
        "every op and kernel",
        "workload.ops",
        states=tuple(CLASSES),
        state="class",
        length="total_ps",
        sort="total_ps",
        within="device",
        top=50,
        sums=("total_ps", "count", "bytes"),
    ),
    "layers": TableKind(
        "which layers and lines take the compute",
        "workload.layers",
        length="compute_ps_per_step",
        sort="compute_ps_per_step",
        within="device",
        top=50,
        sums=("own_ps_per_step",),
    ),
    "efficiency": TableKind(
        "how many FLOP/s each device computes, and how far from its peak", "workload.efficiency"
    ),
    "memory": TableKind(
        "what fills the memory of GPUs at its peak",
        "workload.memory",
        sort="bytes",
        within="device",
        top=50,
        sums=("bytes", "count"),
    ),
    "input": TableKind(
        "the stages of tf.data",
        "gpu_time.input",
        length="self_ps",
        has_devices=False,
        sums=("self_ps", "waiting_ps", "calls", "slow_count"),
    ),
    "copies": TableKind(
        "what issues copies between host and GPUs",
        "exchange.transfers",
        states=("h2d", "d2h", "d2d"),
        state="direction",
        length="total_ps",
        within="device",
        sums=("exposed_ps", "total_ps", "bytes", "count"),
    ),
    "collectives": TableKind(
        "who waits in which collective",
        "exchange.collectives",
        length="duration_ps",
        things=("collective",),
        top=10,
        sums=("duration_ps", "transfer_ps", "wait_ps", "bytes"),
    ),
    "balance": TableKind("how evenly the devices work", "exchange.balance"),
    "findings": TableKind("what the report concludes", states=tuple(STATES)),
}
"""The tables of `traceview show`, in the order of its help. Rows on a terminal: the longest fit on one screen, with room for
the rest of the answer."""

_EVENTS: Final = ("device_events", "host_events", "copy_events")
TABLE_NAMES: Final = (*(name for name, kind in TABLES.items() if kind.topic), *_EVENTS)
"""The tables of a run, whatever its report concludes: those of topics, and the events that overlap the window."""


def topic_of(name: str) -> Analysis[Any]:
    """The topic that a table of `traceview show` is of."""
    topic: Analysis[Any] = import_module(f"traceview.analysis.{TABLES[name].topic}").ANALYSIS
    return topic


def table_of(context: Context, name: str) -> Table:
    """The table of a run with this name, all of its rows; without rows where there is no result.

    `context`: with options that leave out no row. Raises `UsageError` for a name that no table has.
    """
    if name not in TABLE_NAMES:
        hint = did_you_mean(name, TABLE_NAMES, f"one of {', '.join(TABLE_NAMES)}")
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

    @cache  # most texts of a column repeat
    def text_of(text: str | None) -> str:
        """A cell that no spreadsheet takes for a formula, in quotes where it needs them."""
        shown = sanitize(text) if text and is_escaped else text or ""
        cell = encodable(_FORMULA_START.sub("'", shown))
        return f'"{cell.replace(chr(34), chr(34) * 2)}"' if _NEEDS_QUOTES.search(cell) else cell

    def cells_of(column: Column) -> list[str]:
        if column.kind in ("text", "category"):
            return [text_of(cell) for cell in column.cells()]
        return ["" if cell is None else str(cell) for cell in column.cells()]

    for first in range(0, table.count, _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        cells = (cells_of(column.at(rows)) for column in table.columns)
        yield ("\n".join(map(",".join, zip(*cells, strict=True))) + "\n").encode()


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
