"""Deals out the events of a line to rows of a viewer, as few as hold them.

A viewer draws the slices of one track as a stack: each begins and ends inside the one below it. Of two that
overlap only in part Perfetto drops one. Events go, in order of their start, to the first row that can take them: where the
line nests, a row whose innermost open slice ends no earlier; else a free row. Most lines need one row.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

import numpy as np

from traceview.base.intervals import BoolArray, Int64Array, nesting, union

MOST_NESTED_ROWS: Final = 32
"""Beyond so many rows the remaining events are put beside each other: finding a place would take too long."""


def in_drawing_order(start: Int64Array, end: Int64Array) -> Int64Array:
    """Indices by start, the longer first, of equal ones the earlier: what encloses comes before what is inside."""
    return np.lexsort((-end, start)).astype(np.int64)


def rows_beside(start: Int64Array, end: Int64Array) -> Int64Array:
    """The row of each event, int64 from 0, so that those of one row do not overlap; no other split needs fewer rows.

    `start`, `end`: int64 `[n]` in any order, no end before its start.
    """
    row = np.zeros(start.size, dtype=np.int64)
    order = in_drawing_order(start, end)
    order = order[_is_entangled(start[order], end[order])]
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    rows = 0
    places = []
    for begins, ends in zip(start[order].tolist(), end[order].tolist(), strict=True):
        while busy and busy[0][0] <= begins:
            heappush(free, heappop(busy)[1])
        if free:
            place = heappop(free)
        else:
            place, rows = rows, rows + 1
        heappush(busy, (ends, place))
        places.append(place)
    row[order] = places
    return row


def rows_nested(start: Int64Array, end: Int64Array) -> Int64Array:
    """The row of each event, int64 from 0, so that of two in one row that overlap one lies inside the other.

    `start`, `end`: as in `rows_beside`.
    """
    row = np.zeros(start.size, dtype=np.int64)
    order = in_drawing_order(start, end)
    order = order[_is_entangled(start[order], end[order])]
    parent = nesting(start[order], end[order]).parent
    inner = parent >= 0
    sticks_out = np.zeros(order.size, dtype=np.bool_)
    sticks_out[inner] = end[order[inner]] > end[order[parent[inner]]]
    if not sticks_out.any():
        return row
    order = order[_groups_with(sticks_out, start[order], end[order])]
    open_ends: list[list[int]] = []
    left: list[int] = []
    for event, begins, ends in zip(
        order.tolist(), start[order].tolist(), end[order].tolist(), strict=True
    ):
        for place, ends_there in enumerate(open_ends):
            while ends_there and ends_there[-1] <= begins:
                ends_there.pop()
            if not ends_there or ends_there[-1] >= ends:
                ends_there.append(ends)
                row[event] = place
                break
        else:
            if len(open_ends) < MOST_NESTED_ROWS:
                row[event] = len(open_ends)
                open_ends.append([ends])
            else:
                left.append(event)
    if left:
        row[left] = MOST_NESTED_ROWS + rows_beside(start[left], end[left])
    return row


def _is_entangled(start: Int64Array, end: Int64Array) -> BoolArray:
    """Which events, in drawing order, overlap another."""
    reach = np.maximum.accumulate(end)
    overlaps_earlier = np.zeros(start.size, dtype=np.bool_)
    overlaps_earlier[1:] = start[1:] < reach[:-1]
    # Whatever overlaps a later event reaches past the start of the next, as events are sorted.
    overlaps_later = np.zeros(start.size, dtype=np.bool_)
    overlaps_later[:-1] = start[1:] < end[:-1]
    return overlaps_earlier | overlaps_later


def _groups_with(wanted: BoolArray, start: Int64Array, end: Int64Array) -> BoolArray:
    """Which events belong to a stretch of overlapping events of which one is `wanted`."""
    stretches = union(start, end)
    stretch = np.searchsorted(stretches.start, start, side="right")
    has = np.zeros(stretches.start.size + 1, dtype=np.bool_)
    has[stretch[wanted]] = True
    result: BoolArray = has[stretch]
    return result
