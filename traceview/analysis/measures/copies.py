"""Finds copies that a thread of the host waited for, and ops on the CPU whose data is copied to the host and back.

A tracer need not record that a thread waits. A thread waited for a copy if its call lasts until the end of the copy,
or if it begins and ends no event between the two. A thread that leaves the op which issued the copy went on.

TensorFlow does not record what an op waited for. The evidence for a round trip is a sequence of three events: a copy from
the GPU ends, an op runs on the host, and a copy to the same GPU brings the result of this op. The transfer carries the
name of the op: `X/_12:_Recv`, or `edge_12_X`.

      copy from the GPU   ▕ A/_5 ▏
      op on the host               ▕ X:Where ▏
      copy to the GPU                          ▕ X/_12 ▏
                                  ≤ 1 ms      ≤ 1 ms
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.base.ids import groups_of, unique_ids
from traceview.base.intervals import BoolArray, Int64Array, union
from traceview.base.record import Count, OpName, OpType, Picoseconds, Record, ThreadName
from traceview.base.units import PS_PER_MS, PS_PER_US
from traceview.trace.device.copies import Copies
from traceview.trace.device.op_names import split_op
from traceview.trace.model import NONE, UNKNOWN_BYTES, Trace
from traceview.xplane.host_names import op_type
from traceview.xplane.planes import ActivityClass

SHORTEST_WAIT_PS: Final = 20 * PS_PER_US
"""A copy that ends sooner after its call is over before a thread can do anything else."""

HANDOVER_PS: Final = PS_PER_MS
"""An event that begins later than this after the one before may have waited for something else; our own choice."""

_TRANSFER: Final = re.compile(
    rb"edge_\d+_(?P<edge>[^:]+)(?::\w+)?|(?P<node>[^:]+?)(?:/_\d+)?:_(?:Host)?(?:Send|Recv)"
)
_WITHOUT_INPUT: Final = re.compile(
    rb"_(?:Host)?(?:Send|Recv)|_Arg|Const|Placeholder\w*|(?=\w*Iterator)\w+|Optional\w*"
)
"""Types of ops that take no tensor from a GPU: transfers themselves, constants, and ops that read a dataset."""


# Copies that a thread waited for


class BlockingReads(Record, frozen=True):
    """Copies from one device that a thread waited for.

    Attributes:
        count: Such copies.
        wait_ps: Time in which a thread waited, as a union, picoseconds.
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
    thread_of_line = trace.thread_of_line if rows.size else np.empty(0, dtype=np.int32)
    for waiting in unique_ids(thread):
        own = np.flatnonzero(thread == waiting)
        lines = np.flatnonzero(thread_of_line == waiting)
        waited[own] = _did_nothing(trace, lines, host.end_ps[call[own]], device.end_ps[rows[own]])
    rows, call = rows[waited], call[waited]
    result = {}
    for index in unique_ids(device.device[rows]).tolist():
        own = np.flatnonzero(device.device[rows] == index)
        waits = union(host.start_ps[call[own]], device.end_ps[rows[own]])
        result[index] = BlockingReads(int(own.size), waits.length)
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
        # Nothing begins in these spans, so they overlap only where one event contains several calls.
        end = np.sort(np.concatenate([host.end_ps[rows] for rows in slices]))
        left = np.searchsorted(end, since[open_], side="right")
        idle[open_] = left >= np.searchsorted(end, until[open_])
    return idle


# Round trips


class RoundTrip(Record, frozen=True):
    """An op on the CPU between a copy from the GPU and one back to it.

    Attributes:
        op: Name of the op on the CPU without its replica part.
        op_type: Its type; null if not recorded.
        thread: Name of the thread that ran it.
        d2h_op: What the copy to the host was issued for; null if not recorded.
        h2d_op: What the copy back was issued for.
        count: How often it happened.
        bytes: Bytes of both copies; null where a size is not recorded.
        total_ps: Sum of the times from the start of the first copy to the end of the second, picoseconds.
    """

    op: OpName
    op_type: OpType | None
    thread: ThreadName
    d2h_op: OpName | None
    h2d_op: OpName
    count: Count
    bytes: Count | None
    total_ps: Picoseconds


class _Trips(Struct, frozen=True, eq=False):
    """One entry per trip: rows of the device columns and of the host columns, and the copies' ops."""

    to_host: Int64Array
    op: Int64Array
    to_device: Int64Array
    d2h_op: Int64Array
    h2d_op: Int64Array


def round_trips(trace: Trace, copies: Copies) -> dict[int, tuple[RoundTrip, ...]]:
    """The round trips among `copies` by device index, the longest of each device first."""
    trips = _trips(trace, copies)
    if trips is None:
        return {}
    device, host = trace.device_columns, trace.host_columns
    result: dict[int, list[RoundTrip]] = {}
    for members in groups_of(
        device.device[trips.to_device], host.name[trips.op], trips.d2h_op, trips.h2d_op
    ):
        of_device = int(device.device[trips.to_device[members[0]]])
        result.setdefault(of_device, []).append(_round_trip(trace, trips, members))
    return {
        index: tuple(sorted(of_device, key=lambda trip: (-trip.total_ps, trip.op)))
        for index, of_device in result.items()
    }


