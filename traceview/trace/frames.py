"""The same trace as pandas DataFrames, for notebooks. The only place that imports pandas.

Text columns that are not categories have the type `string`, so that they are text when empty, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.extensions import ExtensionArray

from traceview.trace.model import NONE, UNKNOWN_BYTES, Names, Trace
from traceview.trace.ops import OpTable, op_table
from traceview.xplane.planes import ActivityClass


def devices_frame(trace: Trace) -> pd.DataFrame:
    """One row per device, also of those that did nothing.

    Columns: `device` (key as in the report), `host`, `ordinal` (int64), `kind`, `model`, `event_count`
    (int64), `memory_held_bytes`, `memory_peak_bytes`, `memory_capacity_bytes` (Int64, missing where not
    recorded).
    """
    columns = trace.device_columns
    counts = [columns.rows_of(i) for i in range(len(trace.roster))]
    frame = pd.DataFrame(
        {
            "device": _texts([trace.device_key(i) for i in range(len(trace.roster))]),
            "host": _texts([trace.hosts[d.host].name for d in trace.roster]),
            "ordinal": np.array([d.ordinal for d in trace.roster], dtype=np.int64),
            "kind": _texts([d.kind for d in trace.roster]),
            "model": _texts([d.model for d in trace.roster]),
            "event_count": np.array([c.stop - c.start for c in counts], dtype=np.int64),
        }
    )
    for key in ("memory_held_bytes", "memory_peak_bytes", "memory_capacity_bytes"):
        frame[key] = pd.array([getattr(d, key) for d in trace.roster], dtype="Int64")
    return frame


def device_events_frame(trace: Trace) -> pd.DataFrame:
    """One row per device event that counts as activity, sorted by device and start.

    Columns: `device`, `stream`, `class`, `name`, `op` (categories; `op` as recorded, missing without);
    `start_ps`, `duration_ps` (int64, picoseconds since the origin of the run); `bytes`, `correlation_id`,
    `launch` (Int64; `launch` is the row in `host_events` of the call that launched it, of a replica that of the op), `step` (Int64: the
    number of the step in which it starts), `p2p`, `opaque` (bool).
    """
    columns = trace.device_columns
    host = np.array([d.host for d in trace.roster], dtype=np.int64)[columns.device]
    return pd.DataFrame(
        {
            "device": _category(
                columns.device, [trace.device_key(i) for i in range(len(trace.roster))]
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


def _texts(values: Sequence[str | None]) -> ExtensionArray:
    """Text of one type whatever is in it; left to itself pandas makes numbers of an empty column."""
    return pd.array(list(values), dtype="string")


def _category(codes: npt.NDArray[np.integer], labels: list[str]) -> pd.Categorical[str]:
    """Codes into labels; labels that repeat become one category."""
    distinct = list(dict.fromkeys(labels))
    place = np.array([distinct.index(label) for label in labels], dtype=np.int64)
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
    number = np.full(start_ps.size, NONE, dtype=np.int64)
    found = np.zeros(start_ps.size, dtype=np.bool_)
    for one in trace.steps_by_host:
        if not one.steps:
            continue
        begins = np.array([step.start_ps for step in one.steps], dtype=np.int64)
        ends = np.array([step.end_ps for step in one.steps], dtype=np.int64)
        numbers = np.array([step.number for step in one.steps], dtype=np.int64)
        place = np.searchsorted(begins, start_ps, side="right") - 1
        inside = (host == one.host) & (place >= 0) & (start_ps < ends[np.maximum(place, 0)])
        number[inside] = numbers[place[inside]]
        found |= inside
    return _optional(number, ~found)
