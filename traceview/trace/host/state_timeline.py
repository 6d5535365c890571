"""A timeline with one state at each instant, and sets of spans joined and cut."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.ids import is_in
from traceview.base.intervals import NEVER, Int64Array, IntervalSet, pieces, union
from traceview.base.sweeping import SWEEPS
from traceview.trace.state import State

_FOREVER: Final = 1 << 61
"""Later than any event; twice as much still fits into int64."""
_ALWAYS: Final = union(np.array([-_FOREVER]), np.array([2 * _FOREVER]))
Layer = tuple[State, IntervalSet]


class StateTimeline(Struct, frozen=True, eq=False):
    """One state of a host thread at each instant of all time, `UNKNOWN` where no event shows any.

    `start`: int64 `[n]`, start of each stretch; the first begins before all events. `state`: uint8 `[n]`.
    """

    start: Int64Array
    state: npt.NDArray[np.uint8]

    def spans_of(self, states: Collection[State]) -> IntervalSet:
        """When the state is one of these; the last stretch, after all events, is left out."""
        is_one = is_in(self.state[:-1], list(states))
        return union(self.start[:-1][is_one], self.start[1:][is_one])


def stacked(layers: Sequence[Layer]) -> StateTimeline:
    """The timeline of stacked layers: at each instant the first layer that covers it gives the state."""
    known = [layer for layer in layers if layer[1].start.size]
    known.append((State.UNKNOWN, _ALWAYS))
    sizes = [spans.start.size for _, spans in known]
    start, _, number, _ = SWEEPS.layered(
        np.concatenate([spans.start for _, spans in known]),
        np.concatenate([spans.end for _, spans in known]),
        np.array([0, *accumulate(sizes)], dtype=np.int64),
        NEVER.start,
        -_FOREVER,
        2 * _FOREVER,
    )
    states = np.array([state for state, _ in known], dtype=np.uint8)
    state = np.repeat(states, sizes)[number]
    changes = np.flatnonzero(np.append(True, state[1:] != state[:-1]))
    return StateTimeline(start[changes], state[changes])


def without_holes(intervals: IntervalSet, hole_ps: int) -> IntervalSet:
    """The intervals with holes of up to `hole_ps` filled."""
    if intervals.start.size < 2:
        return intervals
    keeps = np.ones(intervals.start.size + 1, dtype=np.bool_)
    np.greater(intervals.start[1:] - intervals.end[:-1], hole_ps, out=keeps[1:-1])
    return union(intervals.start[keeps[:-1]], intervals.end[keeps[1:]])


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
    return pieces(first, second, inside=True)


def complement(intervals: IntervalSet) -> IntervalSet:
    """All time that the intervals do not cover."""
    edges = (
        np.concatenate(([-_FOREVER], intervals.end)),
        np.concatenate((intervals.start, [_FOREVER])),
    )
    return union(*edges)
