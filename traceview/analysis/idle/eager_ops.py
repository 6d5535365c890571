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
    steps = selection.used_of(host)
    columns = trace.host_columns
    rows = np.flatnonzero(trace.names.matching(columns.name, [EAGER]) & (columns.host == host))
    rows = rows[~_holds_graph(trace, rows)]
    if not steps or rows.size == 0:
        return None
    start, end = step_bounds(steps)
    begun = np.sort(columns.start_ps[rows])
    count = np.searchsorted(begun, end) - np.searchsorted(begun, start)
    spans = union(columns.start_ps[rows], columns.end_ps[rows])
    return EagerOps(median_ps(count) or 0, spans, spans.within(start, end), _types(trace, host))


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


def _types(trace: Trace, host: int) -> tuple[str, ...]:
    columns = trace.host_columns
    is_call = np.array([name.startswith(_CALL) for name in trace.names], dtype=np.bool_)
    calls = columns.name[(columns.host == host) & is_call[columns.name]]
    names, count = unique_counts(calls)
    frequent = names[np.argsort(-count, kind="stable")[:SHOWN_TYPES]].tolist()
    return tuple((trace.names.text(name) or "").removeprefix(_CALL.decode()) for name in frequent)
