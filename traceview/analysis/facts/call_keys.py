"""Finds when the caller of a graph makes keys for its collectives.

TensorFlow gives each collective of each replica a new key in every call of a graph, and converts it to a tensor in Python
before the graph runs (2.21: `capture_call_time_value`, recorded as `convert_to_tensor`). With 61 collectives on four replicas
that took 7 of the 21 ms of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.run import Run
from traceview.base.ids import unique_ids
from traceview.base.intervals import NEVER, BoolArray, Int64Array, IntervalSet, union
from traceview.ledger.build import cut_at, is_among, recast_rows
from traceview.ledger.columns import IDLE, By, Columns
from traceview.ledger.states import State
from traceview.ledger.table import Ledger
from traceview.trace.host.host_events import LONG_AGO_PS, last_begun
from traceview.trace.model import NONE

MANY_CALLS: Final = 8
"""Collectives of a device in a graph, from which on their keys count; a choice of ours. Gradients come packed, in few."""

_CONVERSION: Final = (b"convert_to_tensor",)
_GRAPH: Final = (b"FunctionRun",)
_CONVERTING: Final = (State.HOST_OPS, State.LAUNCH, State.H2D, State.PYTHON, State.UNKNOWN)
"""What the thread is in that converts, as its events show it: `tf.constant` may prepare a copy."""


def key_changes(context: Run, host: int) -> list[Callable[[Columns], Columns]]:
    """Dispatch in which the caller of a host makes keys has the first collective of the host as its cause."""
    keys = context.once(keys_of_hosts).get(host)
    if keys is None:
        return []
    return [partial(_caused_by_keys, keys=keys)]


def _caused_by_keys(columns: Columns, keys: Keys) -> Columns:
    rows = is_among(columns, _CONVERTING) & (columns.activity == IDLE)
    bounds = np.stack((keys.spans.start, keys.spans.end), axis=1).reshape(-1)
    # Up to an instant inside of a span lies an odd number of these.
    cut, number, passed = cut_at(columns, bounds, rows)
    return recast_rows(cut, rows[number] & (passed % 2 == 1), State.HOST_OPS, (By.OP, keys.op))


def rows_of_keys(context: Run, ledger: Ledger) -> BoolArray:
    """The rows of the ledger in which callers make keys."""
    columns, host_of = ledger.columns, context.trace.host_of_device
    rows = ledger.rows(states=(State.HOST_OPS,)) & (columns.by_kind == By.OP)
    chosen = np.zeros(columns.count, dtype=np.bool_)
    for host, keys in context.once(keys_of_hosts).items():
        own = np.flatnonzero(rows & (columns.by == keys.op) & (host_of[ledger.device] == host))
        # The rows were cut at the bounds of the spans.
        chosen[own] = last_begun(keys.spans, columns.start_ps[own])[1] > columns.start_ps[own]
    return chosen


class Keys(Struct, frozen=True, eq=False):
    """When the caller of a host makes keys, and the op of its first collective."""

    spans: IntervalSet
    op: int


def keys_of_hosts(context: Run) -> dict[int, Keys]:
    """By host, of those whose callers make many."""
    collectives, trace = context.collectives, context.trace
    host_of = trace.host_of_device[collectives.device]
    by_host = np.argsort(host_of, kind="stable")
    found = {}
    # A host without a window has no states.
    for host in context.idle.states:
        first, last = np.searchsorted(host_of, (host, host + 1), sorter=by_host).tolist()
        rows = by_host[first:last]
        least = MANY_CALLS * unique_ids(collectives.device[rows]).size
        begun = np.sort(trace.device_columns.start_ps[collectives.row[rows]])
        spans = _spans(context, host, begun, least)
        if spans.start.size:
            # Collectives come in the order of their starts.
            op, kernel = int(collectives.op[rows[0]]), int(collectives.name[rows[0]])
            found[host] = Keys(spans, kernel if op == NONE else op)
    return found


def _spans(context: Run, host: int, begun_ps: Int64Array, least_count: int) -> IntervalSet:
    """When the caller of a host makes keys: from the first conversion in a call to the last one before its graph.

    Conversions are keys where there is one for each of the collectives, which begin in the graph at `begun_ps`, sorted, and
    not twice as many.
    """
    trace, states = context.trace, context.idle.states[host]
    if begun_ps.size < max(least_count, 1):
        return NEVER
    columns, rows = trace.host_columns, states.by_start(states.caller).rows
    names = columns.name[rows]
    inside = rows[~states.is_marker(rows)]
    calls = union(columns.start_ps[inside], columns.end_ps[inside])
    runs = columns.start_ps[rows[trace.names.matching(names, _GRAPH)]]
    # A call runs a graph on each of its devices.
    called, first_run = np.unique(last_begun(calls, runs)[0], return_index=True)
    runs = runs[first_run]
    conversions = rows[trace.names.matching(names, _CONVERSION)]
    start, end = columns.start_ps[conversions], columns.end_ps[conversions]
    first, after = np.searchsorted(start, called), np.searchsorted(start, runs)
    begun = np.searchsorted(begun_ps, np.append(runs, -LONG_AGO_PS))
    needed, made = begun[1:] - begun[:-1], after - first
    are_keys = (needed >= least_count) & (needed <= made) & (made < 2 * needed)
    return union(start[first[are_keys]], end[after[are_keys] - 1])
