"""Which copies from a device did the host wait for, doing nothing else?

A tracer need not record that a thread waits. A thread whose call lasts until the copy has ended, or that
begins and ends no event between the two, waited for it: `.numpy()`, a metric that is read back. A thread that
leaves the op which issued the copy has gone on.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from traceview.ids import unique_ids
from traceview.intervals import BoolArray, Int64Array, union
from traceview.record import Count, Picoseconds, Record
from traceview.trace.copies import Copies
from traceview.trace.correlation import threads
from traceview.trace.model import NONE, Trace
from traceview.units import PS_PER_US
from traceview.xplane.planes import ActivityClass

SHORTEST_WAIT_PS: Final = 20 * PS_PER_US
"""A copy that ends sooner after its call is over before a thread gets to anything else (METRICS: latency)."""


class BlockingReads(Record, frozen=True):
    """Copies from one device that a thread waited for, and the time in which one did, as a union.

    Attributes:
        count: Such copies.
        wait_ps: Time in which a thread waited, picoseconds.
    """

    count: Count
    wait_ps: Picoseconds


def blocking_reads(trace: Trace, copies: Copies) -> dict[int, BlockingReads]:
    """By device index; devices without such a copy are left out."""
    device, host = trace.device_columns, trace.host_columns
    is_read = (device.class_[copies.row] == ActivityClass.D2H) & (copies.thread != NONE)
    rows, thread = copies.row[is_read], copies.thread[is_read]
    call = device.launch[rows]
    begin, end, copied = host.start_ps[call], host.end_ps[call], device.end_ps[rows]
    long = np.where(end >= copied, copied - begin, copied - end) >= SHORTEST_WAIT_PS
    rows, thread, call = rows[long], thread[long], call[long]
    waited = np.zeros(rows.size, dtype=np.bool_)
    thread_of_line = threads(trace.lines) if rows.size else np.empty(0, dtype=np.int32)
    for one in unique_ids(thread):
        mine = np.flatnonzero(thread == one)
        lines = np.flatnonzero(thread_of_line == one)
        waited[mine] = _did_nothing(
            trace, lines, host.end_ps[call[mine]], device.end_ps[rows[mine]]
        )
    rows, call = rows[waited], call[waited]
    result = {}
    for index in unique_ids(device.device[rows]).tolist():
        mine = np.flatnonzero(device.device[rows] == index)
        waits = union(host.start_ps[call[mine]], device.end_ps[rows[mine]])
        result[index] = BlockingReads(int(mine.size), waits.length)
    return result


def _did_nothing(
    trace: Trace, lines: Int64Array, since: Int64Array, until: Int64Array
) -> BoolArray:
    """Whether a thread with these lines neither began nor ended an event between two moments."""
    host = trace.host_columns
    slices = [host.rows_of(line) for line in lines.tolist()]
    start = np.sort(np.concatenate([host.start_ps[rows] for rows in slices]))
    idle: BoolArray = np.searchsorted(start, since) >= np.searchsorted(start, until)
    open_ = np.flatnonzero(idle)
    if open_.size:
        # Nothing begins in these spans, so they are disjoint but for calls that one event holds together.
        end = np.sort(np.concatenate([host.end_ps[rows] for rows in slices]))
        left = np.searchsorted(end, since[open_], side="right")
        idle[open_] = left >= np.searchsorted(end, until[open_])
    return idle
