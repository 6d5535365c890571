"""Makes the tables of the window of a run: what was recorded in it, and what traceview computed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview.analysis.exchange.collectives import collective_table
from traceview.analysis.gpu_time.device_time import device_table
from traceview.analysis.gpu_time.step_tables import step_table
from traceview.analysis.measures.context import Context
from traceview.analysis.workload.ops import table_in_window
from traceview.export.draw import device_rows, host_rows
from traceview.ledger.gaps import gap_events
from traceview.report.model import Report
from traceview.trace.device.table import Table, record_columns, table
from traceview.trace.frames import event_tables
from traceview.trace.host.pipeline import InputStage
from traceview.xplane.columns import joined


def window_tables(context: Context, report: Report) -> Iterator[Table]:
    """The tables of `formats.TABLES`, one after another; `report`: that of the same window."""
    trace, selection, results = context.trace, context.selection, report.results
    keys = [trace.device_key(device) for device in range(len(trace.device_list))]
    yield device_table(results.device_time)
    rows = joined([device_rows(trace, selection, device) for device in range(len(keys))], np.int64)
    yield event_tables.device_events(trace, rows)
    of_hosts = [host_rows(trace, selection, host) for host in range(len(trace.hosts))]
    yield event_tables.host_events(trace, joined(of_hosts, np.int64))
    yield event_tables.copies(trace, rows)
    yield event_tables.ops(trace, table_in_window(trace, selection))
    yield gap_events(context.ledger, context.idle.gaps)
    yield step_table(results.steps, keys)
    yield collective_table(trace, selection, context.collectives, keys)[0]
    stages = results.input.stages if results.input else ()
    yield table("input_stages", *record_columns(InputStage, stages))
