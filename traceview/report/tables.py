"""Makes the tables of a run, one for each name: what `traceview show` prints, files hold, and DataFrames are made of.

A table imports its topic when it is asked for: all topics take as long as reading a file of 10 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from traceview.analysis.facts.selection import Selection, rows_in
from traceview.analysis.measures.context import Context
from traceview.base.errors import UsageError
from traceview.base.intervals import Int64Array
from traceview.base.text import did_you_mean
from traceview.trace.device.table import Table, record_columns, table
from traceview.trace.frames.event_tables import device_keys
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


def _events_of_devices(context: Context) -> Int64Array:
    from traceview.analysis.workload.ops import device_rows

    devices = range(len(context.trace.device_list))
    return joined([device_rows(context.trace, context.selection, of) for of in devices], np.int64)


def _device_events(context: Context) -> Table:
    from traceview.trace.frames import event_tables

    return event_tables.device_events(context.trace, _events_of_devices(context))


def _copy_events(context: Context) -> Table:
    from traceview.trace.frames import event_tables

    return event_tables.copies(context.trace, _events_of_devices(context))


def _host_events(context: Context) -> Table:
    from traceview.trace.frames import event_tables

    hosts = range(len(context.trace.hosts))
    rows = [host_rows(context.trace, context.selection, host) for host in hosts]
    return event_tables.host_events(context.trace, joined(rows, np.int64))


def _gaps(context: Context) -> Table:
    from traceview.analysis.measures.idle_report import gap_table

    return gap_table(context, devices=device_keys(context.trace))[0]


def _steps(context: Context) -> Table:
    from traceview.analysis.gpu_time.step_tables import step_table
    from traceview.analysis.measures.step_report import step_rows

    return step_table(step_rows(context), device_keys(context.trace))


def _devices(context: Context) -> Table:
    from traceview.analysis.gpu_time import device_time

    return device_time.device_table(context.record(device_time.ANALYSIS))


def _ops(context: Context) -> Table:
    from traceview.analysis.workload.ops import table_in_window
    from traceview.trace.frames import event_tables

    return event_tables.ops(context.trace, table_in_window(context.trace, context.selection))


def _layers(context: Context) -> Table:
    from traceview.analysis.workload import layers

    return layers.layer_table(context)


def _efficiency(context: Context) -> Table:
    from traceview.analysis.workload import efficiency

    return efficiency.efficiency_table(context.record(efficiency.ANALYSIS))


def _memory(context: Context) -> Table:
    from traceview.analysis.workload import memory

    return memory.memory_table(context)


def _stages(context: Context) -> Table:
    from traceview.analysis.gpu_time import input as input_topic
    from traceview.trace.host.pipeline import InputStage

    result = context.record(input_topic.ANALYSIS)
    return table("input", *record_columns(InputStage, result.stages if result else ()))


def _sources(context: Context) -> Table:
    from traceview.analysis.exchange import transfers

    result = context.record(transfers.ANALYSIS)
    sources = [source for row in (result.devices if result else ()) for source in row.top_sources]
    return table("copies", *record_columns(transfers.CopySource, sources))


def _collectives(context: Context) -> Table:
    from traceview.analysis.exchange.collectives import collective_table

    return collective_table(context, device_keys(context.trace))[0]


def _balance(context: Context) -> Table:
    from traceview.analysis.exchange import balance

    return balance.balance_table(context.record(balance.ANALYSIS))


_MAKERS: Final[Mapping[str, Callable[[Context], Table]]] = {
    "gaps": _gaps,
    "steps": _steps,
    "devices": _devices,
    "ops": _ops,
    "layers": _layers,
    "efficiency": _efficiency,
    "memory": _memory,
    "input": _stages,
    "copies": _sources,
    "collectives": _collectives,
    "balance": _balance,
    "device_events": _device_events,
    "host_events": _host_events,
    "copy_events": _copy_events,
}
TABLES: Final = tuple(_MAKERS)
"""The names: those of `traceview show`, and the events that overlap the window."""


def table_of(context: Context, name: str) -> Table:
    """The table of a run with this name, all of its rows; without rows where there is no result.

    `context`: with options that leave out no row. Raises `UsageError` for a name that no table has.
    """
    if name not in _MAKERS:
        hint = did_you_mean(name, TABLES, f"one of {', '.join(TABLES)}")
        raise UsageError(f"no table is called {name!r}", hint=hint)
    return _MAKERS[name](context)
