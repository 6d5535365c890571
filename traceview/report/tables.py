"""Makes the tables of a run, one for each name: what `traceview show` prints, files hold, and DataFrames are made of.

A table imports its topic when it is asked for: all topics take as long as reading a file of 10 MB.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import numpy as np

from traceview.analysis.facts.selection import Selection, rows_in
from traceview.analysis.measures.context import Analysis, Context
from traceview.base.errors import UsageError
from traceview.base.intervals import Int64Array
from traceview.base.text import did_you_mean
from traceview.trace.device import table as event_tables
from traceview.trace.device.table import Table
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
        make = topic_of(name).table
        assert make is not None
        return make(context)
    trace, selection = context.trace, context.selection
    if name == "host_events":
        rows = [host_rows(trace, selection, host) for host in range(len(trace.hosts))]
        return event_tables.host_events(trace, joined(rows, np.int64))
    from traceview.analysis.workload.ops import device_rows

    devices = range(len(trace.device_list))
    every = joined([device_rows(trace, selection, of) for of in devices], np.int64)
    of_events = event_tables.device_events if name == "device_events" else event_tables.copies
    return of_events(trace, every)
