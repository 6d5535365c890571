"""Finds when a host evaluates or saves between step markers: what devices do then belongs to that."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from traceview.base.ids import is_in
from traceview.base.intervals import BoolArray, Int64Array, IntervalSet, union
from traceview.trace.host.host_states import HostStates
from traceview.trace.model import Trace
from traceview.xplane.host_names import HostNameKind
from traceview.xplane.planes import ActivityClass

MOST_EVALUATIONS_RATIO: Final = 0.5
"""Where more of the spans between markers hold a graph on input than this, the markers do not hold the training."""

_GRAPH: Final = (b"FunctionRun",)
_INPUT: Final = (HostNameKind.INPUT, HostNameKind.ASYNC_INPUT)


class BetweenMarkers(Struct, frozen=True, eq=False):
    """When the caller of a host evaluates between explicit markers, and between which markers it saves or restores.

    It evaluates where it calls a graph between two markers and asks for input there or in that graph. The evaluation ends
    with the last such call, or with what the devices compute after it; what follows, such as the beginning of an epoch,
    comes without an evaluation as well.
    """

    evaluates: IntervalSet
    saves: IntervalSet


def between_markers(trace: Trace, states: HostStates, host: int) -> BetweenMarkers:
    """What the caller of one host does between its markers; in a run without them nothing."""
    markers = states.markers
    start, end = markers.end[:-1], markers.start[1:]
    if not start.size:
        nothing = union(start, end)
        return BetweenMarkers(nothing, nothing)
    rows, columns = states.rows_of_thread(states.caller), trace.host_columns
    kind = states.kind_of(rows)
    graphs = rows[trace.names.matching(columns.name[rows], _GRAPH)]
    saves = _holds(start, end, columns.start_ps[rows[kind == HostNameKind.CHECKPOINT]])
    of_model = states.rows_of_model
    asks = of_model[is_in(states.kind_of(of_model), _INPUT)]
    evaluates = _holds(start, end, columns.start_ps[graphs])
    evaluates &= _holds(start, end, columns.start_ps[asks])
    if evaluates.mean() > MOST_EVALUATIONS_RATIO:
        evaluates[:] = False
    until = start
    if evaluates.any():
        ends = np.concatenate((columns.end_ps[graphs], _ends_of_compute(trace, host)))
        until = np.clip(_last_in(start, end, ends), start, end)
    return BetweenMarkers(
        union(start[evaluates], until[evaluates]), union(start[saves], end[saves])
    )


def _ends_of_compute(trace: Trace, host: int) -> Int64Array:
    """When each kernel of a host ended."""
    columns = trace.device_columns
    rows = trace.device_rows(host)
    is_compute = columns.class_[rows] == ActivityClass.COMPUTE
    result: Int64Array = columns.end_ps[rows][is_compute]
    return result


def _last_in(start: Int64Array, end: Int64Array, moments: Int64Array) -> Int64Array:
    """The last of some moments in each span; the end of the span where there is none."""
    ordered = np.append(np.sort(moments), end.max())
    index = np.searchsorted(ordered[:-1], end, side="right") - 1
    last = np.where(index >= 0, ordered[index], end)
    result: Int64Array = np.where(last > start, last, end)
    return result


def _holds(start: Int64Array, end: Int64Array, moments: Int64Array) -> BoolArray:
    """Whether at least one of the moments lies in each span."""
    ordered = np.sort(moments)
    result: BoolArray = np.searchsorted(ordered, end) > np.searchsorted(ordered, start)
    return result