def _round_trip(trace: Trace, trips: _Trips, members: Int64Array) -> RoundTrip:
    device, host = trace.device_columns, trace.host_columns
    first = members[0]
    op = int(trips.op[first])
    name, type_ = split_op(trace.names.text(int(host.name[op])) or "")
    sizes = device.bytes[np.concatenate((trips.to_host[members], trips.to_device[members]))]
    lasted = device.end_ps[trips.to_device[members]] - device.start_ps[trips.to_host[members]]
    return RoundTrip(
        op=name,
        op_type=type_,
        thread=trace.lines[int(host.line[op])].name,
        d2h_op=trace.names.text(int(trips.d2h_op[first])),
        h2d_op=trace.names.text(int(trips.h2d_op[first])) or "",
        count=int(members.size),
        bytes=None if (sizes == UNKNOWN_BYTES).any() else int(sizes.sum()),
        total_ps=int(lasted.sum()),
    )


def copied_results(trace: Trace, copies: Copies) -> Int64Array:
    """The copies to a GPU that bring the result of an op on the CPU, as rows of the device columns."""
    return _results(trace, copies).to_device


class _Results(Struct, frozen=True, eq=False):
    """Copies to a GPU and the host rows of the ops whose results they bring; `h2d_op`: the op of each copy."""

    to_device: Int64Array
    op: Int64Array
    h2d_op: Int64Array


def _results(trace: Trace, copies: Copies) -> _Results:
    device, host = trace.device_columns, trace.host_columns
    up = device.class_[copies.row] == ActivityClass.H2D
    numbers, number_of_name = _sources(trace, copies.op[up])
    if not numbers:
        nothing = np.empty(0, dtype=np.int64)
        return _Results(nothing, nothing, nothing)
    source = np.append(number_of_name, NONE)[copies.op]
    up &= source != NONE
    ops, op_number = _runs(trace, numbers)
    to_device = copies.row[up]
    launch = device.launch[to_device]
    issued = np.where(
        launch == NONE, device.start_ps[to_device], np.append(host.start_ps, 0)[launch]
    )
    of_host = trace.host_of_device[device.device[to_device]]
    at = _latest(
        op_number * len(trace.hosts) + host.host[ops],
        host.end_ps[ops],
        source[up] * len(trace.hosts) + of_host,
        issued,
    )
    with_op = np.flatnonzero(at != NONE)
    with_op = with_op[issued[with_op] - host.end_ps[ops[at[with_op]]] <= HANDOVER_PS]
    return _Results(to_device[with_op], ops[at[with_op]], copies.op[up][with_op].astype(np.int64))


def _trips(trace: Trace, copies: Copies) -> _Trips | None:
    device, host = trace.device_columns, trace.host_columns
    down = device.class_[copies.row] == ActivityClass.D2H
    results = _results(trace, copies)
    to_host = copies.row[down]
    if not results.op.size or not to_host.size:
        return None
    before = _latest(
        device.device[to_host].astype(np.int64),
        device.end_ps[to_host],
        device.device[results.to_device].astype(np.int64),
        host.start_ps[results.op],
    )
    whole = np.flatnonzero(before != NONE)
    waited = host.start_ps[results.op[whole]] - device.end_ps[to_host[before[whole]]]
    whole = whole[waited <= HANDOVER_PS]
    if whole.size == 0:
        return None
    return _Trips(
        to_host=to_host[before[whole]],
        op=results.op[whole],
        to_device=results.to_device[whole],
        d2h_op=copies.op[down][before[whole]].astype(np.int64),
        h2d_op=results.h2d_op[whole],
    )


def _sources(trace: Trace, ops: Int64Array) -> tuple[dict[bytes, int], Int64Array]:
    """The ops whose results these transfers bring, numbered, and the number for each name of the trace."""
    numbers: dict[bytes, int] = {}
    number_of_name = np.full(len(trace.names), NONE, dtype=np.int64)
    for name in unique_ids(ops[ops != NONE]).tolist():
        transfer = _TRANSFER.fullmatch(trace.names[name])
        if transfer:
            source = transfer["edge"] or transfer["node"]
            number_of_name[name] = numbers.setdefault(source, len(numbers))
    return numbers, number_of_name


def _runs(trace: Trace, numbers: dict[bytes, int]) -> tuple[Int64Array, Int64Array]:
    """Host rows on which one of these ops ran, and its number."""
    number_of_name = np.full(len(trace.names), NONE, dtype=np.int64)
    for name, text in enumerate(trace.names):
        number = numbers.get(text.rpartition(b":")[0])
        type_ = None if number is None else op_type(text)
        if number is not None and type_ is not None and not _WITHOUT_INPUT.fullmatch(type_):
            number_of_name[name] = number
    number_of_row = number_of_name[trace.host_columns.name]
    rows = np.flatnonzero(number_of_row != NONE)
    return rows, number_of_row[rows]


def _latest(key: Int64Array, time: Int64Array, of_key: Int64Array, until: Int64Array) -> Int64Array:
    """For each query the entry of the same key with the latest `time` up to `until`; `NONE` without."""
    is_query = np.repeat([False, True], (key.size, of_key.size))
    keys, times = np.concatenate((key, of_key)), np.concatenate((time, until))
    order = np.lexsort((is_query, times, keys))
    place = np.where(is_query[order], -1, np.arange(order.size))
    last = np.maximum.accumulate(place) if order.size else place
    latest = np.append(order, NONE)[last]
    same = (latest != NONE) & (np.append(keys, NONE)[latest] == keys[order])
    result = np.empty(order.size, dtype=np.int64)
    result[order] = np.where(same, latest, NONE)
    return result[key.size :]
