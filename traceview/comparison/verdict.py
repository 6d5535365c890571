"""Says in one sentence whether the step became slower or faster, by how much, how sure that is, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.comparison.difference import ASKED_RATIO
from traceview.comparison.model import (
    DeviceDifference,
    OpDifference,
    PartDifference,
    StepDifference,
)
from traceview.document import numbers
from traceview.document.sanitize import shortened
from traceview.document.vocabulary import PATH_PARTS, look_of

_LEAST_SHARE: Final = 0.25
"""Of the difference: a part below this is no reason worth a clause."""
_WHOLE_SHARE: Final = 0.75
"""Of the difference: parts that make this much of it are the reason."""
_CANCEL_RATIO: Final = 0.02
"""Of the step: opposite changes of this size are named where the step does not change."""
_DEVICE_SHARE: Final = 0.5
"""Of the difference of the path: a device with this much of it is named."""
_OP_SHARE: Final = 0.6
"""Of the difference of a class: an op with this much of it is named instead."""
_MOST_DEVICES: Final = 60
"""Characters of a list of devices in a sentence."""
_LONGEST_OP: Final = 50
_OF_PYTHON: Final = ("callback", "python", "sync", "checkpoint")
"""Causes of which a line of the program says more than their name."""


def verdict_of(
    step: StepDifference,
    parts: Sequence[PartDifference],
    devices: Sequence[DeviceDifference],
    ops: Sequence[OpDifference],
) -> str:
    """The sentence."""
    return f"{_step_sentence(step, parts, devices, ops)}{_gone(devices)}"


def verdict_on_one_run(step: StepDifference) -> str:
    """The sentence where there is nothing to compare."""
    return f"Both sides are one run, so nothing can differ: {numbers.time(step.after_ps)} per step"


def _gone(devices: Sequence[DeviceDifference]) -> str:
    """The devices that one side alone uses."""
    words = ""
    for status, text in (("gone", "no longer used"), ("new", "used after alone")):
        keys = [device.device for device in devices if device.status == status]
        if keys:
            words += f"; {text}: {numbers.joined_devices(keys)}"
    return words


def _step_sentence(
    step: StepDifference,
    parts: Sequence[PartDifference],
    devices: Sequence[DeviceDifference],
    ops: Sequence[OpDifference],
) -> str:
    times = f"{_times(step.before_ps, step.after_ps)} per step"
    if not _is_shown(step):
        cancelling = _cancelling(step, parts, devices, ops)
        return f"No difference shown: {times}{_least_shown(step)}{cancelling}"
    reasons = _reasons(step, parts, devices, ops)
    because = f", because {_joined(reasons)}" if reasons else ""
    mean = "" if step.is_mean_shown else "mean "
    return f"{_change(step)}: {mean}{times} ({_interval(step)}){because}"


def change_words(step: StepDifference) -> str:
    """`12% faster`, `no difference shown`."""
    return _change(step) if _is_shown(step) else "no difference shown"


def interval_words(step: StepDifference) -> str:
    """`95% interval 10–14%`, or that there is none."""
    return _interval(step)


def percent(ratio: float) -> str:
    """A share with two significant digits: `4.2%`, `12%`, `0.35%`."""
    value = abs(ratio) * 100
    return (
        f"{value:.0f}%" if value >= 9.95 else f"{value:.1f}%" if value >= 0.95 else f"{value:.2g}%"
    )


def _is_shown(step: StepDifference) -> bool:
    return step.direction != "none" and (bool(step.difference_ps) or not step.is_mean_shown)


def ratio_words(ratio: float) -> str:
    """A change as a share of what was before: `12% slower`; from twice on `2.5 times as long`, or `2.5 times as fast`.

    So what is there and back has one number.
    """
    if _is_in_times(ratio):
        return f"{_times_as(ratio)} times as {'long' if ratio > 0 else 'fast'}"
    return f"{percent(ratio)} {'slower' if ratio > 0 else 'faster'}"


def _is_in_times(ratio: float) -> bool:
    return ratio >= 1 or -1 < ratio <= -0.5


def _times_as(ratio: float) -> str:
    """How many times as long, or as fast where it is shorter."""
    times = 1 + ratio if ratio > 0 else 1 / (1 + ratio)
    return f"{times:.2g}" if times < 99.5 else f"{times:,.0f}"


def _change(step: StepDifference) -> str:
    if not step.is_mean_shown and step.typical_ratio is not None:
        return f"The typical step is {ratio_words(step.typical_ratio)}"
    if step.ratio is None:
        word = "slower" if step.difference_ps > 0 else "faster"
        return f"{numbers.time(abs(step.difference_ps))} {word}"
    return ratio_words(step.ratio)


def _times(before_ps: int, after_ps: int) -> str:
    """`41.2 → 36.3 ms`: the unit once where it is the same."""
    before, after = numbers.time(before_ps), numbers.time(after_ps)
    unit = f" {after.rpartition(' ')[2]}"
    return f"{before.removesuffix(unit)} → {after}"


def _interval(step: StepDifference) -> str:
    if step.direction == "unknown":
        return "a single step shows no noise, so this may be chance"
    ratio, low, high = step.ratio, step.low_ratio, step.high_ratio
    if step.direction != "none" and not step.is_mean_shown:
        ratio, low, high = step.typical_ratio, step.typical_low_ratio, step.typical_high_ratio
    if low is None or high is None:
        return "the interval is wider than the step"
    words = f"95% interval {_range(ratio, low, high)}"
    return words if step.is_over_runs else f"{words} for these two runs"


def _range(ratio: float | None, low: float, high: float) -> str:
    if low < 0 < high:
        return f"{numbers.signed_share(low)} to {numbers.signed_share(high)}"
    ends = sorted((low, high), key=abs)
    if ratio is not None and _is_in_times(ratio):
        if min(ends) <= -1:
            return f"{_times_as(ends[0])} times or more"
        return f"{_times_as(ends[0])} to {_times_as(ends[1])} times"
    least, most = (percent(end) for end in ends)
    return least if least == most else f"{least.removesuffix('%')}–{most}"


def _least_shown(step: StepDifference) -> str:
    """What such runs show, and how many more would show."""
    if step.least_shown_ratio is None:
        return ""
    least = "0.1%" if step.least_shown_ratio < 0.001 else percent(step.least_shown_ratio)
    needed = ""
    if step.needed_captures is not None:
        seen = abs(step.ratio or 0.0)
        asked = percent(seen) if seen > ASKED_RATIO else f"{ASKED_RATIO:.0%}"
        needed = f"; to show {asked}, compare about {step.needed_captures} captures of each side"
    elif step.needed_steps is not None:
        needed = f"; to show {ASKED_RATIO:.0%}, record about {step.needed_steps} steps of each side"
    return f"; these runs can only show a change of {least} or more{needed}"


def _reasons(
    step: StepDifference,
    parts: Sequence[PartDifference],
    devices: Sequence[DeviceDifference],
    ops: Sequence[OpDifference],
) -> list[str]:
    """The parts that make most of the difference, largest first; none where the mean differs the other way."""
    whole = step.difference_ps
    if whole * (1 if step.direction == "slower" else -1) < 0 and step.direction != "unknown":
        return []
    same = [part for part in parts if part.difference_ps * whole > 0]
    reasons = []
    covered = 0
    for part in same[:2]:
        if abs(part.difference_ps) >= _LEAST_SHARE * abs(whole) and (
            covered < _WHOLE_SHARE * abs(whole)
        ):
            reasons.append(_clause(part, devices, ops))
            covered += abs(part.difference_ps)
    return reasons


def _cancelling(
    step: StepDifference,
    parts: Sequence[PartDifference],
    devices: Sequence[DeviceDifference],
    ops: Sequence[OpDifference],
) -> str:
    """What changed in opposite directions, each beyond its own noise."""
    least = _CANCEL_RATIO * step.before_ps
    shown = [
        part
        for part in parts
        if part.direction in ("slower", "faster") and abs(part.difference_ps) >= least
    ]
    more = next((part for part in shown if part.difference_ps > 0), None)
    less = next((part for part in shown if part.difference_ps < 0), None)
    if more is None or less is None:
        return ""
    clauses = [_clause(part, devices, ops) for part in (more, less)]
    return f". Two changes cancel: {clauses[0]}, and {clauses[1]}"


def _joined(clauses: Sequence[str]) -> str:
    return ", and ".join(clauses)


def _clause(
    part: PartDifference, devices: Sequence[DeviceDifference], ops: Sequence[OpDifference]
) -> str:
    """`GPU:0–3 wait 5.1 ms less for input`."""
    amount = numbers.time(abs(part.difference_ps))
    is_more = part.difference_ps > 0
    longer, more = ("longer" if is_more else "less"), ("more" if is_more else "less")
    named = _devices_of(part, devices)
    who, is_one = (
        (named, ":" in named and not set(named) & set(",–;")) if named else ("the step", True)
    )
    s = "s" if is_one else ""
    if part.cause == "compute":
        return _op_clause(part, ops, amount, longer) or f"{who} compute{s} {amount} {longer}"
    if part.cause == "collective":
        return f"communication takes {amount} {longer}"
    if part.cause in ("h2d", "d2h", "d2d", "memset"):
        return f"{look_of(PATH_PARTS, part.cause).words} take {amount} {longer}"
    if part.cause == "input":
        return f"{who} wait{s} {amount} {more} for input"
    if part.cause == "peer":
        return f"{who} wait{s} {amount} {more} for another device"
    if part.cause == "unattributed":
        return f"{who} idle{s} {amount} {longer} without a recorded cause"
    line = f" ({part.python})" if part.python and part.cause in _OF_PYTHON else ""
    return f"{who} lose{s} {amount} {more} to {look_of(PATH_PARTS, part.cause).words}{line}"


def _op_clause(
    part: PartDifference, ops: Sequence[OpDifference], amount: str, longer: str
) -> str | None:
    """The one op that makes most of the difference of compute."""
    for op in ops[:1]:
        name = op.op or op.kernel
        if name is None or op.class_ != part.cause or op.status == "same":
            return None
        if op.path_ps * part.difference_ps <= 0 or (
            abs(op.path_ps) < _OP_SHARE * abs(part.difference_ps)
        ):
            return None
        shown = shortened(name, _LONGEST_OP)
        own = numbers.time(abs(op.path_ps))
        if op.status == "new":
            return f"{'' if op.left_out_ps else 'the new '}{shown} takes {own}"
        if op.status == "gone" and not op.left_out_ps:
            return f"{shown} is gone, which took {own}"
        of_shape = ", with inputs of another shape," if op.status == "reshaped" else ""
        return f"{shown}{of_shape} takes {own} {longer}"
    return None


def _devices_of(part: PartDifference, devices: Sequence[DeviceDifference]) -> str:
    """The devices whose mean steps differ by this part, too; empty where none does, or too many to name."""
    keys = [
        device.device
        for device in devices
        if device.status == "both"
        and any(
            row.part == part.cause
            and row.difference_ps * part.difference_ps > 0
            and abs(row.difference_ps) >= _DEVICE_SHARE * abs(part.difference_ps)
            for row in device.parts
        )
    ]
    named = numbers.joined_devices(keys)
    if len(named) > _MOST_DEVICES:
        return "" if len(keys) < len(devices) else f"all {len(keys)} devices"
    return named
