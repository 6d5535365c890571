"""Groups device events by device, class, op and kernel, with the count and the time of each group.

Copies of one op on several devices share its name. Host ops of a replica have no kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import astuple

from traceview.base.ids import sorted_within, unique_ids, unique_inverse
from traceview.base.intervals import Int32Array, Int64Array, nesting, places, union
from traceview.base.sweeping import SWEEPS
from traceview.trace.columns import NONE, UNKNOWN_BYTES
from traceview.trace.device.op_names import label_lines, op_labels, op_names
from traceview.trace.model import Trace
from traceview.xplane.planes import ActivityClass

_Span: TypeAlias = slice | Int64Array


class OpTable(Struct, frozen=True, eq=False):
    """Grouped device events; every array has one entry per group, sorted by device and falling total.

    int64 `count`, `total_ps` (sum of durations), `self_ps` (total without nested events), `mean_ps`,
    `median_ps` (both rounded down), `p95_ps` (nearest rank), `bytes` (-1 unknown). `name`, `type` and
    `kernel` are None where not recorded, `line` where it is not known, `holds` of what is no fusion. `share_ratio`: total over the device's compute time, for class
    compute only, else NaN.
    """

    device: npt.NDArray[np.int16]
    class_: npt.NDArray[np.uint8]
    name: tuple[str | None, ...]
    type: tuple[str | None, ...]
    kernel: tuple[str | None, ...]
    line: tuple[str | None, ...]
    holds: tuple[str | None, ...]
    count: Int64Array
    total_ps: Int64Array
    self_ps: Int64Array
    mean_ps: Int64Array
    median_ps: Int64Array
    p95_ps: Int64Array
    share_ratio: npt.NDArray[np.float64]
    bytes: Int64Array


def op_table(trace: Trace, rows: Int64Array | None = None) -> OpTable:
    """Group the device events at `rows` (all by default), which are in order, by device, class, op and kernel."""
    columns = trace.device_columns
    if rows is None:
        rows = np.arange(columns.count, dtype=np.int64)
    # Device by device: what is made on the way is as large as the events.
    bounds = places(rows, [columns.rows_of(i).start for i in range(len(trace.device_list))])
    parts = np.split(rows, bounds[1:])
    return _joined([_of_device(trace, part) for part in parts])


def _joined(tables: Sequence[OpTable]) -> OpTable:
    fields: Iterator[tuple[Any, ...]] = zip(*(astuple(table) for table in tables), strict=True)
    columns: Iterator[Any] = (
        tuple(chain.from_iterable(parts)) if isinstance(parts[0], tuple) else np.concatenate(parts)
        for parts in fields
    )
    return OpTable(*columns)


def _of_device(trace: Trace, rows: Int64Array) -> OpTable:
    """The table of rows that are all of one device."""
    columns, span = trace.device_columns, _as_span(rows)
    op, kernel, label, group = _groups(trace, span)
    duration = np.ascontiguousarray(columns.duration_ps[span])
    class_of_row = columns.class_[span]
    size = op.size
    count = np.bincount(group, minlength=size)
    total = SWEEPS.totals(group, duration, size)
    # The shortest event of each group, of several the first.
    leader = SWEEPS.earliest(group, duration, 0, size)
    first = np.cumsum(count) - count
    in_order = sorted_within(group, duration)
    bytes_ = columns.bytes[span]
    is_known = np.flatnonzero(bytes_ != UNKNOWN_BYTES)
    known_bytes = SWEEPS.totals(group[is_known], bytes_[is_known], size)
    has_bytes = np.bincount(group[is_known], minlength=size) > 0
    lower, upper = in_order[first + (count - 1) // 2], in_order[first + count // 2]
    class_ = class_of_row[leader]
    rank = np.lexsort((leader, -total))
    names, lines = trace.once(op_names).ops, trace.once(label_lines)
    ops = [names[place] for place in op[rank].tolist()]
    return OpTable(
        device=columns.device[span][leader][rank],
        class_=class_[rank],
        name=tuple(name for name, _ in ops),
        type=tuple(type_ for _, type_ in ops),
        kernel=tuple(map(trace.names.text, kernel[rank].tolist())),
        line=tuple(lines[place] or None for place in label[rank].tolist()),
        holds=_held(trace, columns.instruction[span][leader][rank]),
        count=count[rank],
        total_ps=total[rank],
        self_ps=SWEEPS.totals(group, _self_times(trace, span), size)[rank],
        mean_ps=(total // np.maximum(count, 1))[rank],
        median_ps=(lower + (upper - lower) // 2)[rank],
        p95_ps=in_order[first + (19 * count + 19) // 20 - 1][rank],
        share_ratio=_shares(trace, span, class_, total)[rank],
        bytes=np.where(has_bytes, known_bytes, UNKNOWN_BYTES)[rank],
    )


def _held(trace: Trace, instructions: Int32Array) -> tuple[str | None, ...]:
    """What fusions run as one: `multiply 2, add`; None for what is none."""
    held = [() if i == NONE else trace.instructions[i].holds for i in instructions.tolist()]
    texts = (
        ", ".join(opcode if count == 1 else f"{opcode} {count}" for opcode, count in of)
        for of in held
    )
    return tuple(text or None for text in texts)


def _as_span(rows: Int64Array) -> _Span:
    """Rows in order, as a slice if none between them is left out: of that no column is copied."""
    if rows.size and rows[-1] - rows[0] == rows.size - 1:
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


def _self_times(trace: Trace, rows: _Span) -> Int64Array:
    """Duration of each row without the events that are nested directly inside it on the same line.

    On the streams of a GPU no event is nested: kernels that overlap there run concurrently.
    """
    columns = trace.device_columns
    self_time = columns.duration_ps[rows].copy()
    if self_time.size == 0 or trace.device_list[columns.device[rows][0]].kind == "gpu":
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
    trace: Trace, rows: _Span, class_: npt.NDArray[np.uint8], total: Int64Array
) -> npt.NDArray[np.float64]:
    """The total of each group of one device over the time in which the device computes, for class compute only."""
    columns = trace.device_columns
    share = np.full(total.size, np.nan)
    computes = np.flatnonzero(columns.class_[rows] == ActivityClass.COMPUTE)
    start, end = columns.start_ps[rows][computes], columns.end_ps[rows][computes]
    compute_ps = union(start, end).length
    if compute_ps:
        groups = class_ == ActivityClass.COMPUTE
        share[groups] = total[groups] / compute_ps
    return share
