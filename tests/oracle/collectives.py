"""The times of `results.collectives`, recomputed (docs/method.md, "Collectives")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.oracle.classes import Activity
from tests.oracle.intervals import Interval, clip, length, overlaps, subtract, union
from tests.oracle.links import Links
from tests.oracle.model import Device, HostAnswer, Row, device_name
from tests.oracle.reading import Event
from tests.oracle.steps import Step

ARRIVAL = "CollectiveOpV2Kernel::Run"
Keys = tuple[int, int]


@dataclass(eq=False)
class Part:
    """What one device did in a collective; `start` is when it arrived."""

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
        """On "one name": ops of replicas differ in theirs, so that all count as one."""
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
        """On "started last": of devices that start at the same time none did, nor one alone.

        On several hosts: all end at once, so the last one takes the shortest time; none that is not clear.
        """
        parts = [part for part in self.parts if part.device in devices]
        if len({part.answer.host.name for part in parts}) > 1:
            first, second = sorted(parts, key=lambda part: part.end - part.start)[:2]
            lead = (second.end - second.start) - (first.end - first.start)
            spread = max(part.answer.end_spread for part in parts)
            return first.device if lead > 3 * spread else None
        latest = [part for part in parts if part.start == max(p.start for p in parts)]
        return latest[0].device if len(parts) > 1 and len(latest) == 1 else None


def _above(event: Event, links: Links) -> Iterable[Event]:
    """The event and what caused it, nearest first."""
    queue, seen = [event], {event}
    while queue:
        one = queue.pop(0)
        yield one
        for cause in links.causes(one):
            if cause not in seen:
                seen.add(cause)
                queue.append(cause)


def _part(answer: HostAnswer, device: Device, activity: Activity) -> Part:
    links, event = answer.links, activity.event
    is_replica = device.kind == "replica"
    keys, start = None, activity.span[0]
    for origin in [event] if is_replica else links.calls(event):
        for above in _above(origin, links):
            group, instance = above.integer("group_key"), above.integer("instance_key")
            if keys is None and group is not None and instance is not None:
                keys = (group, instance)
            if is_replica and above.name == ARRIVAL:
                start = above.start
                break
    return Part(answer, device, activity, keys, start)


def _together(parts: list[Part]) -> list[list[Part]]:
    """Parts of one label that are one collective.

    With one part per device they are; on one host those that overlap in time are, for a collective ends
    nowhere before all devices are in it; across hosts the n-th of a step on each device.
    """
    devices = [part.device for part in parts]
    if len(set(devices)) == len(devices):
        return [parts]
    if len({part.answer.host.name for part in parts}) > 1:
        found: dict[tuple[int, int], list[Part]] = {}
        for device in dict.fromkeys(devices):
            seen: dict[int, int] = {}
            for part in sorted((p for p in parts if p.device is device), key=lambda p: p.start):
                number = part.step.number if part.step else -1
                seen[number] = seen.get(number, -1) + 1
                found.setdefault((number, seen[number]), []).append(part)
        return list(found.values())
    clusters: list[list[Part]] = []
    for part in sorted(parts, key=lambda part: part.activity.span):
        if not clusters or part.activity.span[0] >= max(p.end for p in clusters[-1]):
            clusters.append([])
        clusters[-1].append(part)
    return clusters


def find_collectives(answers: list[HostAnswer]) -> list[Collective]:
    """The parts of all devices, sorted into collectives."""
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
    found = [
        Collective(groups[label], together)
        for label, own in labels.items()
        for together in _together(own)
    ]
    for one in found:
        most = max(len(other.parts) for other in found if other.group == one.group)
        one.complete = len(one.parts) == most > 1
    return found


def collective_answer(answers: list[HostAnswer], several: bool) -> Row:
    """The times of all devices together, and of each host below `hosts`."""
    found = find_collectives(answers)
    inside = [
        one
        for one in found
        if any(overlaps(part.activity.span, part.answer.window) for part in one.parts)
    ]
    with_devices = [answer for answer in answers if answer.activities()]
    return {
        **_times(with_devices, found, inside, several),
        "hosts": {
            answer.host.name: _times([answer], found, inside, several) for answer in with_devices
        },
    }


def _times(
    answers: list[HostAnswer],
    found: list[Collective],
    inside: list[Collective],
    several: bool,
) -> Row:
    devices = {
        device_name(device, several)["device"]: (answer, device)
        for answer in answers
        for device in answer.devices
    }
    own = [device for _, device in devices.values()]
    here = [one for one in inside if any(part.device in own for part in one.parts)]
    told = [one for one in here if one.complete]
    numbers = {step.number for answer in answers for step in answer.steps if step.used}
    busy = {
        key: _busy(answer, device, found, answer.window)
        for key, (answer, device) in devices.items()
    }
    total = sum(one["busy"] for one in busy.values())
    exposed = sum(one["exposed"] for one in busy.values())
    return {
        "count": len(here),
        "incomplete_count": len(here) - len(told),
        "transfer_ps": sum(one.transfer for one in told),
        "transfer_per_step_ps": _median(
            [sum(one.transfer for one in told if one.number == n) for n in numbers]
        ),
        "wait_ps": {
            key: sum(
                part.end - part.start - one.transfer
                for one in told
                for part in one.parts
                if part.device is device
            )
            for key, (_, device) in devices.items()
        },
        "exposed_ps": {key: one["exposed"] for key, one in busy.items()},
        "exposed_transfer_ps": {key: one["transfer"] for key, one in busy.items()},
        "exposed_transfer_per_step_ps": {
            key: median
            for key, (answer, device) in devices.items()
            if (
                median := _median(
                    [
                        _busy(answer, device, found, (step.start, step.end))["transfer"]
                        for step in answer.steps
                        if step.used
                    ]
                )
            )
            is not None
        }
        or None,
        "overlap_ratio": (total - exposed) / total if total else None,
        "last_count": {
            key: sum(one.last(own) is device for one in told)
            for key, (_, device) in devices.items()
        },
    }


def _busy(
    answer: HostAnswer, device: Device, found: list[Collective], window: Interval
) -> dict[str, int]:
    """Time in collectives, the part that compute does not cover, and of that the part in transfers."""
    compute = union(a.span for a in device.of_class("compute"))
    own = union(a.span for a in device.of_class("collective"))
    transfers = []
    for one in found:
        for part in one.parts:
            if part.device is device and part.answer is answer:
                start, end = part.activity.span
                transfers.append((max(start, end - one.transfer) if one.complete else start, end))
    return {
        "busy": length(clip(own, window)),
        "exposed": length(clip(subtract(own, compute), window)),
        "transfer": length(clip(subtract(transfers, compute), window)),
    }


def _median(values: list[int]) -> int | None:
    """Rounded down; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2
