"""Makes the tables of what was recorded: events of devices and hosts, copies and ops, with a row each."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from traceview.base.ids import is_in, sorted_within, unique_inverse
from traceview.base.intervals import Int32Array, Int64Array, places, union
from traceview.base.sweeping import SWEEPS
from traceview.trace.columns import NONE, UNKNOWN_BYTES
from traceview.trace.device.correlation import copies_of
from traceview.trace.device.op_names import label_lines, op_labels, op_names
from traceview.trace.device.table import (
    Column,
    Table,
    category,
    flag,
    joined_tables,
    named,
    table,
    texts,
    whole,
)
from traceview.trace.model import Trace, step_numbers_at
from traceview.xplane.planes import CLASS_KEYS, ActivityClass, HostMemory

_Span: TypeAlias = Int64Array | slice


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


def op_table(trace: Trace, rows: Int64Array) -> Table:
    """The device events at `rows`, which are in order, by device, class, op and kernel; those of a device by total time.

    Copies of one op on several devices share its name. Host ops of a replica have no kernel.
    """
    # Device by device: what is made on the way is as large as the events.
    firsts = [trace.device_columns.rows_of(i).start for i in range(len(trace.device_list))]
    parts = np.split(rows, places(rows, firsts)[1:])
    tables = [_ops_of_device(trace, _as_span(part)) for part in parts if part.size]
    return joined_tables(tables or [_ops_of_device(trace, slice(0, 0))])


def _ops_of_device(trace: Trace, rows: _Span) -> Table:
    """The table of rows that are all of one device."""
    columns = trace.device_columns
    op, kernel, label, group = _groups(trace, rows)
    duration, size = np.ascontiguousarray(columns.duration_ps[rows]), op.size
    count, total = np.bincount(group, minlength=size), SWEEPS.totals(group, duration, size)
    # The shortest event of each group, of several the first.
    leader = SWEEPS.earliest(group, duration, 0, size)
    p95 = sorted_within(group, duration)[np.cumsum(count) - count + (19 * count + 19) // 20 - 1]
    bytes_ = columns.bytes[rows]
    is_known = np.flatnonzero(bytes_ != UNKNOWN_BYTES)
    known_bytes = SWEEPS.totals(group[is_known], bytes_[is_known], size)
    no_bytes = np.bincount(group[is_known], minlength=size) == 0
    class_ = columns.class_[rows][leader]
    computes = columns.class_[rows] == ActivityClass.COMPUTE
    start, end = columns.start_ps[rows][computes], columns.end_ps[rows][computes]
    compute_ps = union(start, end).length
    share = np.where(
        class_ == ActivityClass.COMPUTE, total / compute_ps if compute_ps else np.nan, np.nan
    )
    rank = np.lexsort((leader, -total))
    keys, names, lines = device_keys(trace), trace.once(op_names).ops, trace.once(label_lines)
    ops = [names[place] for place in op[rank].tolist()]
    return table(
        "ops",
        texts("device", [keys[device] for device in columns.device[rows][leader].tolist()]),
        texts("class", [CLASS_KEYS[each] for each in class_[rank].tolist()]),
        texts("op", [name for name, _ in ops]),
        texts("op_type", [type_ for _, type_ in ops]),
        texts("kernel", list(map(trace.names.text, kernel[rank].tolist()))),
        texts("source_line", [lines[place] or None for place in label[rank].tolist()]),
        whole("count", count[rank]),
        whole("total_ps", total[rank]),
        whole("mean_ps", (total // np.maximum(count, 1))[rank]),
        whole("p95_ps", p95[rank]),
        Column("share_ratio", "float", share[rank]),
        whole("bytes", known_bytes[rank], no_bytes[rank]),
    )


def _as_span(rows: Int64Array) -> _Span:
    """Rows in order, as a slice if none between them is left out: of that no column is copied."""
    if rows[-1] - rows[0] == rows.size - 1:
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def _groups(trace: Trace, rows: _Span) -> tuple[Int32Array, Int32Array, Int64Array, Int64Array]:
    """What makes events of one device one row of the table, by group, and int64 the group of each row.

    The place of its op among `OpNames.ops`, the number of its kernel's name, and the first of its labels, in whose order they are.
    """
    columns, labels = trace.device_columns, trace.once(op_labels)
    known, of_row = unique_inverse(labels.of_row[rows])
    row = labels.row[known]
    device = columns.device[rows][:1].tolist()
    is_replica = bool(device) and trace.device_list[device[0]].kind == "replica"
    op = trace.once(op_names).of_name[columns.op[row]]
    kernel = np.full(row.size, NONE, dtype=np.int32) if is_replica else columns.name[row]
    group, first = SWEEPS.labelled(op, kernel, columns.class_[row])
    return op[first], kernel[first], known[first], group.astype(np.int64)[of_row]


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
