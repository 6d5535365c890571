"""Sweeps over columns with numpy: what `sweeps` does compiled, for installations without a compiler and as its check."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

_Int64Array = npt.NDArray[np.int64]
_BoolArray = npt.NDArray[np.bool_]
_Ids = npt.NDArray[np.integer]


def places(values: _Int64Array, times: _Int64Array, right: bool) -> _Int64Array:
    """`np.searchsorted(values, times, side="right" if right else "left")`; all int64."""
    found = np.searchsorted(values, times, side="right" if right else "left")
    return found.astype(np.int64, copy=False)


def covered_before(
    start: _Int64Array, end: _Int64Array, covered: _Int64Array, times: _Int64Array
) -> _Int64Array:
    """The time before each of `times` that disjoint, sorted intervals cover; `covered`: the running total of lengths."""
    if start.size == 0:
        return np.zeros(times.shape, dtype=np.int64)
    opened = np.searchsorted(start, times, side="right")
    # The last opened interval may reach past the time: subtract that part.
    overshoot = end[np.maximum(opened - 1, 0)] - times
    overshoot = np.where(opened > 0, np.maximum(overshoot, 0), 0)
    result: _Int64Array = covered[opened] - overshoot
    return result


def merged(
    start: _Int64Array, end: _Int64Array
) -> tuple[_Int64Array, _Int64Array, _Int64Array] | None:
    """The union of intervals sorted by start, as starts, ends and the running total of lengths; None if unsorted."""
    positive = end > start
    if not positive.all():
        start, end = start[positive], end[positive]
    if start.size == 0:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, np.zeros(1, dtype=np.int64)
    if (start[1:] < start[:-1]).any():
        return None
    reach = np.maximum.accumulate(end)
    opens = np.empty(start.size, dtype=np.bool_)
    opens[0] = True
    np.greater(start[1:], reach[:-1], out=opens[1:])
    first = np.flatnonzero(opens)
    merged_start = start[first]
    merged_end = reach[np.append(first[1:] - 1, start.size - 1)]
    covered = np.zeros(first.size + 1, dtype=np.int64)
    np.cumsum(merged_end - merged_start, out=covered[1:])
    return merged_start, merged_end, covered


def clearest(
    start: _Int64Array,
    end: _Int64Array,
    reach: _Int64Array,
    shows: npt.NDArray[np.uint16],
    span_start: _Int64Array,
    span_end: _Int64Array,
    wanted: npt.NDArray[np.uint16],
    nearly: float,
) -> _Int64Array:
    """The event that covers most of each span, of those that show what is wanted of it; -1 without one.

    `start`, `end`: of events sorted by start; `reach`: the latest end up to each. An event counts for a span if `shows` and
    `wanted` share a bit. Of those that cover `nearly` as much as the one that covers most the shortest counts, of equal
    ones the last begun, of those the first.
    """
    result = np.full(span_start.size, -1, dtype=np.int64)
    first = np.searchsorted(reach, span_start, side="right").tolist()
    last = np.searchsorted(start, span_end, side="left").tolist()
    spans = zip(first, last, span_start.tolist(), span_end.tolist(), wanted.tolist(), strict=True)
    for number, (low, high, begin, finish, bits) in enumerate(spans):
        place = np.arange(low, max(low, high))
        place = place[(end[place] > begin) & (shows[place] & bits != 0)]
        if place.size:
            overlap = np.minimum(end[place], finish) - np.maximum(start[place], begin)
            place = place[overlap >= nearly * overlap.max()]
            order = np.lexsort((-start[place], end[place] - start[place]))
            result[number] = place[order[0]]
    return result


def last_open(end: _Int64Array, limit: _Int64Array, time: _Int64Array) -> _Int64Array | None:
    """For each query the last index below `limit` whose `end` lies after `time`, -1 without one.

    None unless both `limit` and `time` rise or stay from query to query. The search goes up a pyramid of maxima until a block
    has such an end, then down to its last one.
    """
    if (limit[1:] < limit[:-1]).any() or (time[1:] < time[:-1]).any():
        return None
    maxima = [end]
    while maxima[-1].size > 1:
        if maxima[-1].size % 2:
            maxima[-1] = np.append(maxima[-1], np.iinfo(np.int64).min)
        maxima.append(maxima[-1].reshape(-1, 2).max(axis=1))
    result = np.full(limit.shape, -1, dtype=np.int64)
    query = np.flatnonzero(limit > 0)
    bound = limit[query]
    for height, latest in enumerate(maxima):
        is_open = latest[bound - 1] > time[query]
        answered, block = query[is_open], bound[is_open] - 1
        for lower in reversed(maxima[:height]):
            block = 2 * block + 1
            block -= lower[block] <= time[answered]
        result[answered] = block
        query, bound = query[~is_open], bound[~is_open] >> 1
        query, bound = query[bound > 0], bound[bound > 0]
    return result


def overlapping(start: _Int64Array, end: _Int64Array, first: int, last: int) -> _Int64Array:
    """Indices of the events that overlap `[first, last)`; empty events count if they start in it."""
    is_empty = (start == end) & (start >= first)
    return np.flatnonzero((start < last) & ((end > first) | is_empty))


def extent(ids: _Ids) -> tuple[int, int]:
    """The least and the largest of 0 and the ids."""
    return int(ids.min(initial=0)), int(ids.max(initial=0))


def marked(ids: _Ids, least: int, length: int) -> _BoolArray:
    """Which of the numbers from `least` on, `length` of them, are among the ids, all of which they must hold."""
    occurs = np.zeros(length, dtype=np.bool_)
    occurs[ids.astype(np.int64) - least] = True
    return occurs


def are_marked(marks: npt.NDArray[np.uint8], ids: _Ids, least: int) -> _BoolArray:
    """The mark of each id, of which the first mark is that of `least`; False for ids without a mark."""
    place, has_place = _places_in(ids, least, marks.size)
    found = np.zeros(ids.size, dtype=np.bool_)
    found[has_place] = marks[place[has_place]]
    return found


def looked_up(table: _Int64Array, ids: _Ids, least: int, absent: int) -> _Int64Array:
    """The entry of each id, of which the first is that of `least`; `absent` for ids without an entry."""
    place, has_place = _places_in(ids, least, table.size)
    found = np.full(ids.size, absent, dtype=np.int64)
    found[has_place] = table[place[has_place]]
    return found


def _places_in(ids: _Ids, least: int, length: int) -> tuple[_Int64Array, _BoolArray]:
    """The place of each id in a table whose first is that of `least`, and which have one."""
    number = ids.astype(np.int64)
    has_place = (number >= least) & (number - least < length)
    return number - least, has_place


def earliest(ids: _Int64Array, time: _Int64Array, least: int, length: int) -> _Int64Array:
    """By id, from `least` on, the index of the earliest event with it, of several the first; -1 without one."""
    first = np.full(length, -1, dtype=np.int64)
    order = np.argsort(time, kind="stable")[::-1]
    # Of equal places the last assignment remains.
    first[ids[order] - least] = order
    return first


def totals(places: _Int64Array, values: _Int64Array, length: int) -> _Int64Array:
    """The sum of the values at each place; int64 `[length]`, modulo 2**64."""
    total = np.zeros(length, dtype=np.int64)
    np.add.at(total, places, values)
    return total


def labelled(
    first: npt.NDArray[np.int32], second: npt.NDArray[np.int32], third: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.int32], _Int64Array]:
    """Number the distinct rows of three columns as they first occur: the number of each row, and where each begins.

    int32 `[rows]` and int64 `[numbers]`.
    """
    order = np.lexsort((third, second, first))
    begins = np.ones(order.size, dtype=np.bool_)
    begins[1:] = False
    for column in (first, second, third):
        begins[1:] |= column[order[1:]] != column[order[:-1]]
    begin = order[begins]
    by_row = np.argsort(begin)
    number = np.empty(begin.size, dtype=np.int32)
    number[by_row] = np.arange(begin.size)
    label = np.empty(order.size, dtype=np.int32)
    label[order] = number[np.cumsum(begins) - 1]
    return label, begin[by_row].astype(np.int64, copy=False)


def tabulated(
    labels: npt.NDArray[np.int32],
    values: _Int64Array,
    low: _Int64Array,
    high: _Int64Array,
    row_of: _Int64Array,
    column_of: _Int64Array,
    rows: int,
    columns: int,
) -> tuple[_Int64Array, _Int64Array]:
    """The sums and the numbers of the values in spans `[low, high)` of places; int64 `[rows, columns]` each.

    A value counts in the row of its label and in the column of its span; not at all where that row is -1.
    """
    sums, counts = np.zeros((2, rows, columns), dtype=np.int64)
    for begin, end, column in zip(low.tolist(), high.tolist(), column_of.tolist(), strict=True):
        row = row_of[labels[begin:end]]
        np.add.at(sums[:, column], row[row >= 0], values[begin:end][row >= 0])
        np.add.at(counts[:, column], row[row >= 0], 1)
    return sums, counts


def codes_of(values: npt.NDArray[np.object_], known: dict[Any, int]) -> npt.NDArray[np.int32]:
    """The number of each value in `known`, int32; values that are new there get the next numbers."""
    return np.array(
        [known.setdefault(value, len(known)) for value in values.tolist()], dtype=np.int32
    )


def lines_of(
    codes: npt.NDArray[np.int32],
    numbers: _Int64Array,
    cells: npt.NDArray[np.uint8],
    begin: _Int64Array,
) -> bytes:
    """Lines of cells with commas between them, as bytes; `codes` and `numbers` are `[columns, lines]`.

    The cell of a code is `cells[begin[code]:begin[code + 1]]`; where the code is -1, it is the number.
    """
    text, bounds = cells.tobytes(), begin.tolist()
    known = [text[low:high] for low, high in pairwise(bounds)]
    columns = [
        [b"%d" % number if code < 0 else known[code] for code, number in zip(*column, strict=True)]
        for column in zip(codes.tolist(), numbers.tolist(), strict=True)
    ]
    return b"".join(b",".join(line) + b"\n" for line in zip(*columns, strict=True))


def release_free_memory() -> None:
    """Give the memory that was freed back to the system; only compiled code can ask for it."""
