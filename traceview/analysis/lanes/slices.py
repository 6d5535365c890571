"""Merges many events into few slices of a picture without losing a picosecond.

Slices shorter than the resolution that begin in the same stretch of that length are merged. A merged slice holds how
many events it stands for and how much of it they cover, by class, so that sums over a lane stay exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from traceview.base.intervals import BoolArray, Int32Array, Int64Array
from traceview.trace.model import NONE


class Slices(Struct, frozen=True, eq=False):
    """Sorted, disjoint, non-empty spans, all arrays `[n]`.

    int64 `start_ps`, `end_ps`; `class_ps`, int64 `[classes, n]`, what each class covers, at most the length of
    the span in all; int64 `count`, the events that it stands for; int32 `name`, of the longest event.
    """

    start_ps: Int64Array
    end_ps: Int64Array
    class_ps: Int64Array
    count: Int64Array
    name: Int32Array

    def at(self, places: Int64Array) -> Slices:
        """The slices at these places."""
        return Slices(
            self.start_ps[places],
            self.end_ps[places],
            self.class_ps[:, places],
            self.count[places],
            self.name[places],
        )

    @property
    def size(self) -> int:
        """Number of slices."""
        return int(self.start_ps.size)

    def merged(self, resolution_ps: int, origin_ps: int, region: Int64Array) -> Slices:
        """The slices at a resolution; its stretches are counted from `origin_ps`.

        `region`: by slice the number of the region that it starts in; slices of different regions are not merged.
        """
        begins = _begins(self.start_ps, self.end_ps, resolution_ps, origin_ps)
        begins[1:] |= region[1:] != region[:-1]
        first = np.flatnonzero(begins)
        if first.size == self.size:
            return self
        last = np.append(first[1:], self.size) - 1
        longest = _longest(self.end_ps - self.start_ps, first)
        return Slices(
            self.start_ps[first],
            self.end_ps[last],
            np.add.reduceat(self.class_ps, first, axis=1),
            np.add.reduceat(self.count, first),
            self.name[longest],
        )

    def in_detail(
        self, most: int, window_ps: int, origin_ps: int, detailed_ps: Int64Array
    ) -> tuple[Slices, int]:
        """At most about `most` slices, and the resolution outside of the detailed spans.

        `detailed_ps`: ascending starts and ends of disjoint spans whose slices are merged only where three quarters of
        the room do not hold them.
        """
        region = np.searchsorted(detailed_ps, self.start_ps, side="right")
        inside, outside = (
            (self.at(places), region[places])
            for places in (np.flatnonzero(region % 2 == 1), np.flatnonzero(region % 2 == 0))
        )
        if self.size <= most:
            return self, 0
        parts: list[Slices] = []
        coarsest = 0
        for (part, part_region), room in ((inside, most * 3 // 4), (outside, most)):
            left = room - sum(done.size for done in parts)
            resolution = part.resolution_for(max(left, 1), window_ps, origin_ps)
            parts.append(part.merged(resolution, origin_ps, part_region))
            coarsest = max(coarsest, resolution)
        return joined(parts), coarsest

    def resolution_for(self, most: int, window_ps: int, origin_ps: int) -> int:
        """The finest resolution, in steps of a fifth, at which at most `most` slices are left; 0 if all fit."""
        if self.size <= most:
            return 0
        # At this resolution long slices take half of the room at most, and so do stretches with short slices.
        resolution = 2 * window_ps // max(most, 1) + 1
        while resolution > 1:
            finer = resolution * 4 // 5
            begins = _begins(self.start_ps, self.end_ps, finer, origin_ps)
            if np.count_nonzero(begins) > most:
                break
            resolution = finer
        return resolution


def slices_of(
    start: Int64Array, end: Int64Array, class_: Int64Array, name: Int32Array, class_count: int
) -> Slices:
    """Events in the order of their starts, each cut to where no earlier event still runs.

    An event that is hidden as a whole counts with the slice before it. The slices cover what the events cover.
    """
    if start.size == 0:
        return _nothing(class_count)
    reach = np.maximum.accumulate(end)
    begin = start.copy()
    np.maximum(begin[1:], reach[:-1], out=begin[1:])
    kept = np.flatnonzero(end > begin)
    if kept.size == 0:
        return _nothing(class_count)
    # Empty events before the first slice count with it.
    edges = np.concatenate(([0], kept[1:]))
    class_ps = np.zeros((class_count, kept.size), dtype=np.int64)
    class_ps[class_[kept], np.arange(kept.size)] = end[kept] - begin[kept]
    count = np.diff(np.append(edges, start.size))
    return Slices(begin[kept], end[kept], class_ps, count, name[kept])


def joined(parts: Sequence[Slices]) -> Slices:
    """Slices of several parts that lie apart, in time order."""
    start = np.concatenate([part.start_ps for part in parts])
    order = np.argsort(start, kind="stable")
    return Slices(
        start,
        np.concatenate([part.end_ps for part in parts]),
        np.concatenate([part.class_ps for part in parts], axis=1),
        np.concatenate([part.count for part in parts]),
        np.concatenate([part.name for part in parts]),
    ).at(order)


def fair_shares(wanted: Sequence[int], most: int) -> list[int]:
    """Room for each lane: what a lane leaves of its equal share goes to lanes that want more."""
    shares = [0] * len(wanted)
    left = most
    for rank, lane in enumerate(sorted(range(len(wanted)), key=lambda place: wanted[place])):
        shares[lane] = min(wanted[lane], left // (len(wanted) - rank))
        left -= shares[lane]
    return shares


def _begins(start: Int64Array, end: Int64Array, resolution_ps: int, origin_ps: int) -> BoolArray:
    """Which slices are not merged with the slice before them."""
    is_short = end - start < resolution_ps
    begins = np.ones(start.size, dtype=np.bool_)
    if resolution_ps:
        stretch = (start - origin_ps) // resolution_ps
        begins[1:] = ~(is_short[1:] & is_short[:-1] & (stretch[1:] == stretch[:-1]))
    return begins


def _longest(length: Int64Array, first: Int64Array) -> Int64Array:
    """The longest slice of each group, the earliest of equals; `first`: where the groups begin."""
    size = np.diff(np.append(first, length.size))
    is_longest = length == np.repeat(np.maximum.reduceat(length, first), size)
    candidates = np.flatnonzero(is_longest)
    return candidates[np.searchsorted(candidates, first)]


def _nothing(class_count: int) -> Slices:
    empty = np.empty(0, dtype=np.int64)
    no_class = np.empty((class_count, 0), dtype=np.int64)
    return Slices(empty, empty, no_class, empty, np.full(0, NONE, dtype=np.int32))
