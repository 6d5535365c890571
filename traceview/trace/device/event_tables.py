"""Makes the tables of what was recorded: events of devices and hosts, copies and ops, with a row each."""

from __future__ import annotations

import numpy as np

from traceview.base.ids import is_in
from traceview.base.intervals import Int64Array
from traceview.trace.columns import NONE, UNKNOWN_BYTES
from traceview.trace.device.correlation import copies_of
from traceview.trace.device.ops import OpTable
from traceview.trace.device.table import (
    Column,
    Table,
    category,
    flag,
    named,
    table,
    texts,
    whole,
)
from traceview.trace.model import Trace
from traceview.trace.windows import step_numbers_at
from traceview.xplane.planes import CLASS_KEYS, HostMemory


def device_events(trace: Trace, rows: Int64Array | None = None) -> Table:
    """Device events by their row numbers, by default all; gaps name them by these. `launch` is a row number of host events."""
    columns = trace.device_columns
    rows = np.arange(columns.count) if rows is None else rows
    device = columns.device[rows]
    size, launch = columns.bytes[rows], columns.launch[rows]
    return table(
        "device_events",
        whole("row", rows),
        category("device", device, device_keys(trace)),
        category("stream", columns.line[rows], line_names(trace)),
        category("class", columns.class_[rows], CLASS_KEYS),
        named("name", columns.name[rows], trace.names),
        named("op", columns.op[rows], trace.names),
        whole("start_ps", columns.start_ps[rows]),
        whole("duration_ps", columns.duration_ps[rows]),
        whole("bytes", size, size == UNKNOWN_BYTES),
        whole("correlation_id", columns.correlation_id[rows], ~columns.has_correlation[rows]),
        whole("launch", launch, launch == NONE),
        step_column(trace, trace.host_of_device[device], columns.start_ps[rows]),
        flag("p2p", columns.p2p[rows]),
        flag("opaque", columns.opaque[rows]),
    )


def host_events(trace: Trace, rows: Int64Array | None = None) -> Table:
    """Host events by their row numbers, by default all."""
    columns = trace.host_columns
    rows = np.arange(columns.count) if rows is None else rows
    correlation = columns.stat("correlation_id")
    host = columns.host[rows]
    return table(
        "host_events",
        whole("row", rows),
        category("host", host, [info.name for info in trace.hosts]),
        category("thread", columns.line[rows], line_names(trace)),
        named("name", columns.name[rows], trace.names),
        whole("start_ps", columns.start_ps[rows]),
        whole("duration_ps", columns.duration_ps[rows]),
        whole("correlation_id", correlation.at(rows, 0), ~correlation.has(rows)),
        step_column(trace, host.astype(np.int64), columns.start_ps[rows]),
    )


def copies(trace: Trace, rows: Int64Array) -> Table:
    """The copies among device events, given by their row numbers."""
    columns, copies = trace.device_columns, copies_of(trace)
    is_shown = np.zeros(columns.count, dtype=np.bool_)
    is_shown[rows] = True
    shown = np.flatnonzero(is_shown[copies.row])
    row = copies.row[shown]
    size = columns.bytes[row]
    kinds = (HostMemory.PAGEABLE, HostMemory.PINNED)
    memory = columns.host_memory[row].astype(np.int64)
    return table(
        "copy_events",
        whole("row", row),
        category("device", columns.device[row], device_keys(trace)),
        category("direction", columns.class_[row], CLASS_KEYS),
        category("stream", columns.line[row], line_names(trace)),
        whole("start_ps", columns.start_ps[row]),
        whole("duration_ps", columns.duration_ps[row]),
        whole("bytes", size, size == UNKNOWN_BYTES),
        category(
            "host_memory",
            np.where(is_in(memory, kinds), memory - kinds[0], NONE),
            [kind.name.lower() for kind in kinds],
        ),
        flag("p2p", columns.p2p[row]),
        named("op", copies.op[shown], trace.names),
        category("thread", copies.thread[shown], line_names(trace)),
        step_column(trace, trace.host_of_device[columns.device[row]], columns.start_ps[row]),
    )


def ops(trace: Trace, groups: OpTable) -> Table:
    """A row per device, class, op and kernel of some events."""
    keys = device_keys(trace)
    return table(
        "ops",
        texts("device", [keys[device] for device in groups.device.tolist()]),
        texts("class", [CLASS_KEYS[class_] for class_ in groups.class_.tolist()]),
        texts("op", groups.name),
        texts("op_type", groups.type),
        texts("kernel", groups.kernel),
        texts("source_line", groups.line),
        texts("holds", groups.holds),
        whole("count", groups.count),
        whole("total_ps", groups.total_ps),
        whole("self_ps", groups.self_ps),
        whole("mean_ps", groups.mean_ps),
        whole("median_ps", groups.median_ps),
        whole("p95_ps", groups.p95_ps),
        Column("share_ratio", "float", groups.share_ratio),
        whole("bytes", groups.bytes, groups.bytes == UNKNOWN_BYTES),
    )


def device_keys(trace: Trace) -> list[str]:
    """The keys of all devices of the device list."""
    return [trace.device_key(index) for index in range(len(trace.device_list))]


def line_names(trace: Trace) -> list[str]:
    """The names of all lines."""
    return [line.name for line in trace.lines]


def step_column(trace: Trace, host: Int64Array, start_ps: Int64Array) -> Column:
    """The number of the step in which each event starts on its host."""
    number, in_step = step_numbers_at(trace.steps_by_host, host, start_ps)
    return whole("step", number, ~in_step)
