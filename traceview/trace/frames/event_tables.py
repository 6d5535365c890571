"""Makes the tables of what was recorded: events, copies, collectives, gaps, ops and devices, with a row each."""

from __future__ import annotations

import numpy as np

from traceview.base.ids import is_in
from traceview.base.intervals import Int64Array
from traceview.trace.device.active_devices import active_steps
from traceview.trace.device.copies import copies_of
from traceview.trace.device.ops import OpTable, op_table
from traceview.trace.device.table import (
    Column,
    Table,
    category,
    flag,
    flags,
    integers,
    named,
    numbers,
    record_columns,
    table,
    texts,
    whole,
)
from traceview.trace.host.pipeline import InputStage, recorded_stages
from traceview.trace.model import NONE, UNKNOWN_BYTES, Trace
from traceview.trace.strategy.collectives import CollectiveKind, collectives_of
from traceview.trace.windows import step_numbers_at
from traceview.xplane.planes import CLASS_KEYS, HostMemory


def devices(trace: Trace) -> Table:
    """The devices, also those that did nothing."""
    devices = trace.device_list
    rows = [trace.device_columns.rows_of(index) for index in range(len(devices))]
    return table(
        "devices",
        texts("device", device_keys(trace)),
        texts("host", [trace.hosts[device.host].name for device in devices]),
        numbers("ordinal", [device.ordinal for device in devices]),
        texts("kind", [device.kind for device in devices]),
        texts("model", [device.model for device in devices]),
        numbers("event_count", [row.stop - row.start for row in rows]),
        integers("memory_held_bytes", [device.memory_held_bytes for device in devices]),
        integers("memory_peak_bytes", [device.memory_peak_bytes for device in devices]),
        integers("memory_capacity_bytes", [device.memory_capacity_bytes for device in devices]),
    )


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


def copies(trace: Trace, rows: Int64Array | None = None) -> Table:
    """The copies among device events, given by their row numbers, by default all."""
    columns, copies = trace.device_columns, copies_of(trace)
    is_shown = np.zeros(columns.count, dtype=np.bool_)
    is_shown[slice(None) if rows is None else rows] = True
    shown = np.flatnonzero(is_shown[copies.row])
    row = copies.row[shown]
    size = columns.bytes[row]
    kinds = (HostMemory.PAGEABLE, HostMemory.PINNED)
    memory = columns.host_memory[row].astype(np.int64)
    return table(
        "copies",
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


def collectives(trace: Trace) -> Table:
    """Each device in each collective, by collective and device."""
    collectives = collectives_of(trace)
    is_incomplete = ~collectives.is_complete[collectives.collective]
    size = collectives.bytes_moved[collectives.collective]
    return table(
        "collectives",
        whole("collective", collectives.collective),
        category("device", collectives.device, device_keys(trace)),
        category("kind", collectives.kind, [kind.name.lower() for kind in CollectiveKind]),
        named("name", collectives.name, trace.names),
        named("op", collectives.op, trace.names),
        whole("start_ps", collectives.start_ps),
        whole("duration_ps", collectives.duration_ps),
        whole("wait_ps", collectives.wait_ps, is_incomplete),
        flag("last", collectives.is_last),
        whole("bytes", size, size == UNKNOWN_BYTES),
        whole("step", collectives.step, collectives.step == NONE),
        flag("by_keys", collectives.by_keys),
    )


def ops(trace: Trace, groups: OpTable | None = None) -> Table:
    """A row per device, class, op and kernel of some events, by default of all."""
    groups = op_table(trace) if groups is None else groups
    return table(
        "ops",
        category("device", groups.device, device_keys(trace)),
        category("class", groups.class_, CLASS_KEYS),
        texts("op", groups.name),
        texts("op_type", groups.type),
        texts("kernel", groups.kernel),
        texts("source_line", groups.line),
        whole("count", groups.count),
        whole("total_ps", groups.total_ps),
        whole("self_ps", groups.self_ps),
        whole("mean_ps", groups.mean_ps),
        whole("median_ps", groups.median_ps),
        whole("p95_ps", groups.p95_ps),
        Column("share_ratio", "float", groups.share_ratio),
        whole("bytes", groups.bytes, groups.bytes == UNKNOWN_BYTES),
    )


def steps(trace: Trace) -> Table:
    """The steps of each host, in time order."""
    rows = [step for of_host in trace.steps_by_host for step in of_host.steps]
    return table(
        "steps",
        texts("host", [trace.hosts[step.host].name for step in rows]),
        numbers("number", [step.number for step in rows]),
        integers("recorded_number", [step.recorded_number for step in rows]),
        texts("kind", [step.kind for step in rows]),
        numbers("start_ps", [step.start_ps for step in rows]),
        numbers("duration_ps", [step.duration_ps for step in rows]),
        flags("used", [step.excluded is None for step in rows], is_optional=False),
        texts("excluded", [step.excluded for step in rows]),
    )


def input_stages(trace: Trace) -> Table:
    """The stages of the input pipelines over the whole recording, by host and falling self time."""
    return table("input_stages", *record_columns(InputStage, recorded_stages(trace)))


def active_devices(trace: Trace) -> Table:
    """The devices that computed or communicated in each step of each host."""
    steps = active_steps(trace)
    return table(
        "active_devices",
        texts("host", [step.host for step in steps]),
        numbers("step", [step.number for step in steps]),
        numbers("start_ps", [step.start_ps for step in steps]),
        numbers("device_count", [len(step.devices) for step in steps]),
        texts("devices", [", ".join(step.devices) for step in steps]),
        texts("joined", [", ".join(step.joined) for step in steps]),
        texts("left", [", ".join(step.left) for step in steps]),
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
