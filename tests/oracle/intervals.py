"""Sets of picoseconds: lists of half-open intervals, and covers that know whether they hold an instant."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same picoseconds as disjoint intervals in time order; touching ones are joined."""
    result: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return result


def subtract(keep: Iterable[Interval], remove: Iterable[Interval]) -> list[Interval]:
    """The picoseconds that are in `keep` and not in `remove`."""
    holes = union(remove)
    result: list[Interval] = []
    first = 0
    for start, end in union(keep):
        while first < len(holes) and holes[first][1] <= start:
            first += 1
        position = start
        index = first
        while index < len(holes) and holes[index][0] < end:
            if holes[index][0] > position:
                result.append((position, holes[index][0]))
            position = max(position, holes[index][1])
            index += 1
        if position < end:
            result.append((position, end))
    return result


def clip(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """The parts of the intervals inside the window."""
    low, high = window
    cut = [(max(start, low), min(end, high)) for start, end in intervals]
    return [(start, end) for start, end in cut if end > start]


def length(intervals: Iterable[Interval]) -> int:
    """The number of picoseconds, each counted once."""
    return sum(end - start for start, end in union(intervals))


def overlaps(event: Interval, window: Interval) -> bool:
    """Whether an event counts in a window.

    An event of zero length has no inside; it counts if its time lies in [start, end) of the window
    (docs/method.md, "Window").
    """
    start, end = event
    low, high = window
    if start == end:
        return low <= start < high
    return start < high and end > low


def joined(parts: Iterable[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Stretches of time in order, those that follow each other with the same word as one."""
    result: list[tuple[int, int, str]] = []
    for start, end, word in parts:
        if result and result[-1][2] == word:
            start = result.pop()[0]
        result.append((start, end, word))
    return result


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
