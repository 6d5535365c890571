"""Tells for each device when other devices were in a collective, without comparing every two devices."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.ids import groups_of
from traceview.base.intervals import Int64Array, IntervalSet, difference, union


class CollectivePeers(Struct, frozen=True, eq=False):
    """When any device was in a collective, and when a single one was: `device` (sorted), start and end, all `[n]`."""

    any: IntervalSet
    alone_device: npt.NDArray[np.integer]
    alone_start_ps: Int64Array
    alone_end_ps: Int64Array

    def of(self, device: int) -> IntervalSet:
        """When devices other than this one were in a collective."""
        own = slice(*np.searchsorted(self.alone_device, [device, device + 1]).tolist())
        if own.start == own.stop:
            return self.any
        return difference(self.any, union(self.alone_start_ps[own], self.alone_end_ps[own]))


def peers_of(
    device: npt.NDArray[np.integer], start_ps: Int64Array, end_ps: Int64Array
) -> CollectivePeers:
    """Made from the collectives of all devices: the device, the start and the end of each, all `[n]`."""
    spans = [
        (int(device[rows[0]]), union(start_ps[rows], end_ps[rows])) for rows in groups_of(device)
    ]
    if not spans:
        empty = np.empty(0, dtype=np.int64)
        return CollectivePeers(union(empty, empty), empty, empty, empty)
    start = np.concatenate([span.start for _, span in spans])
    end = np.concatenate([span.end for _, span in spans])
    of = np.repeat([number for number, _ in spans], [span.start.size for _, span in spans])
    moments = np.concatenate((start, end))
    order = np.argsort(moments, kind="stable")
    opens = np.where(order < start.size, 1, -1)
    # Of a single device that is open, the sum of the numbers of open devices is its number.
    number = np.cumsum(opens * np.concatenate((of, of))[order])[:-1]
    is_alone = np.cumsum(opens)[:-1] == 1
    alone_on = number[is_alone]
    by_device = np.argsort(alone_on, kind="stable")
    begins, finishes = moments[order][:-1][is_alone], moments[order][1:][is_alone]
    return CollectivePeers(
        union(start_ps, end_ps), alone_on[by_device], begins[by_device], finishes[by_device]
    )
