"""Groups the idle rows of the ledger into gaps: maximal spans in which a device does nothing, with their states."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.intervals import Int64Array, places
from traceview.base.sweeping import SWEEPS
from traceview.ledger.columns import IDLE
from traceview.ledger.states import IDLE_STATES, KEYS, State
from traceview.ledger.table import Ledger
from traceview.trace.device.table import Table, category, table, whole
from traceview.trace.frames.event_tables import (
    device_keys,
    line_names,
    step_column,
)
from traceview.trace.host.gaps import Gaps
from traceview.trace.model import NONE
from traceview.xplane.columns import joined


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


def gap_events(ledger: Ledger, gaps: Mapping[int, Gaps]) -> Table:
    """The gaps of devices as a table; `before` and `after` are row numbers of device events."""
    trace, of_devices = ledger.trace, list(gaps.values())
    states = [gap_states(ledger, of) for of in of_devices]
    start, end = (joined([of.spans[bound] for of in of_devices], np.int64) for bound in (0, 1))
    device = joined([np.full(of.count, of.device) for of in of_devices], np.int64)
    before = joined([of.before for of in of_devices], np.int64)
    after = joined([of.after for of in of_devices], np.int64)
    thread = joined([of.thread for of in of_devices], np.int32)

    def of_state(state: int) -> Int64Array:
        parts = [
            part.by_state.get(state, np.zeros(part.largest.size, dtype=np.int64)) for part in states
        ]
        return joined(parts, np.int64)

    return table(
        "gaps",
        category("device", device, device_keys(trace)),
        whole("start_ps", start),
        whole("duration_ps", end - start),
        step_column(trace, trace.host_of_device[device], start),
        category("state", joined([part.largest for part in states], np.int64), KEYS),
        whole("before", before, before == NONE),
        whole("after", after, after == NONE),
        category("thread", thread, line_names(trace)),
        *(whole(f"{state.key}_ps", of_state(state)) for state in IDLE_STATES),
    )
