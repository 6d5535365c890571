"""Recomputes the numbers of `results.balance` that compare devices (docs/method.md, "Balance")."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from tests.oracle.intervals import Interval, clip, length
from tests.oracle.model import Device, HostAnswer, Row, device_name

if TYPE_CHECKING:
    from tests.oracle.segments import Ledger

KINDS = ("gpu", "tpu", "replica")


def balance_row(answers: list[HostAnswer], ledger: Ledger, several: bool) -> Row | None:
    """None if no device computed in its window."""
    # Devices with compute of one kind: GPUs before TPUs before replicas.
    at_work = [
        (answer, device)
        for answer in answers
        for device in sorted(answer.devices, key=lambda device: device.ordinal)
        if _computed(device, answer.window)
    ]
    kinds = [kind for kind in KINDS if any(device.kind == kind for _, device in at_work)]
    if not kinds:
        return None
    at_work = [(answer, device) for answer, device in at_work if device.kind == kinds[0]]
    concurrency = chance = None
    # Times of several hosts are compared if their collectives show that the clocks agree.
    hosts = {answer.host.name: answer for answer, _ in at_work}
    agree = len(hosts) == 1 or sum(not answer.shares_ends for answer in hosts.values()) <= 1
    if len(at_work) > 1 and agree:
        spans = [_spans(device) for _, device in at_work]
        overlap = overlap_of(spans, list(hosts.values()))
        concurrency, chance = overlap.ratio, overlap.chance
    return {
        "kind": kinds[0],
        "concurrency_ratio": concurrency,
        "chance_ratio": chance,
        "devices": [
            {
                "device": device_name(device, several)["device"],
                "compute_ps_per_step": _mean_compute(answer, device, ledger),
            }
            for answer, device in at_work
        ],
    }


class Overlap(NamedTuple):
    """How much devices compute at the same time, and how much by chance."""

    ratio: Fraction
    chance: Fraction


def overlap_of(spans: list[list[Interval]], answers: list[HostAnswer]) -> Overlap:
    """Of devices that compute in these spans, on hosts with these answers."""
    parts = [
        (min(step.start for step in same), max(step.end for step in same))
        for number in {step.number for answer in answers for step in answer.steps if step.used}
        for same in [
            [
                step
                for answer in answers
                for step in answer.steps
                if step.used and step.number == number
            ]
        ]
    ]
    shared = [part for part in parts if sum(length(clip(own, part)) > 0 for own in spans) > 1]
    if 2 * len(shared) < max(len(parts), 1):
        windows = [answer.window for answer in answers]
        parts = [(min(start for start, _ in windows), max(end for _, end in windows))]
    of_part = [[length(clip(own, part)) for own in spans] for part in parts]
    every = [span for own in spans for span in own]
    together = sum(length(clip(every, part)) for part in parts)
    possible = [sum(lengths) - max(lengths) for lengths in of_part]
    seen = clip(every, (min(start for start, _ in parts), max(end for _, end in parts)))
    step = Fraction(max(end for _, end in seen) - min(start for start, _ in seen), len(parts))
    weighed = sum(some * max(lengths) for some, lengths in zip(possible, of_part, strict=True))
    return Overlap(
        Fraction(sum(map(sum, of_part)) - together, sum(possible)),
        weighed / (sum(possible) * step),
    )


def _mean_compute(answer: HostAnswer, device: Device, ledger: Ledger) -> int | None:
    """The mean of the state `compute` in the used steps, rounded down."""
    count = sum(step.used for step in answer.steps)
    own = [
        one.length
        for one in ledger.segments[id(device)]
        if one.state == "compute" and ledger.counts(one)
    ]
    return sum(own) // count if count else None


def _spans(device: Device) -> list[Interval]:
    return [activity.span for activity in device.of_class("compute")]


def _computed(device: Device, window: Interval) -> int:
    return length(clip(_spans(device), window))
