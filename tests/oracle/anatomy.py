"""Recomputes the mean step of each device from its raw events (docs/method.md, "Step anatomy")."""

from __future__ import annotations

from fractions import Fraction

from tests.oracle.classes import CLASSES
from tests.oracle.collectives import Collective, find_collectives
from tests.oracle.host_causes import HostCauses
from tests.oracle.idle import CAUSES, Gap, find_gaps
from tests.oracle.intervals import Interval, clip, length, overlaps, subtract
from tests.oracle.model import Device, HostAnswer, Row, device_name

ACTIVITIES = ("compute", "collective", "collective_wait", "h2d", "d2h", "d2d", "memset")


def anatomy_rows(answers: list[HostAnswer], several: bool) -> list[Row]:
    """A row per device that ran a kernel or a collective in its window."""
    has_steps = any(_used(answer) for answer in answers)
    collectives = find_collectives(answers)
    names = {
        id(device): device_name(device, several)["device"]
        for answer in answers
        for device in answer.devices
    }
    every_device = [device for answer in answers for device in answer.devices]
    rows = []
    for answer in answers:
        spans = _used(answer) if has_steps else [answer.window]
        spans = [(start, end) for start, end in spans if start < end]
        if not spans or not answer.activities():
            continue
        host = HostCauses(answer)
        for device in answer.devices:
            kernels = device.of_class("compute", "collective")
            if not any(overlaps(kernel.span, answer.window) for kernel in kernels):
                continue
            gaps = find_gaps(answers, answer, host, device)
            sums = _sums(device, collectives, gaps, spans)
            count = len(spans)
            whole = sum(end - start for start, end in spans)
            assert sum(sums.values()) == whole
            mean = _mean(sums, count)
            awaited = _awaited(answer, device, every_device, collectives, has_steps=has_steps)
            rows.append(
                {
                    "device": names[id(device)],
                    "host": answer.host.name,
                    "step_count": count if has_steps else 0,
                    "step_ps": whole // count,
                    "activity": {key: mean[key] for key in ACTIVITIES if mean[key]},
                    "idle": {
                        cause: mean[f"idle {cause}"] for cause in CAUSES if mean[f"idle {cause}"]
                    },
                    "waits_for": names[id(awaited[0])] if awaited else None,
                    "waits_for_ratio": awaited[1] if awaited else None,
                }
            )
    return rows


def _used(answer: HostAnswer) -> list[Interval]:
    """The used steps, each cut to the window."""
    low, high = answer.window
    steps = [(max(s.start, low), min(s.end, high)) for s in answer.steps if s.used]
    return [(start, end) for start, end in steps if start < end]


def _sums(
    device: Device, collectives: list[Collective], gaps: list[Gap], spans: list[Interval]
) -> dict[str, int]:
    """Every part over all spans."""
    sums = dict.fromkeys((*ACTIVITIES, *(f"idle {cause}" for cause in CAUSES)), 0)
    transfers = []
    for collective in collectives:
        for part in collective.parts:
            if part.device is device:
                start, end = part.activity.span
                known = collective.transfer if collective.complete else end - start
                transfers.append((max(start, end - known), end))
    compute = [activity.span for activity in device.of_class("compute")]
    for span in spans:
        above: list[Interval] = []
        for cls in CLASSES:
            own = clip([activity.span for activity in device.of_class(cls)], span)
            exposed = length(subtract(own, above))
            above += own
            if cls == "collective":
                transfer = length(subtract(clip(transfers, span), compute))
                sums["collective"] += transfer
                sums["collective_wait"] += exposed - transfer
            else:
                sums[cls] += exposed
        for gap in gaps:
            for start, end, cause in gap.parts:
                sums[f"idle {cause}"] += length(clip([(start, end)], span))
    return sums


def _mean(sums: dict[str, int], count: int) -> dict[str, int]:
    """Parts that sum to the rounded mean: each is the difference of two rounded means of sums."""
    mean, before = {}, 0
    for key, value in sums.items():
        mean[key] = (before + value) // count - before // count
        before += value
    return mean


def _awaited(
    answer: HostAnswer,
    device: Device,
    devices: list[Device],
    collectives: list[Collective],
    *,
    has_steps: bool,
) -> tuple[Device, Fraction] | None:
    """The device that came last where this one waited longest, and its share of the waiting."""
    low, high = answer.window
    waits: list[tuple[Device | None, int]] = []
    for collective in collectives:
        for part in collective.parts:
            if part.device is not device or not collective.complete:
                continue
            in_step = part.step is not None and part.step.used
            in_window = part.start < high and part.end > low
            if in_step if has_steps else in_window:
                members = [other.device for other in collective.parts]
                wait = part.end - part.start - collective.transfer
                waits.append((collective.last(members), wait))
    by_device: dict[int, tuple[Device, int]] = {}
    for last, wait in waits:
        if last is not None and last is not device and wait:
            by_device[id(last)] = (last, by_device.get(id(last), (last, 0))[1] + wait)
    if not by_device:
        return None
    # Of equal sums the first device: `max` keeps the first of equals.
    in_order = [by_device[id(other)] for other in devices if id(other) in by_device]
    longest = max(in_order, key=lambda pair: pair[1])
    return longest[0], Fraction(longest[1], sum(wait for _, wait in waits))
