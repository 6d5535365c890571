"""Groups device events by device, class, op and kernel, with the count and the time of each group.

The text of an op is `scope/name:Type`. The name is used without the number of the replica, so that the copies of one
op on several devices share it: `replica_1/` is removed, an optimizer's `update_1` becomes `update`. Host ops of a
replica have no kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import astuple

from traceview.ids import order_by, unique_ids, unique_inverse
from traceview.intervals import BoolArray, Int32Array, Int64Array, nesting, places, union
from traceview.trace.model import NONE, UNKNOWN_BYTES, Trace
from traceview.trace.op_phase import KEPT_NAMES

_REPLICA_PART = re.compile(r"(?:^|(?<=/))replica_\d+/")
_UPDATE_PART = re.compile(r"(?:^|(?<=/))update_\d+(?=_|/|$)")
_TYPE = re.compile(r"[A-Za-z_][\w>-]*")


class OpTable(Struct, frozen=True, eq=False):
    """Grouped device events; every array has one entry per group, sorted by device and falling total.

    int64 `count`, `total_ps` (sum of durations), `self_ps` (total without nested events), `mean_ps`,
    `median_ps` (both rounded down), `p95_ps` (nearest rank), `bytes` (-1 unknown). `name`, `type` and
    `kernel` are None where not recorded. `share_ratio`: total over the device's compute time, for class
    compute only, else NaN.
    """

    device: npt.NDArray[np.int16]
    class_: npt.NDArray[np.uint8]
    name: tuple[str | None, ...]
    type: tuple[str | None, ...]
    kernel: tuple[str | None, ...]
    count: Int64Array
    total_ps: Int64Array
    self_ps: Int64Array
    mean_ps: Int64Array
    median_ps: Int64Array
    p95_ps: Int64Array
    share_ratio: npt.NDArray[np.float64]
    bytes: Int64Array


@lru_cache(KEPT_NAMES)
def split_op(text: str) -> tuple[str, str | None]:
    """Name without its replica part, and type, of an op as recorded."""
    name, colon, type_ = text.rpartition(":")
    if not colon or not _TYPE.fullmatch(type_):
        # An op of an XLA program has a name and no type.
        return _without_replica(text), None
    return _without_replica(name), type_


def _without_replica(name: str) -> str:
    if "replica_" in name:
        name = _REPLICA_PART.sub("", name)
    return _UPDATE_PART.sub("update", name) if "update_" in name else name


def op_table(trace: Trace, rows: Int64Array | None = None) -> OpTable:
    """Group the device events at `rows` (all by default), which are in order, by device, class, op and kernel."""
    columns = trace.device_columns
    if rows is None:
        rows = np.arange(columns.count, dtype=np.int64)
    # Device by device: what is made on the way is as large as the events.
    bounds = places(rows, [columns.rows_of(i).start for i in range(len(trace.device_list))])
    return _joined([_of_device(trace, part) for part in np.split(rows, bounds[1:])])


def _joined(tables: Sequence[OpTable]) -> OpTable:
    fields: Iterator[tuple[Any, ...]] = zip(*(astuple(table) for table in tables), strict=True)
    columns: Iterator[Any] = (
        tuple(chain.from_iterable(parts)) if isinstance(parts[0], tuple) else np.concatenate(parts)
        for parts in fields
    )
    return OpTable(*columns)


def _of_device(trace: Trace, rows: Int64Array) -> OpTable:
    """The table of rows that are all of one device."""
    columns = trace.device_columns
    ops, op_id = _by_replica_free_name(trace, columns.op[rows])
    of_replica = rows.size > 0 and trace.device_list[columns.device[rows[0]]].kind == "replica"
    kernel = np.where(of_replica, NONE, columns.name[rows]).astype(np.int64)
    duration = columns.duration_ps[rows]
    group = _groups(
        columns.device[rows].astype(np.int64), columns.class_[rows].astype(np.int64), op_id, kernel
    )
    order = order_by(group, duration)
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    count = np.diff(np.append(first, rows.size))
    leader = order[first]
    in_order = duration[order]
    total = _sums(in_order, first)
    size = columns.bytes[rows][order]
    known_bytes = _sums(np.where(size == UNKNOWN_BYTES, 0, size), first)
    has_bytes = _sums((size != UNKNOWN_BYTES).astype(np.int64), first) > 0
    self_time = _self_times(trace, rows)[order]
    lower, upper = in_order[first + (count - 1) // 2], in_order[first + count // 2]
    device, class_ = columns.device[rows][leader], columns.class_[rows][leader]
    rank = np.lexsort((leader, -total, device))
    names = [ops[int(i)] for i in op_id[leader][rank]]
    return OpTable(
        device=device[rank],
        class_=class_[rank],
        name=tuple(name for name, _ in names),
        type=tuple(type_ for _, type_ in names),
        kernel=tuple(trace.names.text(int(i)) for i in kernel[leader][rank]),
        count=count[rank],
        total_ps=total[rank],
        self_ps=_sums(self_time, first)[rank],
        mean_ps=(total // np.maximum(count, 1))[rank],
        median_ps=(lower + (upper - lower) // 2)[rank],
        p95_ps=in_order[first + (19 * count + 19) // 20 - 1][rank],
        share_ratio=_shares(trace, rows, device, class_, total)[rank],
        bytes=np.where(has_bytes, known_bytes, UNKNOWN_BYTES)[rank],
    )


def _groups(*keys: Int64Array) -> Int64Array:
    """One number per combination of keys, each of which is at least `NONE`."""
    group = np.zeros(keys[0].size, dtype=np.int64)
    span = 1
    for key in keys:
        width = int(key.max(initial=NONE)) + 2
        if span * width >= 1 << 62:
            values, group = unique_inverse(group)
            span = int(values.size)
        group = group * width + key + 1
        span *= width
    return group


def _by_replica_free_name(
    trace: Trace, op: Int32Array
) -> tuple[list[tuple[str | None, str | None]], Int64Array]:
    recorded, index = unique_inverse(op.astype(np.int64) + 1)
    ids: dict[tuple[str | None, str | None], int] = {}
    id_of_recorded = np.empty(recorded.size, dtype=np.int64)
    for place, name in enumerate(recorded.tolist()):
        text = trace.names.text(name - 1)
        id_of_recorded[place] = ids.setdefault(
            (None, None) if text is None else split_op(text), len(ids)
        )
    return list(ids), id_of_recorded[index]


def _sums(values: Int64Array, first: Int64Array) -> Int64Array:
    if first.size == 0:
        return np.empty(0, dtype=np.int64)
    result: Int64Array = np.add.reduceat(values, first)
    return result


def _self_times(trace: Trace, rows: Int64Array) -> Int64Array:
    """Duration of each row without the events that are nested directly inside it on the same line.

    On the streams of a GPU no event is nested: kernels that overlap there run concurrently.
    """
    columns = trace.device_columns
    self_time = columns.duration_ps[rows].copy()
    if rows.size == 0 or trace.device_list[columns.device[rows[0]]].kind == "gpu":
        return self_time
    line, start, end = columns.line[rows], columns.start_ps[rows], columns.end_ps[rows]
    for number in unique_ids(line):
        on_line = np.flatnonzero(line == number)
        parent = nesting(start[on_line], end[on_line]).parent
        inner = on_line[parent != NONE]
        outer = on_line[parent[parent != NONE]]
        np.subtract.at(self_time, outer, np.minimum(end[inner], end[outer]) - start[inner])
    return np.maximum(self_time, 0)


def _shares(
    trace: Trace,
    rows: Int64Array,
    device: npt.NDArray[np.int16],
    class_: npt.NDArray[np.uint8],
    total: Int64Array,
) -> npt.NDArray[np.float64]:
    columns = trace.device_columns
    share = np.full(total.size, np.nan)
    is_compute: BoolArray = columns.class_[rows] == 0
    for number in unique_ids(device):
        kernels = rows[is_compute & (columns.device[rows] == number)]
        compute_ps = union(columns.start_ps[kernels], columns.end_ps[kernels]).length
        if compute_ps:
            groups = (device == number) & (class_ == 0)
            share[groups] = total[groups] / compute_ps
    return share
