"""Sweeps over sorted times with numpy: what `sweeps` does compiled, for installations without a compiler and as its check."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_Int64Array = npt.NDArray[np.int64]


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


def release_free_memory() -> None:
    """Give the memory that was freed back to the system; only compiled code can ask for it."""
