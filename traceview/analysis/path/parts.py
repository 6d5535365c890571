"""Cuts the path into parts: one event, or one cause of one gap, on one device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.analysis.activity import DeviceActivity
from traceview.analysis.context import Context
from traceview.analysis.path.walk import WalkedSpan
from traceview.ids import unique_ids
from traceview.intervals import (
    Int32Array,
    Int64Array,
    IntervalSet,
    overlapping,
    pieces_outside,
    union,
)
from traceview.trace.cause import Cause
from traceview.trace.gap_spans import cause_spans
from traceview.trace.model import NONE, DeviceColumns, Ends
from traceview.xplane.planes import ActivityClass

FIRST_CAUSE: Final = len(ActivityClass)
"""Parts of a lower kind are activity of the class of that number, others are idle with the cause beyond it."""

KIND_COUNT: Final = FIRST_CAUSE + len(Cause)


class Parts(Struct, frozen=True, eq=False):
    """Parts of the path in time order within each step; all arrays `[n]`.

    int32 `step`: the number of the walk. int16 `device`; int64 `start_ps`, `duration_ps`; uint8 `kind`, see `FIRST_CAUSE`.
    int32 `row`: the device event, `NONE` for idle time; int32 `gap`: the number of the gap, `NONE` for activity and where
    the path is lost.
    """

    step: Int32Array
    device: npt.NDArray[np.int16]
    start_ps: Int64Array
    duration_ps: Int64Array
    kind: npt.NDArray[np.uint8]
    row: Int32Array
    gap: Int32Array

    @property
    def end_ps(self) -> Ends:
        """Exclusive end of each part, int64 picoseconds."""
        return Ends(self.start_ps, self.duration_ps)


_Columns = tuple[Int64Array, Int64Array, npt.NDArray[np.uint8], Int32Array, Int32Array]
"""Start, end, kind, row and gap."""


def parts_of(context: Context, walks: Sequence[Sequence[WalkedSpan]]) -> Parts:
    """The parts of each walk."""
    spans = [(step, *span) for step, walk in enumerate(walks) for span in walk]
    table = np.array(spans, dtype=np.int64).reshape(-1, 5)
    is_lost = table[:, 4].astype(np.bool_)
    found = [_lost(table[is_lost])]
    followed = table[~is_lost]
    for device in unique_ids(followed[:, 1]).tolist():
        rows = followed[followed[:, 1] == device]
        found.append(_on_device(context, device, rows[:, 0], rows[:, 2], rows[:, 3]))

    def whole(name: str) -> npt.NDArray[Any]:
        return np.concatenate([getattr(part, name) for part in found])

    order = np.lexsort((whole("start_ps"), whole("step")))
    # One column after the other, for all of them unsorted would be as much again.
    return Parts(*(whole(name)[order] for name in Parts.__struct_fields__))


def _lost(spans: Int64Array) -> Parts:
    """The spans that wait for a device that cannot be followed."""
    nothing = np.full(len(spans), NONE, dtype=np.int32)
    return Parts(
        spans[:, 0].astype(np.int32),
        spans[:, 1].astype(np.int16),
        spans[:, 2],
        spans[:, 3] - spans[:, 2],
        np.full(len(spans), FIRST_CAUSE + Cause.PEER, dtype=np.uint8),
        nothing,
        nothing,
    )


def _on_device(
    context: Context, device: int, step: Int64Array, start: Int64Array, end: Int64Array
) -> Parts:
    """The parts of spans of one device."""
    near = union(start, end)
    segments = [*_activity(context, device, near), _idle(context, device, near)]
    begin, finish, kind, row, gap = (
        np.concatenate(column) for column in zip(*segments, strict=True)
    )
    del segments
    order = np.argsort(begin, kind="stable")
    begin, finish, kind, row, gap = (column[order] for column in (begin, finish, kind, row, gap))
    span, place = overlapping(begin, finish, start, end)
    begin, finish = np.maximum(begin[place], start[span]), np.minimum(finish[place], end[span])
    return Parts(
        step[span].astype(np.int32),
        np.full(span.size, device, dtype=np.int16),
        begin,
        finish - begin,
        kind[place],
        row[place],
        gap[place],
    )


def _activity(context: Context, device: int, near: IntervalSet) -> Iterator[_Columns]:
    """What the device does in and around the spans: each instant belongs to the first class, there to the first event."""
    columns, activity = context.trace.device_columns, context.activities[device]
    rows = columns.rows_of(device)
    close = np.flatnonzero(near.within(columns.start_ps[rows], columns.end_ps[rows])) + rows.start
    class_ = columns.class_[close]
    for number in ActivityClass:
        events = close[class_ == number]
        if events.size:
            yield _of_class(columns, activity, number, events)


def _of_class(
    columns: DeviceColumns, activity: DeviceActivity, class_: int, events: Int64Array
) -> _Columns:
    start, end = columns.start_ps[events], columns.end_ps[events]
    reach = np.maximum.accumulate(end)
    start[1:] = np.maximum(start[1:], reach[:-1])
    own = np.flatnonzero(end > start)
    start, end, events = start[own], end[own], events[own]
    if class_ > 0:
        of, start, end = pieces_outside(start, end, activity.up_to(class_ - 1))
        events = events[of]
    kind = np.full(start.size, class_, dtype=np.uint8)
    return start, end, kind, events.astype(np.int32), np.full(start.size, NONE, dtype=np.int32)


def _idle(context: Context, device: int, near: IntervalSet) -> _Columns:
    gaps = context.idle.gaps[device]
    chosen = np.flatnonzero(near.within(*gaps.spans))
    states = context.idle.states[context.trace.device_list[device].host]
    spans = cause_spans(context.trace, gaps, states, chosen)
    kind = spans.cause + np.uint8(FIRST_CAUSE)
    row = np.full(kind.size, NONE, dtype=np.int32)
    return spans.start_ps, spans.end_ps, kind, row, spans.gap.astype(np.int32)
