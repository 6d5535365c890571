"""Cuts the path into parts: one event, or one cause of one gap, on one device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.activity import DeviceActivity
from traceview.analysis.context import Context
from traceview.analysis.path.walk import WalkedSpan
from traceview.ids import unique_ids
from traceview.intervals import Int64Array, IntervalSet, overlapping, pieces_outside, union
from traceview.trace.cause import Cause
from traceview.trace.gap_spans import cause_spans
from traceview.trace.model import NONE, DeviceColumns
from traceview.xplane.planes import ActivityClass

FIRST_CAUSE: Final = len(ActivityClass)
"""Parts of a lower kind are activity of the class of that number, others are idle with the cause beyond it."""

KIND_COUNT: Final = FIRST_CAUSE + len(Cause)


class Parts(Struct, frozen=True, eq=False, dict=True):
    """Parts of the path in time order within each step; all arrays int64 `[n]`.

    `step`: the number of the walk. `device`; `start_ps`, `end_ps`; `kind`, see `FIRST_CAUSE`. `row`: the device
    event, `NONE` for idle time; `gap`: the number of the gap, `NONE` for activity and where the path is lost.
    """

    step: Int64Array
    device: Int64Array
    start_ps: Int64Array
    end_ps: Int64Array
    kind: Int64Array
    row: Int64Array
    gap: Int64Array

    @cached_property
    def duration_ps(self) -> Int64Array:
        """Length of each part."""
        return self.end_ps - self.start_ps


_Columns = tuple[Int64Array, Int64Array, Int64Array, Int64Array, Int64Array]
"""Start, end, kind, row and gap."""


def parts_of(context: Context, walks: Sequence[Sequence[WalkedSpan]]) -> Parts:
    """The parts of each walk."""
    spans = [(step, *span) for step, walk in enumerate(walks) for span in walk]
    table = np.array(spans, dtype=np.int64).reshape(-1, 5)
    is_lost = table[:, 4].astype(np.bool_)
    lost = table[is_lost]
    nothing = np.full(len(lost), NONE, dtype=np.int64)
    waiting = np.full(len(lost), FIRST_CAUSE + Cause.PEER, dtype=np.int64)
    found = [Parts(lost[:, 0], lost[:, 1], lost[:, 2], lost[:, 3], waiting, nothing, nothing)]
    followed = table[~is_lost]
    for device in unique_ids(followed[:, 1]).tolist():
        rows = followed[followed[:, 1] == device]
        found.append(_on_device(context, device, rows[:, 0], rows[:, 2], rows[:, 3]))
    names = Parts.__struct_fields__
    columns = [np.concatenate([getattr(part, name) for part in found]) for name in names]
    order = np.lexsort((columns[2], columns[0]))
    return Parts(*(column[order] for column in columns))


def _on_device(
    context: Context, device: int, step: Int64Array, start: Int64Array, end: Int64Array
) -> Parts:
    """The parts of spans of one device."""
    near = union(start, end)
    segments = [*_activity(context, device, near), _idle(context, device, near)]
    begin, finish, kind, row, gap = (
        np.concatenate(column) for column in zip(*segments, strict=True)
    )
    order = np.argsort(begin, kind="stable")
    begin, finish, kind, row, gap = (column[order] for column in (begin, finish, kind, row, gap))
    span, place = overlapping(begin, finish, start, end)
    return Parts(
        step[span],
        np.full(span.size, device, dtype=np.int64),
        np.maximum(begin[place], start[span]),
        np.minimum(finish[place], end[span]),
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
    return start, end, np.full_like(start, class_), events, np.full_like(start, NONE)


def _idle(context: Context, device: int, near: IntervalSet) -> _Columns:
    gaps = context.idle.gaps[device]
    chosen = np.flatnonzero(near.within(*gaps.spans))
    states = context.idle.states[context.trace.device_list[device].host]
    spans = cause_spans(context.trace, gaps, states, chosen)
    kind = spans.cause.astype(np.int64) + FIRST_CAUSE
    return spans.start_ps, spans.end_ps, kind, np.full_like(kind, NONE), spans.gap
