"""Sets of instants, with a test whether an instant is in the set."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from tests.oracle.intervals import Interval, union


class Cover:
    """The instants inside any of some intervals."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        self.spans = union(intervals)
        self._starts = [start for start, _ in self.spans]
        self._edges = sorted(edge for span in self.spans for edge in span)

    def holds(self, time: int) -> bool:
        place = bisect_right(self._starts, time) - 1
        return place >= 0 and time < self.spans[place][1]

    def edges(self, start: int, end: int) -> list[int]:
        """Where the cover begins or ends inside a span."""
        return self._edges[bisect_right(self._edges, start) : bisect_left(self._edges, end)]

    def bridged(self, hole: int) -> Cover:
        """The cover with holes of up to `hole` filled."""
        holes = [
            (end, start)
            for (_, end), (start, _) in zip(self.spans, self.spans[1:], strict=False)
            if start - end <= hole
        ]
        return Cover(self.spans + holes)


class Outside(Cover):
    """The instants outside of all intervals of a cover."""

    def holds(self, time: int) -> bool:
        return not super().holds(time)
