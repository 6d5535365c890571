"""Walks the critical path of each step back over the segments of devices (docs/method.md, "Critical path")."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from tests.oracle.intervals import Interval
from tests.oracle.model import Device, HostAnswer, Row
from tests.oracle.segments import Ledger, Segment

# A span of the path: its segment, start, end.
Span = tuple[Segment, int, int]


@dataclass(eq=False)
class _Lane:
    """A device that is not idle throughout."""

    device: Device
    segments: list[Segment]

    def before(self, time: int) -> Segment:
        """The segment that an instant ends, or lies in."""
        return self.segments[bisect_left(self.segments, time, key=lambda one: one.start) - 1]

    def reaches(self, time: int) -> bool:
        return self.segments[0].start < time <= self.segments[-1].end


def _waits(segment: Segment) -> bool:
    # A device with hardly any work waits in collectives, too.
    is_known = segment.state == "no_work" and segment.by is not None
    return is_known or segment.state in ("device_wait", "turn")


class _Paths:
    def __init__(self, ledger: Ledger) -> None:
        self.lanes = [
            _Lane(device, ledger.segments[id(device)])
            for device in ledger.devices
            if any(one.activity is not None for one in ledger.segments[id(device)])
        ]
        devices = [lane.device for lane in self.lanes]
        self._is_one_clock = not devices or ledger.clocks_agree(devices)

    def path(self, answer: HostAnswer, bounds: Interval) -> list[Span] | None:
        """The path through a span of a host, backwards; None without a device that takes part."""
        start, end = bounds
        own = [lane for lane in self.lanes if lane.device.host == answer.host.name]
        if not own:
            return None

        def ended(lane: _Lane) -> tuple[int, int]:
            busy = [
                (max(one.start, start), min(one.end, end))
                for one in lane.segments
                if one.activity is not None
            ]
            busy = [(low, high) for low, high in busy if low < high]
            last = max((high for _, high in busy), default=start)
            return last, sum(high - low for low, high in busy)

        lane = home = max(own, key=ended)
        spans: list[Span] = []
        time = end
        while time > start:
            passed = [lane]
            while True:
                if time <= lane.segments[0].start:
                    # Another host begins here; the path goes on where it left its own.
                    lane, passed = home, [home]
                segment, is_circle = lane.before(time), False
                other = self._followed(lane, segment, time)
                if other is not None and other in passed:
                    # They wait for each other: the one whose wait began last keeps it.
                    circle = passed[passed.index(other) :]
                    lane = max(circle, key=lambda one: one.before(time).start)
                    segment, is_circle = lane.before(time), True
                elif other is not None:
                    lane = other
                    passed.append(other)
                home = lane if lane in own else home
                if other is None or is_circle:
                    break
            low = max(segment.start, start)
            spans.append((segment, low, time))
            time = low
        return spans

    def _followed(self, lane: _Lane, segment: Segment, time: int) -> _Lane | None:
        """Where the path goes on; None where the device waits for none, or for one that cannot be followed."""
        if not _waits(segment):
            return None
        other = next((one for one in self.lanes if one.device is segment.by), None)
        if other is None or other is lane or not other.reaches(time):
            return None
        is_one_clock = self._is_one_clock or other.device.host == lane.device.host
        return other if is_one_clock else None


def path_rows(ledger: Ledger, answers: list[HostAnswer]) -> list[Row]:
    """A row per used step, or without any per host for its window."""
    paths = _Paths(ledger)
    chosen: list[tuple[HostAnswer, int | None, Interval]] = []
    for answer in answers:
        low, high = answer.window
        for step in answer.steps:
            if step.used and step.start < high and step.end > low:
                bounds = max(step.start, low), min(step.end, high)
                chosen.append((answer, step.number, bounds))
    chosen = chosen or [(answer, None, answer.window) for answer in answers]
    rows = []
    for answer, number, (start, end) in chosen:
        spans = paths.path(answer, (start, end)) if start < end else None
        if spans is None:
            continue
        states: dict[str, int] = {}
        for segment, low, high in spans:
            states[segment.state] = states.get(segment.state, 0) + high - low
        rows.append(
            {
                "host": answer.host.name,
                "step": number,
                "duration_ps": end - start,
                "states": states,
                "spans": spans,
            }
        )
    return rows
