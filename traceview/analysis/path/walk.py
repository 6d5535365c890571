"""Walks back from the end of each step along what held it up, from device to device.

On a device the walk stays until the device waits for another one: inside a collective, or idle with the cause `peer`. It
goes on, from the same instant, on the device that the wait was for.

    GPU:0   ▕ compute ▏▕ waits in a collective ▕ transfer ▏        ◂ the step ends here
                                               ┆
    GPU:1   ▕ input ······▏▕ compute          ▏▕ transfer ▏
            ◂──────── the path goes on ────────┘

The spans of a step touch each other and cover it, so the parts cut from them sum to its length.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from traceview.analysis.balance.what_if import clocks_agree
from traceview.analysis.collectives.result import transfer_spans
from traceview.analysis.context import Context
from traceview.ids import unique_ids
from traceview.intervals import IntervalSet, difference
from traceview.trace.cause import Cause
from traceview.trace.gap_spans import cause_spans
from traceview.xplane.planes import ActivityClass


class WalkedSpan(NamedTuple):
    """A span of the path on one device. `is_lost`: it waits for a device that cannot be followed."""

    device: int
    start_ps: int
    end_ps: int
    is_lost: bool


class _Waits(Struct, frozen=True, eq=False):
    """When a device waits for another one, in time order: where it is idle, and where it is in a collective."""

    start: list[int]
    end: list[int]
    is_idle: list[bool]


class _Joined(Struct, frozen=True, eq=False):
    """The events of one device that are part of collectives, by their start.

    `reach`: the latest end so far. `number`: of the collective.
    """

    start: list[int]
    end: list[int]
    reach: list[int]
    number: list[int]

    def running_before(self, time_ps: int) -> int | None:
        """The event that runs just before an instant, of several the one that began last; None without any."""
        place = bisect_left(self.start, time_ps) - 1
        while place >= 0 and self.reach[place] >= time_ps:
            if self.end[place] >= time_ps:
                return place
            place -= 1
        return None


class Walker:
    """What the walk needs of all devices in use, prepared once."""

    def __init__(self, context: Context, devices: Sequence[int]) -> None:
        self._trace, self._selection = context.trace, context.selection
        self._devices = tuple(devices)
        self._host = {device: context.trace.device_list[device].host for device in devices}
        self._activities = context.activities
        # Of GPUs they would take as much memory as their gaps, and only replicas are asked when they pause.
        self._busy: dict[int, IntervalSet] = {
            device: context.activities[device].up_to(max(ActivityClass))
            for device in devices
            if context.trace.device_list[device].kind == "replica"
        }
        self._waits = {
            device: _waits(context, device, transfers)
            for device, transfers in self._transfers(context)
        }
        self._joined = {device: _joined(context, device) for device in devices}
        self._last = _last_rows(context)
        self._is_complete: list[bool] = context.collectives.is_complete.tolist()
        self._device_of_row: list[int] = context.collectives.device.tolist()
        self._clocks_agree = clocks_agree(context.trace, self._devices)

    def _transfers(self, context: Context) -> Iterator[tuple[int, IntervalSet]]:
        transfers = transfer_spans(context.trace, context.collectives)
        return ((device, transfers[device]) for device in self._devices)

    def ended_last(self, host: int, start_ps: int, end_ps: int) -> int | None:
        """The device of a host that was active last in a span, of several the one that was idle least."""

        def rank(device: int) -> tuple[int, int]:
            activity = self._activities[device]
            busy_ps = activity.within_up_to(max(ActivityClass), start_ps, end_ps)
            return activity.last_within(start_ps, end_ps), int(busy_ps)

        own = [device for device in self._devices if self._host[device] == host]
        return max(own, key=rank, default=None)

    def spans(self, host: int, start_ps: int, end_ps: int) -> Iterator[WalkedSpan]:
        """The path through `[start_ps, end_ps)` of a host, backwards."""
        device = self.ended_last(host, start_ps, end_ps)
        assert device is not None
        moment, passed = end_ps, [device]
        while moment > start_ps:
            window = self._selection.windows[self._host[device]]
            if moment <= window.start_ps:
                # The other host was recorded from here on.
                yield WalkedSpan(device, start_ps, moment, True)
                return
            waits, place = self._waits[device], self._last_wait(device, moment)
            is_lost = place >= 0 and waits.end[place] >= moment
            if is_lost:
                other = self._waited_for(device, moment, is_idle=waits.is_idle[place])
                if other is not None and other not in passed:
                    passed.append(other)
                    device = other
                    continue
                if other is not None:
                    # They wait for each other. The one that began to wait last had something else to do until then.
                    circle = passed[passed.index(other) :]
                    device = max(circle, key=lambda device: self._wait_start(device, moment))
                begin = self._wait_start(device, moment)
            else:
                begin = waits.end[place] if place >= 0 else start_ps
            begin = max(begin, start_ps, self._selection.windows[self._host[device]].start_ps)
            yield WalkedSpan(device, begin, moment, is_lost)
            moment, passed = begin, [device]

    def _last_wait(self, device: int, moment: int) -> int:
        """The number of the last wait of a device that begins before a moment; -1 without any."""
        return bisect_left(self._waits[device].start, moment) - 1

    def _wait_start(self, device: int, moment: int) -> int:
        return self._waits[device].start[self._last_wait(device, moment)]

    def _waited_for(self, device: int, moment: int, *, is_idle: bool) -> int | None:
        """The device in use that a device waits for just before a moment; None where it cannot be followed."""
        if not is_idle:
            joined = self._joined[device]
            place = joined.running_before(moment)
            other = None if place is None else self._came_last(joined.number[place])
        elif self._trace.device_list[device].kind == "replica":
            other = self._at_work(device, moment)
        else:
            other = self._holding(device, moment)
        if other is None or other == device or other not in self._host:
            return None
        window = self._selection.windows[self._host[other]]
        is_inside = window.start_ps < moment <= window.end_ps
        is_one_clock = self._clocks_agree or self._host[other] == self._host[device]
        return other if is_inside and is_one_clock else None

    def _came_last(self, collective: int) -> int:
        return self._device_of_row[self._last[collective]]

    def _holding(self, device: int, moment: int) -> int | None:
        """The device that the others wait for in the collective that runs elsewhere, of several the first to end."""
        ends = []
        for other in self._devices:
            joined = self._joined[other]
            place = None if other == device else joined.running_before(moment)
            if place is not None:
                ends.append((joined.end[place], other, joined.number[place]))
        if not ends:
            return None
        _, other, number = min(ends)
        return self._came_last(number) if self._is_complete[number] else other

    def _at_work(self, device: int, moment: int) -> int | None:
        """The replica of the same host that is at work, of several the first to pause."""
        ends = []
        for other in self._devices:
            busy = self._busy.get(other)
            if busy and other != device and self._host[other] == self._host[device]:
                place = int(np.searchsorted(busy.start, moment)) - 1
                if place >= 0 and busy.end_of(place) >= moment:
                    ends.append((busy.end_of(place), other))
        return min(ends)[1] if ends else None


def _waits(context: Context, device: int, transfers: IntervalSet) -> _Waits:
    """Exposed time in collectives that is no transfer, and idle time with the cause `peer`."""
    by_class = context.activities[device].by_class
    exposed = difference(by_class[ActivityClass.COLLECTIVE], by_class[ActivityClass.COMPUTE])
    in_collectives = difference(exposed, transfers)
    gaps = context.idle.gaps[device]
    states = context.idle.states[context.trace.device_list[device].host]
    chosen = unique_ids(gaps.gap[gaps.of_cause(Cause.PEER) > 0])
    idle = cause_spans(context.trace, gaps, states, chosen)
    is_peer = idle.cause == Cause.PEER
    start = np.concatenate((in_collectives.start, idle.start_ps[is_peer]))
    end = np.concatenate((in_collectives.end, idle.end_ps[is_peer]))
    order = np.argsort(start)
    return _Waits(
        start[order].tolist(),
        end[order].tolist(),
        (order >= in_collectives.start.size).tolist(),
    )


def _joined(context: Context, device: int) -> _Joined:
    columns, collectives = context.trace.device_columns, context.collectives
    of_device = np.flatnonzero(collectives.device == device)
    rows = collectives.row[of_device]
    order = np.argsort(columns.start_ps[rows], kind="stable")
    rows = rows[order]
    end = columns.end_ps[rows]
    return _Joined(
        columns.start_ps[rows].tolist(),
        end.tolist(),
        np.maximum.accumulate(end).tolist(),
        collectives.collective[of_device[order]].tolist(),
    )


def _last_rows(context: Context) -> list[int]:
    """By collective the row of the device that was in it for the shortest time, of several the one that began last."""
    collectives = context.collectives
    order = np.lexsort((-collectives.start_ps, collectives.duration_ps, collectives.collective))
    rows: list[int] = order[collectives.first].tolist()
    return rows
