"""Defines what a viewer of traces shows: processes, tracks and slices, and deals out slices to tracks.

Times are picoseconds since the origin of the run; Perfetto counts in nanoseconds. Both ends of a slice are rounded
down, so that slices stay inside of, or beside, each other.

A viewer draws the slices of one track as a stack: each begins and ends inside the one below it. Of two that
overlap only in part Perfetto drops one. Events go, in order of their start, to the first row that can take them: where the
line nests, a row whose innermost open slice ends no earlier; else a free row. Most lines need one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import Final

import numpy as np

from traceview.base.intervals import BoolArray, Int32Array, Int64Array, nesting, union
from traceview.base.units import PS_PER_NS
from traceview.document.sanitize import sanitize
from traceview.trace.columns import NONE, Names


class Labels:
    """Every text of a scene, once: first the names of the trace, under their own indices, then others."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._own: list[str] = []
        self._index: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._names) + len(self._own)

    def add(self, text: str) -> int:
        """The index of a text that is no name of the trace."""
        index = self._index.setdefault(text, len(self))
        if index == len(self):
            self._own.append(text)
        return index

    def ids(self, texts: Iterable[str | None]) -> Int64Array:
        """The indices of texts, `NONE` for None."""
        return np.array([NONE if t is None else self.add(t) for t in texts], dtype=np.int64)

    def argument(self, name: str, texts: Iterable[str | None]) -> Argument:
        """A text of each slice, None where there is none."""
        return labelled(name, self.ids(texts))

    def shown(self, index: int) -> str:
        """The text on one line, cut in its middle from `sanitize.MOST` characters on."""
        own = index - len(self._names)
        return sanitize(self._own[own] if own >= 0 else self._names.text(index) or "")


@dataclass(frozen=True, eq=False)
class Argument:
    """A property of slices: int64 `values`, or indices into the labels; `known`: which slices have it."""

    name: str
    values: Int64Array
    known: BoolArray
    is_text: bool = False

    def at(self, chosen: Int64Array) -> Argument:
        """That of the `chosen` slices."""
        return Argument(self.name, self.values[chosen], self.known[chosen], self.is_text)


def numbered(name: str, values: Sequence[int] | Int64Array) -> Argument:
    """A number that every slice has."""
    column = np.asarray(values, dtype=np.int64)
    return Argument(name, column, np.ones(column.size, dtype=np.bool_))


def labelled(name: str, values: Int32Array | Int64Array) -> Argument:
    """A text, `NONE` where there is none."""
    return Argument(name, values.astype(np.int64), values != NONE, is_text=True)


@dataclass(frozen=True, eq=False)
class Arrows:
    """Arrows from launches to what they started, numbered from 0 on so that those of one launch follow each other.

    Both int64 `[slices]`: `first`, the first one that begins at a slice, and `count`, how many do.
    """

    first: Int64Array
    count: Int64Array

    def at(self, chosen: Int64Array) -> Arrows:
        """Those of the `chosen` slices."""
        return Arrows(self.first[chosen], self.count[chosen])


@dataclass(frozen=True, eq=False)
class Slices:
    """Slices in drawing order; all arrays `[n]`.

    int64 `start_ps`, `end_ps`; `name`, `category`: indices into the labels. `launches`: the arrows that begin at slices;
    `launched`: the arrow that ends at each, `NONE` without; None where there is none at all.
    """

    start_ps: Int64Array
    end_ps: Int64Array
    name: Int64Array
    category: Int64Array
    arguments: tuple[Argument, ...] = ()
    launches: Arrows | None = None
    launched: Int64Array | None = None

    @property
    def count(self) -> int:
        """Number of slices."""
        return int(self.start_ps.size)

    def at(self, chosen: Int64Array) -> Slices:
        """Only the `chosen` slices, in their order."""
        return Slices(
            self.start_ps[chosen],
            self.end_ps[chosen],
            self.name[chosen],
            self.category[chosen],
            tuple(argument.at(chosen) for argument in self.arguments),
            None if self.launches is None else self.launches.at(chosen),
            None if self.launched is None else self.launched[chosen],
        )

    def in_order(self) -> Slices:
        """The same slices in drawing order."""
        return self.at(in_drawing_order(self.start_ps, self.end_ps))

    @cached_property
    def exact(self) -> tuple[Argument, Argument]:
        """Start and length in picoseconds of the slices that are not whole nanoseconds."""
        length = self.end_ps - self.start_ps
        is_off = (self.start_ps % PS_PER_NS != 0) | (length % PS_PER_NS != 0)
        return (
            Argument("start_ps", self.start_ps, is_off),
            Argument("duration_ps", length, is_off),
        )


@dataclass(frozen=True, eq=False)
class Track:
    """A row of a viewer. Of any two of its slices that overlap one lies inside the other.

    `kind`: thread (of a host, or a stream), or analysis: what traceview computed.
    """

    name: str
    kind: str
    slices: Slices


