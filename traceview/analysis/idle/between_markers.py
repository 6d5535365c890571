"""Tells steps after whose marker the host saves variables or evaluates: what runs around that belongs to it."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.selection import Selection, step_bounds
from traceview.ids import is_in
from traceview.intervals import BoolArray, Int64Array
from traceview.trace.host_states import HostStates
from traceview.trace.model import Trace
from traceview.xplane.host_names import HostNameKind
from traceview.xplane.planes import ActivityClass

MOST_EVALUATIONS_RATIO: Final = 0.5
"""Where more steps than this share call a graph on input after their marker, the markers do not hold the training."""

_GRAPH: Final = (b"FunctionRun",)
_INPUT: Final = (HostNameKind.INPUT, HostNameKind.ASYNC_INPUT)


class BetweenMarkers(Struct, frozen=True, eq=False):
    """By used step: whether the caller saves or restores between markers, for how long it evaluates there, and what follows.

    It evaluates between two markers if it calls a graph there, and asks for input there or in that graph. The evaluation ends
    with the last such call, or with what the devices compute after it. What follows, such as the beginning of an epoch, comes
    without an evaluation as well.
    """

    is_saving: BoolArray
    evaluation_ps: Int64Array
    after_evaluation_ps: Int64Array


def between_markers(
    trace: Trace, states: HostStates, selection: Selection, host: int
) -> BetweenMarkers:
    """What the caller of one host does between explicit markers; in a run without them nothing."""
    steps, markers = selection.used_of(host), states.markers
    first, last = step_bounds(steps)
    is_saving = np.zeros(len(steps), dtype=np.bool_)
    evaluation_ps, after_ps = np.zeros((2, len(steps)), dtype=np.int64)
    between = BetweenMarkers(is_saving, evaluation_ps, after_ps)
    start, end = markers.end[:-1], markers.start[1:]
    if not steps or not start.size:
        return between
    rows, columns = states.rows_of_thread(states.caller), trace.host_columns
    kind = states.kind_of(rows)
    graphs = rows[trace.names.matching(columns.name[rows], _GRAPH)]
    saves = _holds(start, end, columns.start_ps[rows[kind == HostNameKind.CHECKPOINT]])
    evaluates = _holds(start, end, columns.start_ps[graphs])
    of_model = states.rows_of_model
    asks = of_model[is_in(states.kind_of(of_model), _INPUT)]
    evaluates &= _holds(start, end, columns.start_ps[asks])
    if evaluates.mean() > MOST_EVALUATIONS_RATIO:
        evaluates[:] = False
    evaluated = start
    if evaluates.any():
        ends = np.concatenate((columns.end_ps[graphs], _ends_of_compute(trace, host)))
        evaluated = np.clip(_last_in(start, end, ends), start, end)
    for place in np.flatnonzero(saves | evaluates).tolist():
        of_step = np.minimum(end[place], last) - np.maximum(start[place], first)
        is_saving |= saves[place] & (of_step > 0)
        if evaluates[place]:
            in_it = np.minimum(evaluated[place], last) - np.maximum(start[place], first)
            evaluation_ps += np.maximum(in_it, 0)
            after_ps += np.maximum(of_step, 0) - np.maximum(in_it, 0)
    return between


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
    place = np.searchsorted(ordered[:-1], end, side="right") - 1
    last = np.where(place >= 0, ordered[place], end)
    result: Int64Array = np.where(last > start, last, end)
    return result


def _holds(start: Int64Array, end: Int64Array, moments: Int64Array) -> BoolArray:
    """Whether at least one of the moments lies in each span."""
    ordered = np.sort(moments)
    result: BoolArray = np.searchsorted(ordered, end) > np.searchsorted(ordered, start)
    return result
