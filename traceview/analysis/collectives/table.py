"""Makes the table of collectives: how long each device was in each, and which one came last."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise

import numpy as np

from traceview.analysis.collectives.reduction_path import events_in_windows
from traceview.analysis.selection import Selection
from traceview.document import model as doc
from traceview.ids import is_in, unique_ids
from traceview.trace.collectives import CollectiveKind, Collectives
from traceview.trace.model import NONE, UNKNOWN_BYTES, Trace
from traceview.trace.op_names import split_op
from traceview.trace.table import Table, flags, integers, table, texts


def collective_table(
    trace: Trace,
    selection: Selection,
    collectives: Collectives,
    keys: Collection[str],
    top: int | None = None,
) -> tuple[Table, int]:
    """A row per device in each collective that overlaps the window, and how many rows are left out.

    `keys`: of the devices to show. `top`: only so many collectives, those with the longest waiting first; without it
    all in the order in which they began. `transfer_ps` is the shortest time that a device is in the collective,
    `wait_ps` how much longer this one is; both are missing where a device was not recorded.
    """
    inside = events_in_windows(trace, selection, collectives)
    shown = unique_ids(collectives.collective[inside])
    row_count = int(np.count_nonzero(is_in(collectives.collective, shown)))
    if top is not None and shown.size > top:
        longest = np.zeros(collectives.count, dtype=np.int64)
        np.maximum.at(longest, collectives.collective, collectives.wait_ps)
        longest[~collectives.is_complete] = -1
        shown = shown[np.argsort(-longest[shown], kind="stable")[:top]]
    device_keys = [trace.device_key(index) for index in range(len(trace.device_list))]
    rows_of = np.split(np.arange(collectives.row.size), collectives.first[1:])
    rows = [
        row
        for number in shown.tolist()
        for row in rows_of[number].tolist()
        if device_keys[collectives.device[row]] in keys
    ]
    return _table(trace, collectives, rows, device_keys), row_count - len(rows)


def _table(
    trace: Trace, collectives: Collectives, rows: list[int], device_keys: list[str]
) -> Table:
    number = collectives.collective[rows]
    device = collectives.device[rows].tolist()
    is_complete = collectives.is_complete[number]
    ops = [trace.names.text(op) for op in collectives.op[rows].tolist()]
    transfers, waits = (
        [ps if known else None for ps, known in zip(lengths.tolist(), is_complete, strict=True)]
        for lengths in (collectives.transfer_ps[number], collectives.wait_ps[rows])
    )
    size = collectives.bytes_moved[number].tolist()
    step = collectives.step[rows].tolist()
    return table(
        "collectives",
        integers("collective", number.tolist()),
        texts("kind", [CollectiveKind(k).name.lower() for k in collectives.kind[rows].tolist()]),
        texts("op", [None if op is None else split_op(op)[0] for op in ops]),
        texts("name", [trace.names.text(n) or "" for n in collectives.name[rows].tolist()]),
        texts("host", [trace.hosts[trace.device_list[index].host].name for index in device]),
        texts("device", [device_keys[index] for index in device]),
        integers("step", [None if value == NONE else value for value in step]),
        integers("start_ps", collectives.start_ps[rows].tolist()),
        integers("duration_ps", collectives.duration_ps[rows].tolist()),
        integers("transfer_ps", transfers),
        integers("wait_ps", waits),
        flags("is_last", collectives.is_last[rows].tolist(), is_optional=False),
        integers("device_count", collectives.device_count[number].tolist()),
        texts("matched_by", ["keys" if by else "order" for by in collectives.by_keys[rows]]),
        integers("bytes", [None if value == UNKNOWN_BYTES else value for value in size]),
    )


def collective_rows_section(rows: Table) -> doc.Section | None:
    """The rows, with number and op of each collective in its first one; nothing without any."""
    if not rows.count:
        return None
    return doc.Section(
        "collective-rows",
        "Each collective",
        (
            *doc.table("Each device in each collective", _columns(rows)),
            *doc.remarks("The shortest time that a device is in a collective is its transfer."),
        ),
    )


def _columns(rows: Table) -> Iterator[doc.Column]:
    collectives = rows["collective"]
    is_first = [True, *(before != number for before, number in pairwise(collectives))]
    ops = [op or name for op, name in zip(rows["op"], rows["name"], strict=True)]
    yield doc.words(
        "number",
        [str(n) if f else "" for n, f in zip(collectives, is_first, strict=True)],
        priority=5,
    )
    yield doc.devices("device", rows["device"])
    yield doc.counts("step", rows["step"], priority=3)
    yield doc.times("start", rows["start_ps"], priority=2)
    yield doc.times("duration", rows["duration_ps"])
    yield doc.times("waiting", rows["wait_ps"])
    yield doc.words("", ["last" if last else "" for last in rows["is_last"]])
    yield doc.sizes("size", rows["bytes"], priority=4)
    yield doc.names(
        "op", [op if first else "" for op, first in zip(ops, is_first, strict=True)], priority=1
    )