def tracks_of(name: str, kind: str, slices: Slices, *, nests: bool) -> Iterator[Track]:
    """`stream 14`, and `stream 14 (2)` for the slices that overlap there: no viewer drops any; slices in any order.

    `nests`: on this line an event inside another belongs to it.
    """
    split = rows_nested if nests else rows_beside
    row = split(slices.start_ps, slices.end_ps)
    for number in range(int(row.max(initial=-1)) + 1):
        of_row = slices if not row.any() else slices.at(np.flatnonzero(row == number))
        yield Track(name if number == 0 else f"{name} ({number + 1})", kind, of_row.in_order())


@dataclass(frozen=True, eq=False)
class Process:
    """A host, a device, or the findings."""

    name: str
    tracks: tuple[Track, ...]


@dataclass(frozen=True, eq=False)
class Scene:
    """Everything that is drawn, in the order in which it is shown."""

    processes: tuple[Process, ...]
    labels: Labels

    @cached_property
    def shift_ps(self) -> int:
        """What to add to all times so that none is negative, which no viewer can show."""
        starts = [
            int(track.slices.start_ps.min())
            for process in self.processes
            for track in process.tracks
            if track.slices.count
        ]
        first = min(starts, default=0)
        return max(0, -(first // PS_PER_NS) * PS_PER_NS)

    def nanoseconds(self, time_ps: Int64Array) -> Int64Array:
        """Times on the axis of the viewer, rounded down."""
        return (time_ps + self.shift_ps) // PS_PER_NS


MOST_NESTED_ROWS: Final = 32
"""Beyond so many rows the remaining events are put beside each other: finding a place would take too long."""


def in_drawing_order(start: Int64Array, end: Int64Array) -> Int64Array:
    """Indices by start, the longer first, of equal ones the earlier: what encloses comes before what is inside."""
    return np.lexsort((-end, start)).astype(np.int64)


def rows_beside(start: Int64Array, end: Int64Array) -> Int64Array:
    """The row of each event, int64 from 0, so that those of one row do not overlap; no other split needs fewer rows.

    `start`, `end`: int64 `[n]` in any order, no end before its start.
    """
    row = np.zeros(start.size, dtype=np.int64)
    order = in_drawing_order(start, end)
    order = order[_is_entangled(start[order], end[order])]
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    rows = 0
    places = []
    for begins, ends in zip(start[order].tolist(), end[order].tolist(), strict=True):
        while busy and busy[0][0] <= begins:
            heappush(free, heappop(busy)[1])
        if free:
            place = heappop(free)
        else:
            place, rows = rows, rows + 1
        heappush(busy, (ends, place))
        places.append(place)
    row[order] = places
    return row


def rows_nested(start: Int64Array, end: Int64Array) -> Int64Array:
    """The row of each event, int64 from 0, so that of two in one row that overlap one lies inside the other.

    `start`, `end`: as in `rows_beside`.
    """
    row = np.zeros(start.size, dtype=np.int64)
    order = in_drawing_order(start, end)
    order = order[_is_entangled(start[order], end[order])]
    parent = nesting(start[order], end[order]).parent
    inner = parent >= 0
    sticks_out = np.zeros(order.size, dtype=np.bool_)
    sticks_out[inner] = end[order[inner]] > end[order[parent[inner]]]
    if not sticks_out.any():
        return row
    order = order[_groups_with(sticks_out, start[order], end[order])]
    open_ends: list[list[int]] = []
    left: list[int] = []
    for event, begins, ends in zip(
        order.tolist(), start[order].tolist(), end[order].tolist(), strict=True
    ):
        for place, ends_there in enumerate(open_ends):
            while ends_there and ends_there[-1] <= begins:
                ends_there.pop()
            if not ends_there or ends_there[-1] >= ends:
                ends_there.append(ends)
                row[event] = place
                break
        else:
            if len(open_ends) < MOST_NESTED_ROWS:
                row[event] = len(open_ends)
                open_ends.append([ends])
            else:
                left.append(event)
    if left:
        row[left] = MOST_NESTED_ROWS + rows_beside(start[left], end[left])
    return row


def _is_entangled(start: Int64Array, end: Int64Array) -> BoolArray:
    """Which events, in drawing order, overlap another."""
    reach = np.maximum.accumulate(end)
    overlaps_earlier = np.zeros(start.size, dtype=np.bool_)
    overlaps_earlier[1:] = start[1:] < reach[:-1]
    # Whatever overlaps a later event reaches past the start of the next, as events are sorted.
    overlaps_later = np.zeros(start.size, dtype=np.bool_)
    overlaps_later[:-1] = start[1:] < end[:-1]
    return overlaps_earlier | overlaps_later


def _groups_with(wanted: BoolArray, start: Int64Array, end: Int64Array) -> BoolArray:
    """Which events belong to a stretch of overlapping events of which one is `wanted`."""
    stretches = union(start, end)
    stretch = np.searchsorted(stretches.start, start, side="right")
    has = np.zeros(stretches.start.size + 1, dtype=np.bool_)
    has[stretch[wanted]] = True
    return has[stretch]
