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
