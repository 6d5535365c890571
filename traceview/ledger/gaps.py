"""Groups the idle rows of the ledger into gaps: maximal spans in which a device does nothing, with their states."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.intervals import Int64Array, places
from traceview.base.sweeping import SWEEPS
from traceview.ledger.columns import IDLE
from traceview.ledger.states import State
from traceview.ledger.table import Ledger
from traceview.trace.host.gaps import Gaps
from traceview.trace.model import NONE


class GapStates(Struct, frozen=True, eq=False):
    """The states of the gaps of a device.

    Per idle row of the device, in time order, all `[n]`: int64 `start_ps`, `end_ps`, `gap`, the number of its gap; uint8
    `state`. Per gap, all `[m]`: int64 `by_state`, the time in each state that occurs, in the order of states; uint8
    `largest`, the state with most of it, of equal ones the first.
    """

    start_ps: Int64Array
    end_ps: Int64Array
    gap: Int64Array
    state: npt.NDArray[np.uint8]
    by_state: Mapping[int, Int64Array]
    largest: npt.NDArray[np.uint8]

    def parts_of(self, chosen: Int64Array, states: npt.NDArray[np.integer]) -> _Parts:
        """The idle rows of some gaps in a state of each: start, end, and the place of the gap in `chosen`, in time order."""
        wanted = np.full(self.largest.size, NONE, dtype=np.int64)
        wanted[chosen] = states
        place = np.empty(self.largest.size, dtype=np.int64)
        place[chosen] = np.arange(chosen.size)
        rows = np.flatnonzero(wanted[self.gap] == self.state)
        return self.start_ps[rows], self.end_ps[rows], place[self.gap[rows]]

    def longest_parts(
        self, chosen: Int64Array, states: npt.NDArray[np.integer]
    ) -> tuple[Int64Array, Int64Array]:
        """Start and end of the longest idle row of each of some gaps in a state of it, of equal ones the first."""
        start, end, place = self.parts_of(chosen, states)
        order = np.lexsort((start, start - end, place))
        first = order[np.flatnonzero(np.diff(place[order], prepend=NONE))]
        result = np.zeros((2, chosen.size), dtype=np.int64)
        result[:, place[first]] = start[first], end[first]
        return result[0], result[1]


_Parts = tuple[Int64Array, Int64Array, Int64Array]


def gap_states(ledger: Ledger, gaps: Gaps) -> GapStates:
    """The states of the gaps that a device has in the window of the ledger."""
    own, columns = ledger.rows_of(gaps.device), ledger.columns
    rows = own.start + np.flatnonzero(columns.activity[own] == IDLE)
    start, duration = columns.start_ps[rows], columns.duration_ps[rows]
    gap = places(gaps.spans[0], start, right=True) - 1
    state = columns.state[rows]
    by_state: dict[int, Int64Array] = {}
    largest = np.full(gaps.count, State.UNKNOWN, dtype=np.uint8)
    most_ps = np.zeros(gaps.count, dtype=np.int64)
    for number in np.flatnonzero(np.bincount(state, minlength=1)).tolist():
        in_state = state == number
        by_state[number] = SWEEPS.totals(gap[in_state], duration[in_state], gaps.count)
        is_more = by_state[number] > most_ps
        largest[is_more], most_ps[is_more] = number, by_state[number][is_more]
    return GapStates(start, start + duration, gap, state, by_state, largest)
