"""Computes, exactly, the time that intervals cover, and how they nest.

All times are int64; an interval is half-open, `[start, end)`. Everything is vectorized and exact. A set of intervals
is sorted, disjoint and has the running total of its lengths, so that the covered time before any instant, and hence
inside any window or step, takes one binary search.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.sweeping import SWEEPS

Int64Array: TypeAlias = npt.NDArray[np.int64]
Int32Array: TypeAlias = npt.NDArray[np.int32]
BoolArray: TypeAlias = npt.NDArray[np.bool_]


class IntervalSet(Struct, frozen=True, eq=False):
    """Sorted, disjoint, non-touching, non-empty intervals.

    `start`: int64 `[n]`. `covered`: int64 `[n + 1]`, `covered[i]` is the length of the first i intervals, which says where
    each ends.
    """

    start: Int64Array
    covered: Int64Array

    @property
    def end(self) -> Int64Array:
        """Where each ends, int64 `[n]`; made anew each time."""
        return self.start + (self.covered[1:] - self.covered[:-1])

    @property
    def length(self) -> int:
        """Total covered time."""
        return int(self.covered[-1])

    def before(self, time: npt.ArrayLike) -> Int64Array:
        """Covered time before each of `time`; int64, the shape of `time`."""
        at = _contiguous(time)
        total: Int64Array = SWEEPS.covered_before(self.start, self.covered, at.reshape(-1))
        return total.reshape(np.shape(time))

    def within(self, start: npt.ArrayLike, end: npt.ArrayLike) -> Int64Array:
        """Covered time inside each `[start, end)`."""
        if not self.start.size:
            return np.zeros(np.broadcast(start, end).shape, dtype=np.int64)
        return self.before(end) - self.before(start)


NEVER: Final = IntervalSet(np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64))
"""No time at all."""


def union(start: Int64Array, end: Int64Array) -> IntervalSet:
    """The union of intervals in any order; empty and negative ones cover nothing."""
    if not start.size:
        return NEVER
    start, end = _contiguous(start), _contiguous(end)
    parts = SWEEPS.merged(start, end)
    if parts is None:
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
        del order
        parts = SWEEPS.merged(start, end)
    return IntervalSet(*parts)


def while_as_many_are_open(count: int | None, start: Int64Array, end: Int64Array) -> IntervalSet:
    """When so many of some spans, int64 `[n]`, are open, or more; never for None or 0."""
    if not count:
        return NEVER
    moments = np.concatenate((start, end))
    order = np.argsort(moments, kind="stable")
    opened = np.cumsum(np.repeat((1, -1), start.size)[order])
    place = np.flatnonzero(opened[:-1] >= count)
    return union(moments[order][place], moments[order][place + 1])


def places(values: Int64Array, times: npt.ArrayLike, *, right: bool = False) -> Int64Array:
    """How many of the sorted `values` lie before each time, or at it too if `right`; int64, as `np.searchsorted`.

    Where the times mostly rise it is several times faster than that.
    """
    at = _contiguous(times)
    found: Int64Array = SWEEPS.places(_contiguous(values), at.reshape(-1), right)
    return found.reshape(np.shape(times))


def largest_between(
    values: Int64Array, first: Int64Array, last: Int64Array, least: int
) -> Int64Array:
    """The largest of the values from each place of `first` up to that of `last`, at least `least`; int64 `[spans]`."""
    bounds = np.stack((first, np.maximum(first, last)), axis=1).reshape(-1)
    largest: Int64Array = np.maximum.reduceat(np.append(values, least), bounds)[::2]
    return np.where(first < last, np.maximum(largest, least), least)


def _contiguous(times: npt.ArrayLike) -> Int64Array:
    return np.ascontiguousarray(times, dtype=np.int64)


def difference(part: IntervalSet, cover: IntervalSet) -> IntervalSet:
    """The time that `part` covers and `cover` does not."""
    return part if not cover.start.size else pieces(part, cover, inside=False)


def pieces(part: IntervalSet, cover: IntervalSet, *, inside: bool) -> IntervalSet:
    """The pieces of `part` that are inside, or outside, of `cover`."""
    bounds = np.stack((cover.start, cover.end), axis=1).reshape(-1)
    start, end, _, passed = SWEEPS.cut(part.start, part.end, bounds)
    # After an odd number of bounds one of the cover is open.
    kept = passed % 2 == inside
    return union(start[kept], end[kept])


def overlapping(start: Int64Array, end: Int64Array, first: int, last: int) -> Int64Array:
    """Indices of the events that overlap `[first, last)`; empty events count if they start in it."""
    is_empty = (start == end) & (start >= first)
    return np.flatnonzero((start < last) & ((end > first) | is_empty))


class Nesting(Struct, frozen=True, eq=False):
    """How intervals nest.

    `order`: the intervals sorted by start, longer first. `start`, `end`: in that order. `parent`: for each interval,
    by original number, the last one opened before it that is still open at its start; -1 for outermost intervals. Of
    two intervals that partly overlap, the later one counts as inside.
    """

    order: Int64Array
    start: Int64Array
    end: Int64Array
    parent: Int64Array

    def innermost(self, time: Int64Array) -> Int64Array:
        """Original number of the last opened interval that contains each instant; -1 where none does."""
        at = _contiguous(time)
        opened = places(self.start, at, right=True)
        return _originals(self.order, _last_open(self.end, opened, at))


def nesting(start: Int64Array, end: Int64Array) -> Nesting:
    """Nest intervals of one thread.

    Empty intervals are inside the interval that is open at their start. Negative intervals count as empty.
    """
    order = np.lexsort((-end, start)).astype(np.int64)
    begin, finish = start[order], end[order]
    parent = np.empty(order.size, dtype=np.int64)
    before = np.arange(order.size, dtype=np.int64)
    parent[order] = _originals(order, _last_open(finish, before, begin))
    return Nesting(order, begin, finish, parent)


_NO_ORDER: Final = np.array([-1], dtype=np.int64)


def _originals(order: Int64Array, place: Int64Array) -> Int64Array:
    return np.concatenate((order, _NO_ORDER))[place]


def _last_open(end: Int64Array, limit: Int64Array, time: Int64Array) -> Int64Array:
    """For each query the last index below `limit` whose `end` lies after `time`; -1 where there is none.

    `limit` must rise with `time`.
    """
    found: Int64Array | None = SWEEPS.last_open(end, limit, time)
    if found is not None:
        return found
    order = np.argsort(time, kind="stable")
    found = np.empty(time.size, dtype=np.int64)
    found[order] = SWEEPS.last_open(end, limit[order], time[order])
    return found
