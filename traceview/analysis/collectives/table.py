"""Which collective took which device how long? One row per collective and device, for a spreadsheet."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from traceview.analysis.selection import Selection, rows_in
from traceview.trace.collectives import CollectiveKind, Collectives
from traceview.trace.model import NONE, UNKNOWN_BYTES, Trace
from traceview.trace.ops import split_op


@dataclass(frozen=True)
class CollectiveRow:
    """One device in one collective; rows of one collective have its number.

    `kind`: all_reduce, all_gather …; `op`: what asked for it, without its replica part; `name`: its kernel.
    `step`: in which the device starts. `transfer_ps`: the shortest duration over the devices, `wait_ps`: what this one
    was in it longer; None where a device is missing. `is_last`: all are recorded, and it came last. `matched_by`:
    keys or order. `bytes`: of the whole collective, None where not recorded.
    """

    collective: int
    kind: str
    op: str | None
    name: str
    host: str
    device: str
    step: int | None
    start_ps: int
    duration_ps: int
    transfer_ps: int | None
    wait_ps: int | None
    is_last: bool
    device_count: int
    matched_by: str
    bytes: int | None


def collective_table(
    trace: Trace,
    selection: Selection,
    found: Collectives,
    devices: Collection[str],
    top: int | None = None,
) -> tuple[list[CollectiveRow], int]:
    """The rows of the collectives that overlap the window, and how many others there are.

    `devices`: keys of those to show. `top`: only so many collectives, those with the longest waiting first;
    without it all in the order in which they began.
    """
    columns = trace.device_columns
    inside = np.zeros(found.row.size, dtype=np.bool_)
    host_of = np.array([device.host for device in trace.device_list], dtype=np.int64)[found.device]
    for host, window in selection.windows.items():
        mine = np.flatnonzero(host_of == host)
        events = found.row[mine]
        inside[mine[rows_in(columns.start_ps[events], columns.end_ps[events], window)]] = True
    shown = np.unique(found.collective[inside])
    row_count = int(np.count_nonzero(np.isin(found.collective, shown)))
    if top is not None and shown.size > top:
        longest = np.zeros(found.count, dtype=np.int64)
        np.maximum.at(longest, found.collective, found.wait_ps)
        longest[~found.is_complete] = -1
        shown = shown[np.argsort(-longest[shown], kind="stable")[:top]]
    keys = [trace.device_key(index) for index in range(len(trace.device_list))]
    rows_of = np.split(np.arange(found.row.size), found.first[1:])
    rows = [
        _row(trace, found, row, keys, is_last=bool(found.is_last[row]))
        for number in shown.tolist()
        for row in rows_of[number].tolist()
        if keys[found.device[row]] in devices
    ]
    return rows, row_count - len(rows)


def _row(
    trace: Trace, found: Collectives, row: int, keys: list[str], *, is_last: bool
) -> CollectiveRow:
    number, device = int(found.collective[row]), int(found.device[row])
    is_complete = bool(found.is_complete[number])
    op, size = trace.names.text(int(found.op[row])), int(found.bytes_moved[number])
    return CollectiveRow(
        collective=number,
        kind=CollectiveKind(int(found.kind[row])).name.lower(),
        op=None if op is None else split_op(op)[0],
        name=trace.names.text(int(found.name[row])) or "",
        host=trace.hosts[trace.device_list[device].host].name,
        device=keys[device],
        step=None if found.step[row] == NONE else int(found.step[row]),
        start_ps=int(found.start_ps[row]),
        duration_ps=int(found.duration_ps[row]),
        transfer_ps=int(found.transfer_ps[number]) if is_complete else None,
        wait_ps=int(found.wait_ps[row]) if is_complete else None,
        is_last=is_last,
        device_count=int(found.device_count[number]),
        matched_by="keys" if found.by_keys[row] else "order",
        bytes=None if size == UNKNOWN_BYTES else size,
    )
