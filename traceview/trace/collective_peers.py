"""Tells for each device when other devices were in a collective, without comparing every two devices."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from traceview.ids import unique_counts
from traceview.intervals import Int64Array, IntervalSet, difference, union


class CollectivePeers:
    """Made from the collectives of all devices: the device, the start and the end of each, all `[n]`."""

    def __init__(
        self, device: npt.NDArray[np.integer], start_ps: Int64Array, end_ps: Int64Array
    ) -> None:
        self._device = device
        self._start_ps = start_ps
        self._end_ps = end_ps

    def of(self, device: int) -> IntervalSet:
        """When devices other than this one were in a collective."""
        alone_on, start, end = self._alone
        first, last = np.searchsorted(alone_on, [device, device + 1])
        return difference(self._any, union(start[first:last], end[first:last]))

    @cached_property
    def _any(self) -> IntervalSet:
        return union(self._start_ps, self._end_ps)

    @cached_property
    def _alone(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """The spans in which a single device is in a collective: device (sorted), start and end."""
        spans = [
            (device, union(self._start_ps[rows], self._end_ps[rows]))
            for device, rows in self._rows_by_device()
        ]
        if not spans:
            empty = np.empty(0, dtype=np.int64)
            return empty, empty, empty
        start = np.concatenate([span.start for _, span in spans])
        end = np.concatenate([span.end for _, span in spans])
        of = np.repeat([device for device, _ in spans], [span.start.size for _, span in spans])
        moments = np.concatenate((start, end))
        order = np.argsort(moments, kind="stable")
        opens = np.where(order < start.size, 1, -1)
        # Of a single device that is open, the sum of the numbers of open devices is its number.
        number = np.cumsum(opens * np.concatenate((of, of))[order])[:-1]
        is_alone = np.cumsum(opens)[:-1] == 1
        alone_on = number[is_alone]
        by_device = np.argsort(alone_on, kind="stable")
        begins, finishes = moments[order][:-1][is_alone], moments[order][1:][is_alone]
        return alone_on[by_device], begins[by_device], finishes[by_device]

    def _rows_by_device(self) -> list[tuple[int, Int64Array]]:
        order = np.argsort(self._device, kind="stable")
        devices, count = unique_counts(self._device)
        bounds = [0, *np.cumsum(count).tolist()]
        return [
            (device, order[low:high])
            for device, (low, high) in zip(devices.tolist(), pairwise(bounds), strict=True)
        ]
