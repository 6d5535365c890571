"""Which tables hold the window of a run? What was recorded in it, and what was found out, for whoever computes on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview.analysis.base import Skipped
from traceview.analysis.collectives.table import CollectiveRow, collective_table
from traceview.analysis.device_time.table import DeviceLine, device_table
from traceview.analysis.idle import compute as idle
from traceview.analysis.ops import table_in_window
from traceview.analysis.selection import Selection
from traceview.analysis.steps.table import StepLine, in_whole_steps, step_table
from traceview.export.activity import device_rows, host_rows
from traceview.export.columns import (
    Column,
    Table,
    category,
    flag,
    named,
    table_of_rows,
    texts,
    whole,
)
from traceview.intervals import Int64Array
from traceview.report.model import Report
from traceview.trace.cause import Cause
from traceview.trace.collectives import collectives_of
from traceview.trace.copies import copies_of
from traceview.trace.model import NONE, UNKNOWN_BYTES, Trace
from traceview.trace.pipeline import InputStage
from traceview.trace.windows import step_numbers_at
from traceview.xplane.columns import joined
from traceview.xplane.planes import ActivityClass, HostMemory


def window_tables(trace: Trace, selection: Selection, report: Report) -> Iterator[Table]:
    """The tables of `formats.TABLES`, one after another; `report`: that of the same window."""
    keys = [trace.device_key(device) for device in range(len(trace.device_list))]
    found = report.results
    lines = device_table(found.device_time, found.balance) if found.device_time else []
    yield table_of_rows("devices", lines, DeviceLine)
    rows = joined([device_rows(trace, selection, device) for device in range(len(keys))], np.int64)
    yield _device_events(trace, keys, rows)
    yield _host_events(trace, selection)
    yield _copies(trace, keys, rows)
    yield _ops(trace, keys, selection)
    waits = idle.idle_time(trace, selection)
    yield _gaps(trace, keys, waits)
    yield table_of_rows("steps", _steps(trace, keys, selection, report), StepLine)
    matched, _ = collective_table(trace, selection, collectives_of(trace), keys, None)
    yield table_of_rows("collectives", matched, CollectiveRow)
    yield table_of_rows("input_stages", found.input.stages if found.input else (), InputStage)


def _device_events(trace: Trace, keys: list[str], rows: Int64Array) -> Table:
    columns = trace.device_columns
    device = columns.device[rows]
    size, launch = columns.bytes[rows], columns.launch[rows]
    # Gaps name the events before and after them by these numbers, and `launch` is one of host_events.
    return _table(
        "device_events",
        rows,
        whole("row", rows),
        category("device", device, keys),
        category("stream", columns.line[rows], [line.name for line in trace.lines]),
        category("class", columns.class_[rows], [one.name.lower() for one in ActivityClass]),
        named("name", columns.name[rows], trace.names),
        named("op", columns.op[rows], trace.names),
        whole("start_ps", columns.start_ps[rows]),
        whole("duration_ps", columns.duration_ps[rows]),
        whole("bytes", size, size == UNKNOWN_BYTES),
        whole("correlation_id", columns.correlation_id[rows], ~columns.has_correlation[rows]),
        whole("launch", launch, launch == NONE),
        _step_numbers(trace, _hosts_of(trace)[device], columns.start_ps[rows]),
        flag("p2p", columns.p2p[rows]),
        flag("opaque", columns.opaque[rows]),
    )


def _host_events(trace: Trace, selection: Selection) -> Table:
    columns = trace.host_columns
    rows = joined([host_rows(trace, selection, one) for one in range(len(trace.hosts))], np.int64)
    correlation = columns.stat("correlation_id")
    missing = np.ones(columns.count, dtype=np.bool_)
    missing[correlation.row] = False
    host = columns.host[rows]
    return _table(
        "host_events",
        rows,
        whole("row", rows),
        category("host", host, [one.name for one in trace.hosts]),
        category("thread", columns.line[rows], [line.name for line in trace.lines]),
        named("name", columns.name[rows], trace.names),
        whole("start_ps", columns.start_ps[rows]),
        whole("duration_ps", columns.duration_ps[rows]),
        whole("correlation_id", correlation.dense(columns.count, 0)[rows], missing[rows]),
        _step_numbers(trace, host.astype(np.int64), columns.start_ps[rows]),
    )


def _copies(trace: Trace, keys: list[str], shown: Int64Array) -> Table:
    columns, copies = trace.device_columns, copies_of(trace)
    is_shown = np.zeros(columns.count, dtype=np.bool_)
    is_shown[shown] = True
    mine = np.flatnonzero(is_shown[copies.row])
    rows = copies.row[mine]
    size = columns.bytes[rows]
    kinds = (HostMemory.PAGEABLE, HostMemory.PINNED)
    memory = np.isin(columns.host_memory[rows], kinds)
    return _table(
        "copies",
        rows,
        whole("row", rows),
        category("device", columns.device[rows], keys),
        category("direction", columns.class_[rows], [one.name.lower() for one in ActivityClass]),
        category("stream", columns.line[rows], [line.name for line in trace.lines]),
        whole("start_ps", columns.start_ps[rows]),
        whole("duration_ps", columns.duration_ps[rows]),
        whole("bytes", size, size == UNKNOWN_BYTES),
        category(
            "host_memory",
            np.where(memory, columns.host_memory[rows].astype(np.int64) - kinds[0], NONE),
            [one.name.lower() for one in kinds],
        ),
        flag("p2p", columns.p2p[rows]),
        named("op", copies.op[mine], trace.names),
        category("thread", copies.thread[mine], [line.name for line in trace.lines]),
        _step_numbers(trace, _hosts_of(trace)[columns.device[rows]], columns.start_ps[rows]),
    )


def _ops(trace: Trace, keys: list[str], selection: Selection) -> Table:
    table = table_in_window(trace, selection)
    return _table(
        "ops",
        table.count,
        category("device", table.device, keys),
        category("class", table.class_, [one.name.lower() for one in ActivityClass]),
        texts("op", table.name),
        texts("op_type", table.type),
        texts("kernel", table.kernel),
        whole("count", table.count),
        whole("total_ps", table.total_ps),
        whole("self_ps", table.self_ps),
        whole("mean_ps", table.mean_ps),
        whole("median_ps", table.median_ps),
        whole("p95_ps", table.p95_ps),
        Column("share_ratio", "float", table.share_ratio),
        whole("bytes", table.bytes, table.bytes == UNKNOWN_BYTES),
    )


def _gaps(trace: Trace, keys: list[str], found: idle.IdleTime) -> Table:
    every = [(device, gaps, gaps.spans) for device, gaps in found.gaps.items()]
    start = joined([spans[0] for _, _, spans in every], np.int64)
    end = joined([spans[1] for _, _, spans in every], np.int64)
    device = joined([np.full(gaps.count, one) for one, gaps, _ in every], np.int64)
    before = joined([gaps.before for _, gaps, _ in every], np.int64)
    after = joined([gaps.after for _, gaps, _ in every], np.int64)
    thread = joined([gaps.thread for _, gaps, _ in every], np.int32)
    parts = [gaps.causes_of(np.arange(gaps.count)) for _, gaps, _ in every]
    causes = np.concatenate([np.empty((len(Cause), 0), dtype=np.int64), *parts], axis=1)
    return _table(
        "gaps",
        start,
        category("device", device, keys),
        whole("start_ps", start),
        whole("duration_ps", end - start),
        _step_numbers(trace, _hosts_of(trace)[device], start),
        category("cause", causes.argmax(axis=0), [cause.key for cause in Cause]),
        whole("before", before, before == NONE),
        whole("after", after, after == NONE),
        category("thread", thread, [line.name for line in trace.lines]),
        *(whole(f"{cause.key}_ps", causes[cause]) for cause in Cause),
    )


def _steps(trace: Trace, keys: list[str], selection: Selection, report: Report) -> list[StepLine]:
    if report.results.steps is None:
        return []
    shown = in_whole_steps(selection)
    waits = idle.compute(trace, shown, idle.idle_time(trace, shown), 0)
    return step_table(report.results.steps, None if isinstance(waits, Skipped) else waits, keys)


def _table(name: str, rows: Int64Array, *columns: Column) -> Table:
    return Table(name, int(rows.size), columns)


def _hosts_of(trace: Trace) -> Int64Array:
    """The host of each device."""
    return np.array([device.host for device in trace.device_list], dtype=np.int64)


def _step_numbers(trace: Trace, host: Int64Array, start_ps: Int64Array) -> Column:
    """The number of the step in which each event starts on its host."""
    number, in_step = step_numbers_at(trace.steps_by_host, host, start_ps)
    return whole("step", number, ~in_step)
