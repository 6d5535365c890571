"""Makes the tables of the window of a run: what was recorded in it, and what traceview computed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview.analysis.collectives.table import collective_table
from traceview.analysis.context import Context
from traceview.analysis.device_time.table import device_table
from traceview.analysis.ops import table_in_window
from traceview.analysis.selection import Selection
from traceview.analysis.steps.table import idle_in_steps, step_table
from traceview.export.activity import device_rows, host_rows
from traceview.report.model import Report
from traceview.trace import event_tables
from traceview.trace.model import Trace
from traceview.trace.pipeline import InputStage
from traceview.trace.table import Table, record_columns, table
from traceview.xplane.columns import joined


def window_tables(trace: Trace, selection: Selection, report: Report) -> Iterator[Table]:
    """The tables of `formats.TABLES`, one after another; `report`: that of the same window."""
    results, context = report.results, Context(trace, selection)
    keys = [trace.device_key(device) for device in range(len(trace.device_list))]
    yield device_table(results.device_time, results.balance)
    rows = joined([device_rows(trace, selection, device) for device in range(len(keys))], np.int64)
    yield event_tables.device_events(trace, rows)
    of_hosts = [host_rows(trace, selection, host) for host in range(len(trace.hosts))]
    yield event_tables.host_events(trace, joined(of_hosts, np.int64))
    yield event_tables.copies(trace, rows)
    yield event_tables.ops(trace, table_in_window(trace, selection))
    yield event_tables.gaps(trace, list(context.idle.gaps.values()))
    waits = idle_in_steps(trace, selection) if results.steps else None
    yield step_table(results.steps, waits, keys)
    yield collective_table(trace, selection, context.collectives, keys)[0]
    stages = results.input.stages if results.input else ()
    yield table("input_stages", *record_columns(InputStage, stages))
