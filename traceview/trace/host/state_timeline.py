"""A timeline with one cause at each instant, and the time of each cause in any span."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.ids import is_in, sorted_unique, unique_ids
from traceview.base.intervals import Int64Array, IntervalSet, places, union
from traceview.trace.host.cause import Cause

_FOREVER: Final = 1 << 61
"""Later than any event; twice as much still fits into int64."""
NEVER: Final = union(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
"""No time at all."""
Layer = tuple[Cause, IntervalSet]


class StateTimeline(Struct, frozen=True, eq=False):
    """One cause at each instant of all time, `UNATTRIBUTED` where none is known.

    `start`: int64 `[n]`, start of each stretch; the first begins before all events. `cause`: uint8 `[n]`.
    """

    start: Int64Array
    cause: npt.NDArray[np.uint8]

    def within(self, start: npt.ArrayLike, end: npt.ArrayLike) -> Int64Array:
        """Time in each cause inside each `[start, end)`, int64 `[causes, spans]`; it sums to `end - start`."""
        before, after = (np.asarray(time, dtype=np.int64) for time in (start, end))
        result = np.zeros((len(Cause), before.size), dtype=np.int64)
        first, last = self._stretch(before), self._stretch(after)
        first_part, last_part = before - self.start[first], after - self.start[last]
        lengths = np.diff(self.start)
        for cause in unique_ids(self.cause).tolist():
            elapsed = np.append(0, np.cumsum(np.where(self.cause[:-1] == cause, lengths, 0)))
            result[cause] = elapsed[last] - elapsed[first]
            result[cause] += np.where(self.cause[last] == cause, last_part, 0)
            result[cause] -= np.where(self.cause[first] == cause, first_part, 0)
        return result

    def spans_of(self, causes: Collection[Cause]) -> IntervalSet:
        """When the cause is one of these; the last stretch, after all events, is left out."""
        is_one = is_in(self.cause[:-1], list(causes))
        return union(self.start[:-1][is_one], self.start[1:][is_one])

    def at(self, time: npt.ArrayLike) -> npt.NDArray[np.uint8]:
        """The cause at each instant."""
        return self.cause[self._stretch(np.asarray(time, dtype=np.int64))]

    def _stretch(self, time: Int64Array) -> Int64Array:
        return places(self.start, time, right=True) - 1


def stacked(layers: Sequence[Layer]) -> StateTimeline:
    """The timeline of stacked layers: at each instant the first layer that covers it gives the cause."""
    known = [layer for layer in layers if layer[1].start.size]
    edges = [np.array([-_FOREVER], dtype=np.int64)]
    edges += [edge for _, layer in known for edge in (layer.start, layer.end)]
    start = sorted_unique(np.concatenate(edges))
    cause = np.full(start.size, Cause.UNKNOWN, dtype=np.uint8)
    is_open = np.ones(start.size, dtype=np.bool_)
    for layer_cause, layer in known:
        opened = places(layer.start, start, right=True) - 1
        covered = is_open & (opened >= 0) & (layer.end[np.maximum(opened, 0)] > start)
        cause[covered] = layer_cause
        is_open[covered] = False
    changes = np.flatnonzero(np.append(True, cause[1:] != cause[:-1]))
    return StateTimeline(start[changes], cause[changes])


def without_holes(intervals: IntervalSet, hole_ps: int) -> IntervalSet:
    """The intervals with holes of up to `hole_ps` filled."""
    if intervals.start.size < 2:
        return intervals
    keeps = intervals.start[1:] - intervals.end[:-1] > hole_ps
    return union(intervals.start[np.append(True, keeps)], intervals.end[np.append(keeps, True)])


def joined_spans(parts: Iterable[IntervalSet]) -> IntervalSet:
    """The union of several sets."""
    filled = [part for part in parts if part.start.size]
    if len(filled) < 2:
        return filled[0] if filled else NEVER
    return union(
        np.concatenate([part.start for part in filled]),
        np.concatenate([part.end for part in filled]),
    )


def intersection(first: IntervalSet, second: IntervalSet) -> IntervalSet:
    """The time that both sets cover."""
    if not first.start.size or not second.start.size:
        return NEVER
    edges = sorted_unique(np.concatenate((first.start, first.end, second.start, second.end)))
    start, end = edges[:-1], edges[1:]
    inside = (first.within(start, end) > 0) & (second.within(start, end) > 0)
    return union(start[inside], end[inside])


def complement(intervals: IntervalSet) -> IntervalSet:
    """All time that the intervals do not cover."""
    edges = (
        np.concatenate(([-_FOREVER], intervals.end)),
        np.concatenate((intervals.start, [_FOREVER])),
    )
    return union(*edges)
