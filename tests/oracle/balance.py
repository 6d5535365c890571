"""Recomputes the numbers of `results.balance` that compare devices (docs/method.md, "Balance")."""

from __future__ import annotations

from fractions import Fraction
from statistics import median

from tests.oracle.collectives import find_collectives
from tests.oracle.host_causes import HostCauses
from tests.oracle.idle import find_gaps
from tests.oracle.intervals import Interval, clip, length, subtract
from tests.oracle.model import Device, HostAnswer, Row, device_name

KINDS = ("gpu", "tpu", "replica")
AtWork = list[tuple[HostAnswer, Device]]


def balance_row(answers: list[HostAnswer], several: bool) -> Row | None:
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
    inside = [clip(_spans(device), answer.window) for answer, device in at_work]
    lengths = [length(spans) for spans in inside]
    effective = sum(
        Fraction(own, answer.window[1] - answer.window[0])
        for own, (answer, _) in zip(lengths, at_work, strict=True)
    )
    visible = sum(device.kind == kinds[0] for answer in answers for device in answer.devices)
    together = [span for spans in inside for span in spans]
    numbers = _common_steps([answer for answer, _ in at_work])
    per_step = [
        [_computed(device, _bounds(answer, number)) for number in numbers]
        for answer, device in at_work
    ]
    concurrency = chance = None
    # Times of several hosts are compared if their collectives show that the clocks agree.
    hosts = {answer.host.name: answer for answer, _ in at_work}
    agree = len(hosts) == 1 or sum(not answer.shares_ends for answer in hosts.values()) <= 1
    if len(at_work) > 1 and agree:
        concurrency = Fraction(sum(lengths) - length(together), sum(lengths) - max(lengths))
        first, last = min(a for a, _ in together), max(b for _, b in together)
        chance = Fraction(max(lengths), last - first)
    return {
        "kind": kinds[0],
        "visible_count": visible,
        "step_count": len(numbers),
        "skew_ratio": _skew(per_step),
        "concurrency_ratio": concurrency,
        "chance_ratio": chance,
        "mean_saved_ps": _saved(answers, at_work, agree=agree),
        "effective_gpus": effective,
        "efficiency_ratio": effective / visible,
        "devices": [
            {
                "device": device_name(device, several)["device"],
                "compute_ps_per_step": int(median(own)) if own else None,
                "compute_ps": own,
            }
            for (_, device), own in zip(at_work, per_step, strict=True)
        ],
    }


def _saved(answers: list[HostAnswer], at_work: AtWork, *, agree: bool) -> dict[str, int]:
    """What each step is longer than without the moments in which a problem occurs anywhere, mean over the steps."""
    moments = {
        id(device): _moments(answers, answer, device)
        for answer, device in at_work
        if any(step.used for step in answer.steps)
    }
    saved: dict[str, list[int]] = {}
    for answer in {id(answer): answer for answer, _ in at_work}.values():
        near = [device for other, device in at_work if agree or other is answer]
        own = [device for other, device in at_work if other is answer]
        for step in answer.steps:
            if not step.used:
                continue
            bounds = step.start, step.end
            most = step.end - step.start - max(_computed(device, bounds) for device in own)
            for name in ("no_input_wait", "no_exposed_collectives", "no_exposed_copies"):
                spans = [span for device in near for span in moments[id(device)][name]]
                saved.setdefault(name, []).append(min(length(clip(spans, bounds)), most))
    return {name: sum(of_steps) // len(of_steps) for name, of_steps in saved.items()}


def _moments(
    answers: list[HostAnswer], answer: HostAnswer, device: Device
) -> dict[str, list[Interval]]:
    """When each problem occurs on a device."""
    idle: dict[str, list[Interval]] = {}
    for gap in find_gaps(answers, answer, HostCauses(answer), device):
        for start, end, cause in gap.parts:
            idle.setdefault(cause, []).append((start, end))
    transfers = [
        (max(start, end - collective.transfer) if collective.complete else start, end)
        for collective in find_collectives(answers)
        for part in collective.parts
        if part.device is device
        for start, end in [part.activity.span]
    ]
    copies = [activity.span for activity in device.of_class("h2d", "d2h", "d2d")]
    kernels = [activity.span for activity in device.of_class("compute", "collective")]
    held_up = idle.get("peer", []) if device.kind != "replica" else []
    return {
        "no_input_wait": idle.get("input", []),
        "no_exposed_collectives": subtract(transfers, _spans(device)) + held_up,
        "no_exposed_copies": subtract(copies, kernels) + idle.get("h2d", []),
    }


def _spans(device: Device) -> list[Interval]:
    return [activity.span for activity in device.of_class("compute")]


def _computed(device: Device, window: Interval) -> int:
    return length(clip(_spans(device), window))


def _common_steps(answers: list[HostAnswer]) -> list[int]:
    """The used steps whose number all hosts have."""
    used = [{step.number for step in answer.steps if step.used} for answer in answers]
    return sorted(set.intersection(*used))


def _bounds(answer: HostAnswer, number: int) -> Interval:
    (step,) = [step for step in answer.steps if step.number == number]
    return step.start, step.end


def _skew(per_step: list[list[int]]) -> Fraction | None:
    """The median ratio over the steps; a step in which the middle device computed nothing has none."""
    if len(per_step) < 2:
        return None
    ratios = [
        Fraction(max(of_step)) / Fraction(median(map(Fraction, of_step)))
        for of_step in zip(*per_step, strict=True)
        if median(of_step)
    ]
    return median(ratios) - 1 if ratios else None
