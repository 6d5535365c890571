"""Measures the ops of a step that run one by one on the CPU, outside of any graph.

Such an op is an `EagerKernelExecute` with no graph in it (TensorFlow 2.21). Neither its device nor its replica is
recorded, so that on a host without GPUs its time looks like idle time of the replicas.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.launches.eager_scopes import EAGER, GRAPH
from traceview.analysis.selection import Selection, step_bounds
from traceview.ids import unique_counts, unique_ids
from traceview.intervals import BoolArray, Int64Array, IntervalSet, union
from traceview.robust import median_ps
from traceview.trace.model import Trace

SHOWN_TYPES: Final = 3
"""Types of ops, the most frequent ones: enough to find the code that calls them."""
_CALL: Final = b"EagerLocalExecute: "


class EagerOps(Struct, frozen=True, eq=False):
    """`count_per_step`: median over the used steps. `spans`: when a thread runs such an op.

    `ps_of_steps` `[steps]`: how long that is.

    `types`: the types of ops, the most frequent first.
    """

    count_per_step: int
    spans: IntervalSet
    ps_of_steps: Int64Array
    types: tuple[str, ...]


def eager_ops(trace: Trace, selection: Selection, host: int) -> EagerOps | None:
    """The eager ops of one host; None without steps or without such ops."""
    columns = trace.host_columns
    rows = np.flatnonzero(trace.names.matching(columns.name, [EAGER]) & (columns.host == host))
    rows = rows[~_holds_graph(trace, rows)]
    return _measured(trace, selection, host, rows, _calls(trace, host))


def eager_calls(
    trace: Trace, selection: Selection, host: int, within: IntervalSet
) -> EagerOps | None:
    """The ops of one host that Python begins within these spans, each from its call to its return; None without any."""
    columns = trace.host_columns
    rows = _calls(trace, host)
    last = np.searchsorted(within.start, columns.start_ps[rows], side="right") - 1
    rows = rows[(last >= 0) & (columns.start_ps[rows] < within.end[last])]
    rows = rows[~_holds_graph(trace, rows)]
    return _measured(trace, selection, host, rows, rows)


def _measured(
    trace: Trace, selection: Selection, host: int, rows: Int64Array, calls: Int64Array
) -> EagerOps | None:
    """How many of these events there are per step, and when; their types are those of `calls`."""
    steps, columns = selection.used_of(host), trace.host_columns
    if not steps or rows.size == 0:
        return None
    start, end = step_bounds(steps)
    begun = np.sort(columns.start_ps[rows])
    count = np.searchsorted(begun, end) - np.searchsorted(begun, start)
    spans = union(columns.start_ps[rows], columns.end_ps[rows])
    types = _most_frequent(trace, calls)
    return EagerOps(median_ps(count) or 0, spans, spans.within(start, end), types)


def _holds_graph(trace: Trace, rows: Int64Array) -> BoolArray:
    """Whether a graph starts below each of these ops: then it is the call of a `tf.function`."""
    columns = trace.host_columns
    is_graph = trace.names.matching(columns.name, GRAPH)
    result = np.zeros(rows.size, dtype=np.bool_)
    for line in unique_ids(columns.line[rows]).tolist():
        at_line = np.flatnonzero(columns.line[rows] == line)
        whole = columns.rows_of(line)
        graphs = np.sort(columns.start_ps[whole][is_graph[whole]])
        first = np.searchsorted(graphs, columns.start_ps[rows[at_line]])
        result[at_line] = np.searchsorted(graphs, columns.end_ps[rows[at_line]]) > first
    return result


def _calls(trace: Trace, host: int) -> Int64Array:
    """The host events in which Python runs an op, or calls a graph."""
    columns = trace.host_columns
    is_call = np.array([name.startswith(_CALL) for name in trace.names], dtype=np.bool_)
    return np.flatnonzero((columns.host == host) & is_call[columns.name])


def _most_frequent(trace: Trace, calls: Int64Array) -> tuple[str, ...]:
    """The types of the ops that these events call, the most frequent first."""
    names, count = unique_counts(trace.host_columns.name[calls])
    frequent = names[np.argsort(-count, kind="stable")[:SHOWN_TYPES]].tolist()
    return tuple((trace.names.text(name) or "").removeprefix(_CALL.decode()) for name in frequent)
