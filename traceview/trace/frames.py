"""The same trace as pandas DataFrames, for notebooks. The only place that imports pandas.

Text columns that are not categories have the type `string`, so that they are text when empty, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.extensions import ExtensionArray

from traceview.trace.active_devices import active_steps
from traceview.trace.cause import Cause
from traceview.trace.collectives import CollectiveKind, collectives_of
from traceview.trace.copies import copies_of
from traceview.trace.gaps import gaps_of_device
from traceview.trace.host_states import HostStates
from traceview.trace.input_waits import recorded_stages
from traceview.trace.model import NONE, UNKNOWN_BYTES, Names, Trace
from traceview.trace.ops import OpTable, op_table
from traceview.trace.pipeline import InputStage
from traceview.trace.windows import Window, step_numbers_at, windows_of
from traceview.xplane.columns import joined
from traceview.xplane.planes import ActivityClass, HostMemory


def devices_frame(trace: Trace) -> pd.DataFrame:
    """One row per device, also of those that did nothing.

    Columns: `device` (key as in the report), `host`, `ordinal` (int64), `kind`, `model`, `event_count`
    (int64), `memory_held_bytes`, `memory_peak_bytes`, `memory_capacity_bytes` (Int64, missing where not
    recorded).
    """
    columns = trace.device_columns
    counts = [columns.rows_of(i) for i in range(len(trace.device_list))]
    frame = pd.DataFrame(
        {
            "device": _texts([trace.device_key(i) for i in range(len(trace.device_list))]),
            "host": _texts([trace.hosts[d.host].name for d in trace.device_list]),
            "ordinal": np.array([d.ordinal for d in trace.device_list], dtype=np.int64),
            "kind": _texts([d.kind for d in trace.device_list]),
            "model": _texts([d.model for d in trace.device_list]),
            "event_count": np.array([c.stop - c.start for c in counts], dtype=np.int64),
        }
    )
    for key in ("memory_held_bytes", "memory_peak_bytes", "memory_capacity_bytes"):
        frame[key] = pd.array([getattr(d, key) for d in trace.device_list], dtype="Int64")
    return frame


def device_events_frame(trace: Trace) -> pd.DataFrame:
    """One row per device event that counts as activity, sorted by device and start.

    Columns: `device`, `stream`, `class`, `name`, `op` (categories; `op` as recorded, missing without);
    `start_ps`, `duration_ps` (int64, picoseconds since the origin of the run); `bytes`, `correlation_id`,
    `launch` (Int64; `launch` is the row in `host_events` of the call that launched it, of a replica that of the op), `step` (Int64: the
    number of the step in which it starts), `p2p`, `opaque` (bool).
    """
    columns = trace.device_columns
    host = np.array([d.host for d in trace.device_list], dtype=np.int64)[columns.device]
    return pd.DataFrame(
        {
            "device": _category(
                columns.device, [trace.device_key(i) for i in range(len(trace.device_list))]
            ),
            "stream": _category(columns.line, [line.name for line in trace.lines]),
            "class": _category(columns.class_, [c.name.lower() for c in ActivityClass]),
            "name": _names(columns.name, trace.names),
            "op": _names(columns.op, trace.names),
            "start_ps": columns.start_ps,
            "duration_ps": columns.duration_ps,
            "bytes": _optional(columns.bytes, columns.bytes == UNKNOWN_BYTES),
            "correlation_id": _optional(columns.correlation_id, ~columns.has_correlation),
            "launch": _optional(columns.launch, columns.launch == NONE),
            "step": _step_numbers(trace, host, columns.start_ps),
            "p2p": columns.p2p,
            "opaque": columns.opaque,
        }
    )


def copies_frame(trace: Trace) -> pd.DataFrame:
    """One row per copy between host and device or among devices, sorted by device and start.

    Columns: `device`, `direction` (h2d, d2h, d2d), `stream` (categories); `start_ps`, `duration_ps` (int64,
    picoseconds since the origin of the run); `bytes` (Int64); `host_memory` (category: pageable, pinned,
    missing where not recorded); `p2p` (bool: to another GPU); `op` (category: the op that issued it, as
    recorded or around its launch), `thread` (category: the thread that did), `step` (Int64: the number of the step in which it starts).
    """
    columns, copies = trace.device_columns, copies_of(trace)
    row = copies.row
    host = np.array([d.host for d in trace.device_list], dtype=np.int64)[columns.device[row]]
    memory = columns.host_memory[row].astype(np.int64)
    kinds = [one.name.lower() for one in (HostMemory.PAGEABLE, HostMemory.PINNED)]
    return pd.DataFrame(
        {
            "device": _category(
                columns.device[row], [trace.device_key(i) for i in range(len(trace.device_list))]
            ),
            "direction": _category(columns.class_[row], [c.name.lower() for c in ActivityClass]),
            "stream": _category(columns.line[row], [line.name for line in trace.lines]),
            "start_ps": columns.start_ps[row],
            "duration_ps": columns.duration_ps[row],
            "bytes": _optional(columns.bytes[row], columns.bytes[row] == UNKNOWN_BYTES),
            # The kinds count from 1 on; 0 is unknown, which is -1 among the codes of a category.
            "host_memory": pd.Categorical.from_codes(memory - 1, categories=pd.Index(kinds)),
            "p2p": columns.p2p[row],
            "op": _names(copies.op, trace.names),
            "thread": _category(copies.thread, [line.name for line in trace.lines]),
            "step": _step_numbers(trace, host, columns.start_ps[row]),
        }
    )


def collectives_frame(trace: Trace) -> pd.DataFrame:
    """One row per collective and device that took part, sorted by collective and device.

    Columns: `collective` (int64, numbered in the order in which they began); `device`, `kind` (all_reduce …),
    `name`, `op` (categories; `op` missing where not recorded); `start_ps`, `duration_ps` (int64, of a replica
    from where it hands the op over), `wait_ps` (Int64: longer than the shortest; missing where a device is), `last`
    (bool: started after all others), `bytes` (Int64, of the collective), `step` (Int64), `by_keys` (bool:
    matched by recorded keys).
    """
    found = collectives_of(trace)
    incomplete = ~found.is_complete[found.collective]
    size = found.bytes_moved[found.collective]
    return pd.DataFrame(
        {
            "collective": found.collective,
            "device": _category(
                found.device, [trace.device_key(i) for i in range(len(trace.device_list))]
            ),
            "kind": _category(found.kind, [kind.name.lower() for kind in CollectiveKind]),
            "name": _names(found.name, trace.names),
            "op": _names(found.op, trace.names),
            "start_ps": found.start_ps,
            "duration_ps": found.duration_ps,
            "wait_ps": _optional(found.wait_ps, incomplete),
            "last": found.is_last,
            "bytes": _optional(size, size == UNKNOWN_BYTES),
            "step": _optional(found.step, found.step == NONE),
            "by_keys": found.by_keys,
        }
    )


def host_events_frame(trace: Trace) -> pd.DataFrame:
    """One row per host event, in the order of hosts, threads and file; `device_events.launch` points here.

    Columns: `host`, `thread`, `name` (categories); `start_ps`, `duration_ps` (int64, picoseconds since the
    origin of the run); `correlation_id` (Int64), `step` (Int64: the number of the step in which it starts).
    """
    columns = trace.host_columns
    correlation = columns.stat("correlation_id")
    missing = np.ones(columns.count, dtype=np.bool_)
    missing[correlation.row] = False
    return pd.DataFrame(
        {
            "host": _category(columns.host, [host.name for host in trace.hosts]),
            "thread": _category(columns.line, [line.name for line in trace.lines]),
            "name": _names(columns.name, trace.names),
            "start_ps": columns.start_ps,
            "duration_ps": columns.duration_ps,
            "correlation_id": _optional(correlation.dense(columns.count, 0), missing),
            "step": _step_numbers(trace, columns.host.astype(np.int64), columns.start_ps),
        }
    )


def steps_frame(trace: Trace) -> pd.DataFrame:
    """One row per step and host, in time order.

    Columns: `host`, `number` (int64), `recorded_number` (Int64), `kind`, `start_ps`, `duration_ps` (int64),
    `used` (bool: takes part in statistics), `excluded` (why not).
    """
    steps = [step for found in trace.steps_by_host for step in found.steps]
    return pd.DataFrame(
        {
            "host": _texts([trace.hosts[s.host].name for s in steps]),
            "number": np.array([s.number for s in steps], dtype=np.int64),
            "recorded_number": pd.array([s.recorded_number for s in steps], dtype="Int64"),
            "kind": _texts([s.kind for s in steps]),
            "start_ps": np.array([s.start_ps for s in steps], dtype=np.int64),
            "duration_ps": np.array([s.duration_ps for s in steps], dtype=np.int64),
            "used": np.array([s.excluded is None for s in steps], dtype=np.bool_),
            "excluded": _texts([s.excluded for s in steps]),
        }
    )


def ops_frame(trace: Trace, table: OpTable | None = None) -> pd.DataFrame:
    """One row per device, class, op and kernel over the whole recording, by device and falling total.

    Columns: `device`, `class`, `op`, `op_type`, `kernel`; `count`, `total_ps`, `self_ps`, `mean_ps`,
    `median_ps`, `p95_ps` (int64); `share_ratio` (float64, of the device's compute; missing for other
    classes), `bytes` (Int64).
    """
    table = table or op_table(trace)
    return pd.DataFrame(
        {
            "device": _texts([trace.device_key(int(i)) for i in table.device]),
            "class": _texts([trace.class_name(int(i)) for i in table.class_]),
            "op": _texts(table.name),
            "op_type": _texts(table.type),
            "kernel": _texts(table.kernel),
            "count": table.count,
            "total_ps": table.total_ps,
            "self_ps": table.self_ps,
            "mean_ps": table.mean_ps,
            "median_ps": table.median_ps,
            "p95_ps": table.p95_ps,
            "share_ratio": table.share_ratio,
            "bytes": _optional(table.bytes, table.bytes == UNKNOWN_BYTES),
        }
    )


def input_stages_frame(trace: Trace) -> pd.DataFrame:
    """One row per stage of the input pipelines over the whole recording, by host and falling self time.

    Columns are the fields of `traceview.trace.pipeline.InputStage`: `host`, `name`, `threads` (text);
    `blocking`, `injected` (bool); `calls`, `total_ps`, `self_ps`, `waiting_ps`, `slow_count`, `parallelism`,
    `buffer_limit`, `buffered_median` (Int64); `empty_ratio` (float64).
    """
    return rows_frame(recorded_stages(trace), InputStage)


def active_devices_frame(trace: Trace) -> pd.DataFrame:
    """One row per step of each host: which of its devices computed or communicated in it.

    Columns: `host`, `step` (int64, its number), `start_ps` (int64), `device_count` (int64); `devices`, `joined`,
    `left` (text: keys of devices with commas between; what changed against the step before it).
    """
    steps = active_steps(trace)
    return pd.DataFrame(
        {
            "host": _texts([one.host for one in steps]),
            "step": np.array([one.number for one in steps], dtype=np.int64),
            "start_ps": np.array([one.start_ps for one in steps], dtype=np.int64),
            "device_count": np.array([len(one.devices) for one in steps], dtype=np.int64),
            "devices": _texts([", ".join(one.devices) for one in steps]),
            "joined": _texts([", ".join(one.joined) for one in steps]),
            "left": _texts([", ".join(one.left) for one in steps]),
        }
    )


def gaps_frame(trace: Trace, windows: Mapping[int, Window] | None = None) -> pd.DataFrame:
    """One row per span without activity of every device, in the window `auto`, by device and start.

    `windows`: others, by host index.

    Columns: `device`, `start_ps`, `duration_ps` (int64); `step` (Int64: the number of the step in which it
    starts); `cause` (category: the one with the largest part); `before`, `after` (Int64: rows of
    `device_events`); `thread` (the one that was late); one column `<cause>_ps` (int64) per cause.
    """
    states = {host: HostStates(trace, host) for host in range(len(trace.hosts))}
    windows = windows_of(trace) if windows is None else windows
    no_steps = np.empty(0, dtype=np.int64)
    found = [
        gaps_of_device(trace, device, windows[entry.host], (no_steps, no_steps), states[entry.host])
        for device, entry in enumerate(trace.device_list)
        if entry.host in windows
    ]
    start = joined([gaps.start_ps for gaps in found], np.int64)
    end = joined([gaps.end_ps for gaps in found], np.int64)
    device = np.repeat([gaps.device for gaps in found], [gaps.count for gaps in found])
    host = np.array([entry.host for entry in trace.device_list], dtype=np.int64)
    before = joined([gaps.before for gaps in found], np.int64)
    after = joined([gaps.after for gaps in found], np.int64)
    thread = joined([gaps.thread for gaps in found], np.int32)
    causes = np.concatenate(
        [np.empty((len(Cause), 0), dtype=np.int64), *(gaps.cause_ps for gaps in found)], axis=1
    )
    return pd.DataFrame(
        {
            "device": _category(
                device.astype(np.int64),
                [trace.device_key(i) for i in range(len(trace.device_list))],
            ),
            "start_ps": start,
            "duration_ps": end - start,
            "step": _step_numbers(trace, host[device.astype(np.int64)], start),
            "cause": _category(causes.argmax(axis=0), [cause.key for cause in Cause]),
            "before": _optional(before, before == NONE),
            "after": _optional(after, after == NONE),
            "thread": _texts([None if i == NONE else trace.lines[i].name for i in thread.tolist()]),
            **{f"{cause.key}_ps": causes[cause] for cause in Cause},
        }
    )


def rows_frame(rows: Sequence[Any], row: type) -> pd.DataFrame:
    """One row per data class of type `row`, one column per field: text, Int64 or float64 as annotated."""
    columns: dict[str, Any] = {}
    for field in fields(row):
        values = [getattr(one, field.name) for one in rows]
        name = field.name.removesuffix("_")
        if "str" in str(field.type):
            columns[name] = _texts(values)
        elif "float" in str(field.type):
            columns[name] = np.array([np.nan if v is None else v for v in values], dtype=np.float64)
        elif str(field.type) == "bool | None":
            columns[name] = pd.array(values, dtype="boolean")
        elif "bool" in str(field.type):
            columns[name] = np.array(values, dtype=np.bool_)
        else:
            columns[name] = pd.array(values, dtype="Int64")
    return pd.DataFrame(columns)


def _texts(values: Sequence[str | None]) -> ExtensionArray:
    """Text of one type whatever is in it; left to itself pandas makes numbers of an empty column."""
    return pd.array(list(values), dtype="string")


def _category(codes: npt.NDArray[np.integer], labels: list[str]) -> pd.Categorical[str]:
    """Codes into labels, `NONE` into a missing value; labels that repeat become one category."""
    distinct = list(dict.fromkeys(labels))
    place = np.array([*(distinct.index(label) for label in labels), NONE], dtype=np.int64)
    return pd.Categorical.from_codes(place[codes], categories=pd.Index(distinct))


def _names(index: npt.NDArray[np.int32], names: Names) -> pd.Categorical[str]:
    used, codes = np.unique(index, return_inverse=True)
    texts = [names.text(int(i)) for i in used]
    labels = [text for text in dict.fromkeys(texts) if text is not None]
    code_of = {text: code for code, text in enumerate(labels)}
    place = np.array([NONE if t is None else code_of[t] for t in texts], dtype=np.int64)
    return pd.Categorical.from_codes(place[codes], categories=pd.Index(labels))


def _optional(
    values: npt.NDArray[np.int64], missing: npt.NDArray[np.bool_]
) -> pd.arrays.IntegerArray:
    return pd.arrays.IntegerArray(values.copy(), missing.copy())


def _step_numbers(
    trace: Trace, host: npt.NDArray[np.int64], start_ps: npt.NDArray[np.int64]
) -> pd.arrays.IntegerArray:
    number, in_step = step_numbers_at(trace.steps_by_host, host, start_ps)
    return _optional(number, ~in_step)
