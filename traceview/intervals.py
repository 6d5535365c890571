"""How much time do these intervals cover, exactly?

All times are int64; an interval is half-open, `[start, end)`. Everything here is vectorised and exact:
a union is kept as sorted disjoint intervals with the running total of their lengths, so that the covered
time before any instant, and hence inside any window or step, is one binary search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int64Array: TypeAlias = npt.NDArray[np.int64]
Int32Array: TypeAlias = npt.NDArray[np.int32]
BoolArray: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Union:
    """Sorted, disjoint, non-touching, non-empty intervals.

    `start`, `end`: int64 `[n]`. `covered`: int64 `[n + 1]`, `covered[i]` is the length of the first i.
    """

    start: Int64Array
    end: Int64Array
    covered: Int64Array

    @property
    def length(self) -> int:
        """Total covered time."""
        return int(self.covered[-1])

    def before(self, time: npt.ArrayLike) -> Int64Array:
        """Covered time before each of `time`; int64, the shape of `time`."""
        at = np.asarray(time, dtype=np.int64)
        if self.start.size == 0:
            return np.zeros(at.shape, dtype=np.int64)
        opened = np.searchsorted(self.start, at, side="right")
        # The interval opened last may reach past `at`: take that part off again.
        overshoot = self.end[np.maximum(opened - 1, 0)] - at
        overshoot = np.where(opened > 0, np.maximum(overshoot, 0), 0)
        result: Int64Array = self.covered[opened] - overshoot
        return result

    def within(self, start: npt.ArrayLike, end: npt.ArrayLike) -> Int64Array:
        """Covered time inside each `[start, end)`."""
        return self.before(end) - self.before(start)

    def gaps(self, start: int, end: int) -> tuple[Int64Array, Int64Array]:
        """Starts and ends of the maximal uncovered intervals inside `[start, end)`."""
        inside = (self.end > start) & (self.start < end)
        gap_start = np.concatenate(([start], np.minimum(self.end[inside], end)))
        gap_end = np.concatenate((np.maximum(self.start[inside], start), [end]))
        open_gap = gap_end > gap_start
        return gap_start[open_gap].astype(np.int64), gap_end[open_gap].astype(np.int64)


def union(start: Int64Array, end: Int64Array) -> Union:
    """The union of intervals in any order; empty and negative ones cover nothing."""
    positive = end > start
    if not positive.all():
        start, end = start[positive], end[positive]
    if start.size == 0:
        empty = np.empty(0, dtype=np.int64)
        return Union(empty, empty, np.zeros(1, dtype=np.int64))
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    opens = np.empty(start.size, dtype=np.bool_)
    opens[0] = True
    np.greater(start[1:], reach[:-1], out=opens[1:])
    first = np.flatnonzero(opens)
    merged_start = start[first]
    merged_end = reach[np.append(first[1:] - 1, start.size - 1)]
    covered = np.zeros(first.size + 1, dtype=np.int64)
    np.cumsum(merged_end - merged_start, out=covered[1:])
    return Union(merged_start, merged_end, covered)


@dataclass(frozen=True)
class Nesting:
    """Which interval lies inside which, for properly nested intervals.

    `order`: the intervals sorted by start, longer first. `depth`, `start`, `end`: in that order;
    outermost intervals have depth 1. `parent`: index (original numbering) of the innermost enclosing
    interval by original number, -1 for outermost ones.
    """

    order: Int64Array
    start: Int64Array
    end: Int64Array
    depth: Int64Array
    parent: Int64Array

    def innermost(self, time: Int64Array) -> Int64Array:
        """Original number of the innermost interval that contains each instant; -1 where none does."""
        result = np.full(time.shape, -1, dtype=np.int64)
        if self.start.size == 0 or time.size == 0:
            return result
        opened = np.searchsorted(self.start, time, side="right")
        closed = np.searchsorted(np.sort(self.end), time, side="right")
        depth = opened - closed
        for level in range(1, int(depth.max(initial=0)) + 1):
            here = np.flatnonzero(depth == level)
            at_level = np.flatnonzero(self.depth == level)
            if here.size == 0 or at_level.size == 0:
                continue
            last = np.searchsorted(self.start[at_level], time[here], side="right") - 1
            found = at_level[np.maximum(last, 0)]
            inside = (last >= 0) & (self.end[found] > time[here])
            result[here[inside]] = self.order[found[inside]]
        return result


def nesting(start: Int64Array, end: Int64Array) -> Nesting:
    """Nest intervals of one thread; where two overlap only in part, the later one counts as inside.

    Empty intervals take part: they lie inside whatever is open at their start.
    """
    order = np.lexsort((-end, start)).astype(np.int64)
    begin, finish = start[order], end[order]
    count = begin.size
    parent = np.full(count, -1, dtype=np.int64)
    if count == 0:
        return Nesting(order, begin, finish, parent.copy(), parent)
    closed = np.searchsorted(np.sort(finish[finish > begin]), begin, side="right")
    is_open = finish > begin
    opened: Int64Array = np.cumsum(is_open) - is_open
    depth = (opened - closed + 1).astype(np.int64)
    open_at: list[Int64Array] = []
    for level in range(1, int(depth.max()) + 1):
        here = np.flatnonzero(depth == level)
        if level > 1 and here.size:
            above = open_at[-1]
            last = np.searchsorted(above, here, side="left") - 1
            found = above[np.maximum(last, 0)]
            inside = (last >= 0) & (finish[found] > begin[here])
            parent[order[here[inside]]] = order[found[inside]]
        open_at.append(here[is_open[here]])
    return Nesting(order, begin, finish, depth, parent)
