"""Recomputes the sums of the ledger, and walks the critical path of each step (docs/method.md, "Ledger", "Critical path")."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction

from tests.oracle.intervals import Interval, joined
from tests.oracle.model import Device, HostAnswer, Row, device_name
from tests.oracle.segments import STATES, Ledger, Segment


def ledger_answer(ledger: Ledger, several: bool) -> Row:
    """The GPU time by state, and the mean step of each device with any."""
    rows, total = [], dict.fromkeys(STATES, 0)
    for answer in ledger.answers:
        count = sum(step.used for step in answer.steps) if ledger.has_steps else 0
        for device in answer.devices:
            name = device_name(device, several)["device"]
            own = [one for one in ledger.segments[id(device)] if ledger.counts(one)]
            sums = _by_state(own)
            whole = sum(sums.values())
            if not whole:
                continue
            for state, ps in sums.items():
                total[state] += ps
            awaited = _awaited(ledger, own)
            waits_for = None
            if awaited and 2 * awaited[1] >= 1:
                waits_for = device_name(ledger.devices[awaited[0]], several)
            rows.append(
                {
                    "device": name,
                    "host": answer.host.name,
                    "step_count": count,
                    "step_ps": whole // (count or 1),
                    "states": _mean(sums, count or 1),
                    "waits_for": waits_for["device"] if waits_for else None,
                }
            )
    return {
        "gpu_time_ps": sum(total.values()),
        "by_state": {state: ps for state, ps in total.items() if ps},
        "devices": rows,
    }


def busy_parts(ledger: Ledger, device: Device) -> Row:
    """What a device did in its window, by the states of the segments in which it was busy."""
    busy = [one for one in ledger.segments.get(id(device), []) if one.activity is not None]
    of = _by_state(busy)
    work = (of["compute"], of["communication"], of["h2d"] + of["d2h"] + of["d2d"])
    names = ("compute_ps", "communication_ps", "copies_ps", "waiting_ps")
    return dict(zip(names, (*work, sum(of.values()) - sum(work)), strict=True))


def plain_rows(ledger: Ledger, several: bool) -> list[Row]:
    """The segments of each device before what happens beside it changes states; those that touch are joined."""
    return [
        {
            "device": device_name(device, several)["device"],
            "segments": joined((one.start, one.end, one.state) for one in ledger.plain[id(device)]),
        }
        for device in ledger.devices
    ]


def _by_state(segments: list[Segment]) -> dict[str, int]:
    sums = dict.fromkeys(STATES, 0)
    for one in segments:
        sums[one.state] += one.length
    return sums


def _mean(sums: dict[str, int], count: int) -> dict[str, int]:
    """Parts that sum to the rounded mean: each is the difference of two rounded means of sums."""
    mean, before = {}, 0
    for key, value in sums.items():
        mean[key] = (before + value) // count - before // count
        before += value
    return {key: value for key, value in mean.items() if value}


def _awaited(ledger: Ledger, segments: list[Segment]) -> tuple[int, Fraction] | None:
    """The device waited for longest, of equal ones the first, and its share of the waiting."""
    waits = [one for one in segments if one.state == "device_wait"]
    by_place: dict[int, int] = {}
    for one in waits:
        if one.by is not None:
            place = ledger.devices.index(one.by)
            by_place[place] = by_place.get(place, 0) + one.length
    if not by_place:
        return None
    longest = min(by_place, key=lambda place: (-by_place[place], place))
    return longest, Fraction(by_place[longest], sum(one.length for one in waits))


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
    return segment.state in ("device_wait", "turn")


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
