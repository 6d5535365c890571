"""Sweeps over columns with numpy: what `sweeps` does compiled, for installations without a compiler and as its check.

`sweeps.pyx` says of each what its arrays hold.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

_Int64Array = npt.NDArray[np.int64]
_BoolArray = npt.NDArray[np.bool_]
_Ids = npt.NDArray[np.integer]


def places(values: _Int64Array, times: _Int64Array, right: bool) -> _Int64Array:
    """`np.searchsorted(values, times, side="right" if right else "left")`; all int64."""
    found = np.searchsorted(values, times, side="right" if right else "left")
    return found.astype(np.int64, copy=False)


def covered_before(start: _Int64Array, covered: _Int64Array, times: _Int64Array) -> _Int64Array:
    """The time before each of `times` that disjoint, sorted intervals cover; `covered`: the running total of lengths."""
    if start.size == 0:
        return np.zeros(times.shape, dtype=np.int64)
    opened = np.searchsorted(start, times, side="right")
    last = np.maximum(opened - 1, 0)
    # Of the interval that began last only the part up to the time counts; what passed since may not fit.
    end = start[last] + covered[last + 1] - covered[last]
    inside = np.minimum(times, end) - start[last]
    return np.where(opened > 0, covered[last] + inside, 0)


def merged(start: _Int64Array, end: _Int64Array) -> tuple[_Int64Array, _Int64Array] | None:
    """The union of intervals sorted by start, as starts and the running total of lengths; None if unsorted."""
    positive = end > start
    if not positive.all():
        start, end = start[positive], end[positive]
    if start.size == 0:
        return np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64)
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
    return merged_start, covered


def last_open(end: _Int64Array, limit: _Int64Array, time: _Int64Array) -> _Int64Array | None:
    """For each query the last index below `limit` whose `end` lies after `time`, -1 without one."""
    if (limit[1:] < limit[:-1]).any() or (time[1:] < time[:-1]).any():
        return None
    result = np.full(limit.shape, -1, dtype=np.int64)
    ends, opened, stack = end.tolist(), 0, list[int]()
    for number, (bound, moment) in enumerate(zip(limit.tolist(), time.tolist(), strict=True)):
        stack += range(opened, bound)
        opened = bound
        while stack and ends[stack[-1]] <= moment:
            stack.pop()
        result[number] = stack[-1] if stack else -1
    return result


def marked(ids: _Ids, least: int, length: int) -> _BoolArray:
    """Which of the numbers from `least` on, `length` of them, are among the ids, all of which they must hold."""
    occurs = np.zeros(length, dtype=np.bool_)
    occurs[ids.astype(np.int64) - least] = True
    return occurs


def are_marked(marks: npt.NDArray[np.uint8], ids: _Ids, least: int) -> _BoolArray:
    """The mark of each id, of which the first mark is that of `least`; False for ids without a mark."""
    number = ids.astype(np.int64)
    has_mark = (number >= least) & (number < least + marks.size)
    found = np.zeros(ids.size, dtype=np.bool_)
    found[has_mark] = marks[number[has_mark] - least]
    return found


def earliest(ids: _Int64Array, time: _Int64Array, least: int, length: int) -> _Int64Array:
    """By id, from `least` on, the index of the earliest event with it, of several the first; -1 without one."""
    first = np.full(length, -1, dtype=np.int64)
    order = np.argsort(time, kind="stable")[::-1]
    # Of equal places the last assignment remains.
    first[ids[order] - least] = order
    return first


def totals(
    places: _Ids, values: _Int64Array, length: int, chosen: npt.NDArray[np.uint8] | None = None
) -> _Int64Array:
    """The sum of the values at each place; int64 `[length]`, modulo 2**64. Places below 0 are left out."""
    total = np.zeros(length, dtype=np.int64)
    counts = places >= 0 if chosen is None else (places >= 0) & (chosen != 0)
    np.add.at(total, places[counts], values[counts])
    return total


def cut(
    start: _Int64Array,
    end: _Int64Array,
    bounds: _Int64Array,
    chosen: npt.NDArray[np.uint8] | None = None,
) -> tuple[_Int64Array, _Int64Array, npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Spans cut at the sorted, distinct bounds inside them: start, end, number of the span, and of the bounds up to its start."""
    first = np.searchsorted(bounds, start, side="right")
    cuts = np.maximum(np.searchsorted(bounds, end) - first, 0)
    if chosen is not None:
        cuts[chosen == 0] = 0
    number = np.repeat(np.arange(start.size), cuts + 1)
    nth = np.arange(number.size) - np.repeat(np.cumsum(cuts + 1) - cuts - 1, cuts + 1)
    place = first[number] + nth
    known = np.append(bounds, 0)
    begin = np.where(nth == 0, start[number], known[place - 1])
    finish = np.where(nth == cuts[number], end[number], known[np.minimum(place, bounds.size)])
    return begin, finish, number.astype(np.int32), place.astype(np.int32)


def layered(
    start: _Int64Array,
    end: _Int64Array,
    begin: _Int64Array,
    bounds: _Int64Array,
    first: int,
    last: int,
) -> tuple[_Int64Array, _Int64Array, npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Spans of several layers in one row of pieces, in time order: start, duration, number of the span, and of bounds up to it."""
    edges = np.unique(np.clip(np.concatenate((start, end, bounds, [first, last])), first, last))
    number = np.full(edges.size, -1, dtype=np.int64)
    for low, high in reversed(list(pairwise(begin.tolist()))):
        place = low - 1 + np.searchsorted(start[low:high], edges, side="right")
        covered = (place >= low) & (np.append(end, 0)[place] > edges)
        number[covered] = place[covered]
    number[-1] = -1
    # Between two edges that are no bounds a span goes on.
    opens = np.append(True, number[1:] != number[:-1])
    opens[np.searchsorted(edges, bounds[(bounds >= first) & (bounds <= last)])] = True
    at = np.flatnonzero(opens)
    duration = np.diff(edges[at], append=edges[-1])
    kept = number[at] >= 0
    at, duration = at[kept], duration[kept]
    place = np.searchsorted(bounds, edges[at], side="right")
    return edges[at], duration, number[at].astype(np.int32), place.astype(np.int32)


def labelled(
    first: npt.NDArray[np.int32], second: npt.NDArray[np.int32], third: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.int32], _Int64Array]:
    """Number the distinct rows of three columns as they first occur: the number of each row, and where each begins."""
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


def release_free_memory() -> None:
    """Give the memory that was freed back to the system; only compiled code can ask for it."""


def share_one_heap() -> None:
    """Let the threads of this process share one heap; only compiled code can ask for it."""
