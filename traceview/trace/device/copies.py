"""Finds the op and the thread that issued each copy.

Either the copy itself carries its op, or the call that launched it lies inside an op on its thread. Inside a graph a
transfer between host and GPU is a `_Recv` or `_HostRecv`, named after the op whose result it brings (TensorFlow,
`graph_partition.cc`); an eager transfer is `MakeTensorFromProto` or the like.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceview.base.ids import is_in, unique_ids
from traceview.base.intervals import Int32Array, Int64Array, places
from traceview.trace.device.correlation import innermost_value
from traceview.trace.model import NONE, Trace
from traceview.xplane.columns import joined
from traceview.xplane.host_names import op_type
from traceview.xplane.planes import ActivityClass


class Copies(Struct, frozen=True, eq=False):
    """Every copy of a trace, in the order of the device columns; all arrays `[n]`.

    `row`: int64, in the device columns. `op`: int32, index into `Trace.names` of the op as recorded.
    `thread`: int32, index into `Trace.lines` of the thread that issued it. `NONE` where not recorded.
    """

    row: Int64Array
    op: Int32Array
    thread: Int32Array


def copies_of(trace: Trace) -> Copies:
    """The copies of all devices with their ops and threads."""
    columns, host = trace.device_columns, trace.host_columns
    is_copy = (columns.class_ >= ActivityClass.H2D) & (columns.class_ <= ActivityClass.D2D)
    row = np.flatnonzero(is_copy)
    op = columns.op[row]
    launch = columns.launch[row]
    thread = np.full(row.size, NONE, dtype=np.int32)
    linked = np.flatnonzero(launch != NONE)
    if linked.size:
        thread[linked] = trace.thread_of_line[host.line[launch[linked]]]
        nameless = linked[op[linked] == NONE]
        op[nameless] = _ops_around(trace, launch[nameless])
    return Copies(row, op, thread)


def _ops_around(trace: Trace, calls: Int64Array) -> Int32Array:
    """The name of the innermost op around each call on its thread; else `NONE`."""
    host, thread_of_line = trace.host_columns, trace.thread_of_line
    is_near = is_in(thread_of_line, unique_ids(thread_of_line[host.line[calls]]))
    lines = [host.rows_of(line) for line in np.flatnonzero(is_near).tolist()]
    rows = joined([np.arange(own.start, own.stop) for own in lines], np.int64)
    times = np.sort(host.start_ps[calls])
    # Sorting only events around one of the calls saves time.
    around = rows[places(times, host.start_ps[rows]) < places(times, host.end_ps[rows])]
    around = around[trace.names.where(host.name[around], op_type)]
    return innermost_value(calls, around, host.name[around], host, thread_of_line).astype(np.int32)
