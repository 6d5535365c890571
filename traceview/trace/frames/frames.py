"""Gives the tables of a trace as pandas DataFrames, for notebooks; nothing else imports pandas.

Text columns that are not categories have the type `string`, so that they are text when empty, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from traceview.trace.device.ops import op_table
from traceview.trace.device.table import Column, Table, record_columns, table
from traceview.trace.frames import event_tables
from traceview.trace.host.input_waits import recorded_stages
from traceview.trace.host.pipeline import InputStage
from traceview.trace.model import Trace


def devices_frame(trace: Trace) -> pd.DataFrame:
    """One row per device, also of those that did nothing.

    Columns: `device` (key as in the report), `host`, `ordinal` (int64), `kind`, `model`, `event_count`
    (int64), `memory_held_bytes`, `memory_peak_bytes`, `memory_capacity_bytes` (Int64, missing where not
    recorded).
    """
    return frame_of(event_tables.devices(trace))


def device_events_frame(trace: Trace) -> pd.DataFrame:
    """One row per device event that counts as activity, sorted by device and start.

    Columns: `device`, `stream`, `class`, `name`, `op` (categories; `op` as recorded, missing without);
    `start_ps`, `duration_ps` (int64, picoseconds since the origin of the run); `bytes`, `correlation_id`,
    `launch` (Int64; `launch` is the row in `host_events` of the call that launched it, of a replica that of the op), `step` (Int64: the
    number of the step in which it starts), `p2p`, `opaque` (bool).
    """
    rows = np.arange(trace.device_columns.count)
    return frame_of(event_tables.device_events(trace, rows)).drop(columns="row")


def copies_frame(trace: Trace) -> pd.DataFrame:
    """One row per copy between host and device or among devices, sorted by device and start.

    Columns: `device`, `direction` (h2d, d2h, d2d), `stream` (categories); `start_ps`, `duration_ps` (int64,
    picoseconds since the origin of the run); `bytes` (Int64); `host_memory` (category: pageable, pinned,
    missing where not recorded); `p2p` (bool: to another GPU); `op` (category: the op that issued it, as
    recorded or around its launch), `thread` (category: the thread that did), `step` (Int64: the number of the step in which it starts).
    """
    rows = np.arange(trace.device_columns.count)
    return frame_of(event_tables.copies(trace, rows)).drop(columns="row")


def collectives_frame(trace: Trace) -> pd.DataFrame:
    """One row per collective and device that took part, sorted by collective and device.

    Columns: `collective` (int64, numbered in the order in which they began); `device`, `kind` (all_reduce …),
    `name`, `op` (categories; `op` missing where not recorded); `start_ps`, `duration_ps` (int64, of a replica
    from where it hands the op over), `wait_ps` (Int64: longer than the shortest; missing where a device is), `last`
    (bool: started after all others), `bytes` (Int64, of the collective), `step` (Int64), `by_keys` (bool:
    matched by recorded keys).
    """
    return frame_of(event_tables.collectives(trace))


def host_events_frame(trace: Trace) -> pd.DataFrame:
    """One row per host event, in the order of hosts, threads and file; `device_events.launch` points here.

    Columns: `host`, `thread`, `name` (categories); `start_ps`, `duration_ps` (int64, picoseconds since the
    origin of the run); `correlation_id` (Int64), `step` (Int64: the number of the step in which it starts).
    """
    rows = np.arange(trace.host_columns.count)
    return frame_of(event_tables.host_events(trace, rows)).drop(columns="row")


def steps_frame(trace: Trace) -> pd.DataFrame:
    """One row per step and host, in time order.

    Columns: `host`, `number` (int64), `recorded_number` (Int64), `kind`, `start_ps`, `duration_ps` (int64),
    `used` (bool: takes part in statistics), `excluded` (why not).
    """
    return frame_of(event_tables.steps(trace))


def ops_frame(trace: Trace) -> pd.DataFrame:
    """One row per device, class, op and kernel over the whole recording, by device and falling total.

    Columns: `device`, `class`, `op`, `op_type`, `kernel`; `count`, `total_ps`, `self_ps`, `mean_ps`,
    `median_ps`, `p95_ps` (int64); `share_ratio` (float64, of the device's compute; missing for other
    classes), `bytes` (Int64).
    """
    frame = frame_of(event_tables.ops(trace, op_table(trace)))
    return frame.astype({"device": "string", "class": "string"})


def input_stages_frame(trace: Trace) -> pd.DataFrame:
    """One row per stage of the input pipelines over the whole recording, by host and falling self time.

    Columns are the fields of `traceview.trace.host.pipeline.InputStage`: `host`, `name`, `threads` (text);
    `blocking`, `injected` (bool); `calls`, `total_ps`, `self_ps`, `waiting_ps`, `slow_count`, `parallelism`,
    `buffer_limit`, `buffered_median` (Int64); `empty_ratio` (float64).
    """
    stages = record_columns(InputStage, recorded_stages(trace))
    return frame_of(table("input_stages", *stages))


def active_devices_frame(trace: Trace) -> pd.DataFrame:
    """One row per step of each host: which of its devices computed or communicated in it.

    Columns: `host`, `step` (int64, its number), `start_ps` (int64), `device_count` (int64); `devices`, `joined`,
    `left` (text: keys of devices with commas between; what changed against the step before it).
    """
    return frame_of(event_tables.active_devices(trace))


def records_frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """One row per record that was made a dictionary, with its keys as columns."""
    return pd.DataFrame(list(rows))


def frame_of(rows: Table) -> pd.DataFrame:
    """A table as a DataFrame: whole numbers and flags of which some may be missing have pandas' types for that."""
    return pd.DataFrame({column.name: _series(column) for column in rows.columns})


def _series(column: Column) -> Any:
    values, missing = column.values, column.missing
    if column.kind == "category":
        return pd.Categorical.from_codes(values, categories=pd.Index(column.labels, dtype=object))
    if column.kind == "text":
        # Left to itself pandas makes numbers of an empty column.
        return pd.array(list(values), dtype="string")
    if column.kind == "int" and missing is not None:
        return pd.arrays.IntegerArray(values.copy(), missing.copy())
    if column.kind == "bool" and missing is not None:
        return pd.arrays.BooleanArray(values.copy(), missing.copy())
    return values
