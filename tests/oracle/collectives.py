"""Recomputes the times of `results.collectives`, and clocks of hosts from their ends (docs/method.md, "Collectives", "Clocks of several hosts").

With recorded profile starts a clock is moved only if the median difference of the ends is more than three times their robust
spread; of fewer than three collectives none is. Parameter servers are not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.oracle.classes import Activity
from tests.oracle.intervals import clip, length, overlaps, subtract, union
from tests.oracle.model import Device, HostAnswer, Row, device_name
from tests.oracle.steps import Step, median

ARRIVAL = "CollectiveOpV2Kernel::Run"
Keys = tuple[int, int]


@dataclass(eq=False)
class Part:
    """The part of one device in a collective; `start` is the time of its arrival."""

    answer: HostAnswer
    device: Device
    activity: Activity
    keys: Keys | None
    start: int

    @property
    def end(self) -> int:
        return self.activity.span[1]

    @property
    def name(self) -> str:
        """The name for matching; ops of replicas differ in name, so all of them share an empty one."""
        return "" if self.device.kind == "replica" else self.activity.event.name

    @property
    def step(self) -> Step | None:
        inside = [s for s in self.answer.steps if s.start <= self.start < s.end]
        return inside[0] if inside else None


@dataclass(eq=False)
class Collective:
    group: Any
    parts: list[Part]
    complete: bool = True

    @property
    def transfer(self) -> int:
        return min(part.end - part.start for part in self.parts)

    @property
    def number(self) -> int | None:
        step = min(self.parts, key=lambda part: part.start).step
        return step.number if step else None

    def last(self, devices: list[Device]) -> Device | None:
        """The device that started last; None if several start at the same time, or for a single device.

        On several hosts all devices end at once, so the last one takes the shortest time; None if its lead is unclear.
        """
        parts = [part for part in self.parts if part.device in devices]
        if len({part.answer.host.name for part in parts}) > 1:
            first, second = sorted(parts, key=lambda part: part.end - part.start)[:2]
            lead = (second.end - second.start) - (first.end - first.start)
            spread = max(part.answer.end_spread for part in parts)
            return first.device if lead > 3 * spread else None
        latest = [part for part in parts if part.start == max(p.start for p in parts)]
        return latest[0].device if len(parts) > 1 and len(latest) == 1 else None


def _part(answer: HostAnswer, device: Device, activity: Activity) -> Part:
    links, event = answer.links, activity.event
    is_replica = device.kind == "replica"
    keys, start = None, activity.span[0]
    for origin in [event] if is_replica else links.calls(event):
        for cause in links.causes([origin]):
            group, instance = cause.integer("group_key"), cause.integer("instance_key")
            if keys is None and group is not None and instance is not None:
                keys = (group, instance)
            if is_replica and cause.name == ARRIVAL:
                start = cause.start
                break
    return Part(answer, device, activity, keys, start)


def _together(parts: list[Part]) -> list[list[Part]]:
    """The parts of one label, divided into collectives.

    With one part per device they are one collective. On one host parts that overlap in time are one, because a
    collective ends nowhere before all devices have joined. Across hosts it is the n-th part of a step on each device.
    """
    devices = [part.device for part in parts]
    if len(set(devices)) == len(devices):
        return [parts]
    if len({part.answer.host.name for part in parts}) > 1:
        by_place: dict[tuple[int, int], list[Part]] = {}
        for device in dict.fromkeys(devices):
            place_in_step: dict[int, int] = {}
            for part in sorted((p for p in parts if p.device is device), key=lambda p: p.start):
                number = part.step.number if part.step else -1
                place_in_step[number] = place_in_step.get(number, -1) + 1
                by_place.setdefault((number, place_in_step[number]), []).append(part)
        return list(by_place.values())
    clusters: list[list[Part]] = []
    for part in sorted(parts, key=lambda part: part.activity.span):
        if not clusters or part.activity.span[0] >= max(p.end for p in clusters[-1]):
            clusters.append([])
        clusters[-1].append(part)
    return clusters


def find_collectives(answers: list[HostAnswer]) -> list[Collective]:
    """The parts of all devices, divided into collectives."""
    parts = [
        _part(answer, device, activity)
        for answer in answers
        for device in answer.devices
        for activity in device.of_class("collective")
    ]
    keyless = {part.name for part in parts if part.keys is None}
    labels: dict[Any, list[Part]] = {}
    groups: dict[Any, Any] = {}
    for part in parts:
        by_name = part.name in keyless
        label = part.name if by_name else part.keys
        groups[label] = label if by_name or part.keys is None else part.keys[0]
        labels.setdefault(label, []).append(part)
    collectives = [
        Collective(groups[label], together)
        for label, members in labels.items()
        for together in _together(members)
    ]
    for collective in collectives:
        most = max(len(other.parts) for other in collectives if other.group == collective.group)
        collective.complete = len(collective.parts) == most > 1
    return collectives


def collective_answer(answers: list[HostAnswer], several: bool) -> Row:
    """The times of all devices together."""
    collectives = find_collectives(answers)
    inside = [
        collective
        for collective in collectives
        if any(overlaps(part.activity.span, part.answer.window) for part in collective.parts)
    ]
    with_devices = [answer for answer in answers if answer.activities()]
    return _times(with_devices, inside, several)


def _times(answers: list[HostAnswer], inside: list[Collective], several: bool) -> Row:
    devices = {
        device_name(device, several)["device"]: (answer, device)
        for answer in answers
        for device in answer.devices
    }
    own = [device for _, device in devices.values()]
    shared = [c for c in inside if any(part.device in own for part in c.parts)]
    complete = [collective for collective in shared if collective.complete]
    numbers = {step.number for answer in answers for step in answer.steps if step.used}
    busy = [_busy(answer, device) for answer, device in devices.values()]
    total, exposed = sum(each for each, _ in busy), sum(alone for _, alone in busy)
    return {
        "count": len(shared),
        "incomplete_count": len(shared) - len(complete),
        "transfer_ps": sum(collective.transfer for collective in complete),
        "transfer_per_step_ps": _mean(
            [sum(c.transfer for c in complete if c.number == number) for number in numbers]
        ),
        "overlap_ratio": (total - exposed) / total if total else None,
        "last_counts": {
            key: sum(collective.last(own) is device for collective in complete)
            for key, (_, device) in devices.items()
        },
    }


def _busy(answer: HostAnswer, device: Device) -> tuple[int, int]:
    """Time in collectives, and the part that compute does not cover."""
    compute = union(a.span for a in device.of_class("compute"))
    busy = union(a.span for a in device.of_class("collective"))
    return length(clip(busy, answer.window)), length(clip(subtract(busy, compute), answer.window))


def _mean(values: list[int]) -> int | None:
    """The mean rounded down; None without values."""
    return sum(values) // len(values) if values else None


MIN_COLLECTIVES = 3
CLEAR = 3
SIGMA = 1.4826


def find_clocks(answers: list[HostAnswer]) -> tuple[dict[str, int], dict[str, int]]:
    """Picoseconds to add and spread of the ends, by name of host; the first host with shared collectives stays."""
    spreads: dict[str, int] = {}
    clocks = {answer.host.name: 0 for answer in answers}
    if len(answers) < 2:
        return clocks, spreads
    ends = [_ends(collective) for collective in find_collectives(answers) if collective.complete]
    placed: list[HostAnswer] = []
    for answer in answers:
        name = answer.host.name
        shared = [end_of for end_of in ends if name in end_of and len(end_of) > 1]
        if len(shared) < MIN_COLLECTIVES:
            continue
        if not placed:
            placed.append(answer)
            continue
        reference = placed[0]
        first = reference.host.name
        pairs = [(end_of[first], end_of[name]) for end_of in shared if first in end_of]
        if len(pairs) < MIN_COLLECTIVES:
            continue
        ahead = [own - other for other, own in pairs]
        middle = median(ahead) or 0
        spread = SIGMA * (median([abs(difference - middle) for difference in ahead]) or 0)
        spreads[name] = round(spread)
        known = answer.host.start_ns is not None and reference.host.start_ns is not None
        if not known or abs(middle) > CLEAR * spread:
            clocks[name] = -middle
    return clocks, spreads


def _ends(collective: Collective) -> dict[str, int]:
    """The last end of a collective on each host."""
    ends: dict[str, int] = {}
    for part in collective.parts:
        name = part.answer.host.name
        ends[name] = max(part.end, ends.get(name, part.end))
    return ends
