"""Finds the op and the thread that issued each copy.

Either the copy itself carries its op, or the call that launched it lies inside an op on its thread. Inside a graph a
transfer between host and GPU is a `_Recv` or `_HostRecv`, named after the op whose result it brings (TensorFlow,
`graph_partition.cc`); an eager transfer is `MakeTensorFromProto` or the like.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceview.base.ids import unique_ids, unique_inverse
from traceview.base.intervals import Int32Array, Int64Array, nesting, places
from traceview.trace.model import NONE, Trace
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
        thread_of_line = trace.thread_of_line
        thread[linked] = thread_of_line[host.line[launch[linked]]]
        nameless = linked[op[linked] == NONE]
        for issuer in unique_ids(thread[nameless]):
            copies = nameless[thread[nameless] == issuer]
            lines = np.flatnonzero(thread_of_line == issuer)
            op[copies] = _ops_around(trace, launch[copies], lines)
    return Copies(row, op, thread)


def _ops_around(trace: Trace, calls: Int64Array, lines: Int64Array) -> Int32Array:
    """The name of the innermost op around each call on the thread with these lines; else `NONE`."""
    host = trace.host_columns
    rows = np.concatenate([np.arange(s.start, s.stop) for s in map(host.rows_of, lines.tolist())])
    times = np.sort(host.start_ps[calls])
    # Sorting only events around one of the calls saves time.
    around = rows[places(times, host.start_ps[rows]) < places(times, host.end_ps[rows])]
    names, index = unique_inverse(host.name[around])
    is_op = np.array([op_type(trace.names[int(i)]) is not None for i in names], dtype=np.bool_)
    around = around[is_op[index]] if names.size else around
    inner = nesting(host.start_ps[around], host.end_ps[around]).innermost(host.start_ps[calls])
    return np.where(inner == NONE, NONE, np.append(host.name[around], NONE)[inner]).astype(np.int32)
