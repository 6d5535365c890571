"""Says in one sentence whether the step became slower or faster, by how much, how sure that is, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from traceview.analysis.rules.words import Line, line_words, tokens_of
from traceview.analysis.workload.parts import AlikeLayers, alike_layers
from traceview.comparison.model import (
    Comparison,
    DeviceDifference,
    OpDifference,
    StateDifference,
    WorkDifference,
)
from traceview.comparison.noise import ENOUGH, ENOUGH_RUNS, SHOW_NOTHING, TOO_NOISY
from traceview.comparison.sides import CLEAR_PART
from traceview.document import numbers
from traceview.document.phrase import plain
from traceview.document.sanitize import shortened
from traceview.ledger.states import BY_KEY, MEANINGS, State

_WHOLE_SHARE: Final = 0.75
"""Of the difference: a reason that makes this much of it needs no second."""
_DEVICE_SHARE: Final = 0.5
"""Of the largest difference of a device: a device with this much of it is named."""
_OP_SHARE: Final = 0.5
"""Of the difference of compute: an op with this much of it is named instead."""
_CONSEQUENCES: Final = (State.DEVICE_WAIT, State.TURN, State.NO_WORK)
"""Waits that the change of another device causes: named after that change."""
_MOST_DEVICES: Final = 60
"""Characters of a list of devices in a sentence."""
_LONGEST_OP: Final = 50
_MOST_REASONS: Final = 2
"""The second one is left out where the first is nearly all. A choice of ours."""


class _Reason(NamedTuple):
    """Why the steps differ: how much of it, in words; `is_consequence`: it waits for what another device does longer."""

    ps: int
    words: str
    is_consequence: bool = False


def verdict_of(comparison: Comparison, different: Sequence[str] = ()) -> str:
    """The sentence, without a full stop; `different`: in what the steps are not the same work, so that times say nothing."""
    step, reasons = comparison.step, ", and ".join(_reasons(comparison))
    times, gone = _times(step.before_ps, step.after_ps), _gone(comparison)
    inside, what = "", f"{times} per step"
    if different:
        work = f"The runs do different work ({', '.join(different)})"
        return f"{work}, so their step times do not compare: {what}{gone}"
    if step.measure == "typical":
        inside = f". A few slow steps distort the mean step: {times}"
        times = _times(step.typical_before_ps, step.typical_after_ps)
        what = f"{times}, the typical step, without the slowest third"
    if step.is_probable:
        change = "faster" if step.ratio < 0 else "slower"
        differs = f": {reasons}" if reasons else ""
        return f"{what}, probably {change}{differs}{gone}. {_unproved(comparison, 'it')}"
    if step.direction not in ("slower", "faster"):
        shown = step.least_shown_ratio
        verdict = "No verdict" if shown is None or shown >= TOO_NOISY else "No clear change"
        return f"{verdict}: {what}. {_least_shown(comparison)}{inside}{gone}"
    because = f", because {reasons}{gone}" if reasons else f"{gone}{inside}"
    subject = "step" if step.measure == "mean" else "typical step, without the slowest third,"
    words = (
        f"{ratio_words(step.ratio)}: {times} ({interval_words(step.low_ratio, step.high_ratio)})"
    )
    return f"The {subject} takes {words}{because}"


def _gone(comparison: Comparison) -> str:
    words = ""
    for status, text in (("gone", "no longer used"), ("new", "used only after")):
        keys = [device.device for device in comparison.devices if device.status == status]
        if keys:
            words += f"; {text}: {numbers.joined_devices(keys)}"
    return words


def ratio_words(ratio: float) -> str:
    """What takes another time takes: `12% more time`, `46% less time`, from twice on `2.5 times as long`."""
    if ratio >= 1:
        return f"{_times_as(ratio)} times as long"
    return f"{numbers.percent(abs(ratio))} {'more' if ratio > 0 else 'less'} time"


def _times_as(ratio: float) -> str:
    times = 1 + ratio
    if times < 2:
        return f"{times:.3g}"  # 1.04 is not 1
    return f"{times:.2g}" if times < 99.5 else f"{times:,.0f}"


def _times(before_ps: int, after_ps: int) -> str:
    """`41.2 → 36.3 ms`: the unit once where it is the same."""
    before, after = numbers.time(before_ps), numbers.time(after_ps)
    unit = f" {after.rpartition(' ')[2]}"
    return f"{before.removesuffix(unit)} → {after}"


def interval_words(low: float | None, high: float | None) -> str:
    """`95% interval +10.0% to +14.0%`, from twice as long on `95% interval 1.4 to 4.8 times`."""
    if low is not None and high is not None and high >= 1:
        return f"95% interval {_times_as(low)} to {_times_as(high)} times"
    return f"95% interval {numbers.signed_share(low)} to {numbers.signed_share(high)}"


def _least_shown(comparison: Comparison) -> str:
    """Which change such runs show, and how to show a smaller one."""
    shown = comparison.step.least_shown_ratio
    if shown is None:
        return "A single step on a side shows no noise: capture ten or more"
    if shown < TOO_NOISY:
        return f"These runs would show a change of {numbers.percent(shown)} or more"
    return _unproved(comparison, f"a change{below_words(shown)}")


def below_words(shown: float) -> str:
    """Which changes runs cannot prove that show one of this size."""
    least = ratio_words(shown).removesuffix(" more time")
    return "" if shown >= SHOW_NOTHING else f" below {least}"


def _unproved(comparison: Comparison, what: str) -> str:
    """What the captures cannot prove, and what may."""
    # Where the noise is assumed, a limit of the comparison says so, with the advice.
    if comparison.step.basis == "assumed":
        return f"One capture of a side cannot prove {what}"
    is_few = min(len(comparison.before), len(comparison.after)) < ENOUGH_RUNS
    return f"These runs differ too much to prove {what}{f': {ENOUGH}' if is_few else ''}"


class _Change(NamedTuple):
    """How much longer some devices are in a state; `who`: in a sentence, empty without any; `is_of_all`: no other device."""

    row: StateDifference
    ps: int
    who: str
    is_of_all: bool = True

    @property
    def state(self) -> State:
        return BY_KEY[self.row.state]


def _change_of(row: StateDifference, devices: Sequence[DeviceDifference]) -> _Change:
    """The devices whose states differ by at least half as much as that of the first of them, and their mean."""
    sign = 1 if row.difference_ps > 0 else -1
    by_device = {
        device.device: sign * state.difference_ps
        for device in devices
        if device.status == "both"
        for state in device.states
        if state.state == row.state
    }
    most = max(by_device.values(), default=0)
    named = [key for key, ps in by_device.items() if ps > 0 and ps >= _DEVICE_SHARE * most]
    if not named:
        return _Change(row, row.difference_ps, "")
    is_of_all = len(named) == len(devices)
    who = numbers.joined_devices(named)
    if is_of_all and len(named) > 1:
        noun = named[0].rpartition("/")[2].partition(":")[0]
        who = f"{'both' if len(named) == 2 else f'all {len(named)}'} {noun}s"
    elif len(who) > _MOST_DEVICES:
        who = f"{len(named)} devices"
    mean_ps = sum(by_device[key] for key in named) // len(named)
    return _Change(row, sign * mean_ps, who, is_of_all)


def _reasons(comparison: Comparison) -> list[str]:
    """What makes most of the difference of the mean step, whatever its noise: findings, and states that none is about."""
    whole = comparison.step.difference_ps
    if comparison.step.measure == "typical":
        return []

    def is_part(ps: int) -> bool:
        return ps * whole > 0 and abs(ps) >= CLEAR_PART * abs(whole)

    findings = [row for row in comparison.findings if row.clause and is_part(row.difference_ps)]
    reasons = [_Reason(abs(row.difference_ps), row.clause) for row in findings]
    explained = {state for row in findings for state in row.states}
    for row in comparison.states:
        change = _change_of(row, comparison.devices)
        if is_part(change.ps) and row.state not in explained:
            words = _clause(change, comparison)
            reasons.append(_Reason(abs(change.ps), words, change.state in _CONSEQUENCES))
    reasons.sort(key=lambda reason: (reason.is_consequence, -reason.ps))
    is_enough = bool(reasons) and reasons[0].ps >= _WHOLE_SHARE * abs(whole)
    return [reason.words for reason in reasons[: 1 if is_enough else _MOST_REASONS]]


def _clause(change: _Change, comparison: Comparison) -> str:
    """`GPU:0–3 wait 5.1 ms less for input`."""
    amount, longer = numbers.time(abs(change.ps)), "longer" if change.ps > 0 else "less"
    who = change.who or "the devices"
    s = "s" if who.count(":") == 1 and not set(who) & set(",–") else ""
    known = MEANINGS[change.state]
    if change.state is State.COMPUTE:
        return _work_clause(change, comparison, longer) or f"{who} compute{s} {amount} {longer}"
    if not known.phrase or change.state is State.H2D:
        verb = "take" if known.name.endswith("s") else "takes"
        return f"{known.name} {verb} {amount} {longer}"
    line = Line(change.row.line) if change.row.line else None
    where = f", {plain(tuple(tokens_of(line)))}" if line else ""
    if change.state in (State.NO_WORK, State.UNKNOWN):
        return f"{who} idle{s} {amount} {longer} {known.phrase}{where}"
    more = "more" if change.ps > 0 else "less"
    return f"{who} wait{s} {amount} {more} {known.phrase}{where}"


def _work_clause(change: _Change, comparison: Comparison, longer: str) -> str | None:
    """What made the compute differ, the function or layer rather than the op."""
    for works in (comparison.parts, [op for op in comparison.ops if op.class_ == "compute"]):
        work = max(works, key=lambda work: abs(work.path_ps), default=None)
        known = work_words(work) if work else ""
        if work is None or not known or work.status == "same":
            continue
        if work.path_ps * change.ps <= 0 or abs(work.path_ps) < _OP_SHARE * abs(change.ps):
            continue
        # What differs on all devices is in the table, too.
        differs_ps = work.difference_ps if change.is_of_all else work.path_ps
        shown, own = shortened(known, _LONGEST_OP), numbers.time(abs(differs_ps))
        if work.status == "new":
            return f"the new {shown} takes {own}"
        if work.status == "gone":
            return f"{shown} is gone, which took {own}"
        return f"{shown} takes {own} {longer}{'' if change.is_of_all else f' on {change.who}'}"
    return _layers_clause(change, comparison, longer)


def _layers_clause(change: _Change, comparison: Comparison, longer: str) -> str | None:
    """`12 layers net/block* take 8.90 ms longer`, where these make most of what the compute differs."""
    sign = 1 if change.ps > 0 else -1
    differs, together = Counter[str](), Counter[AlikeLayers]()
    for work in comparison.parts:
        if work.layer and sign * work.difference_ps > 0:
            differs[work.layer] += sign * work.difference_ps
    for layer, layers in alike_layers(differs, abs(change.ps)).items():
        together[layers] += differs[layer]
    for layers, ps in together.most_common(1):
        if ps >= _OP_SHARE * abs(change.ps):
            count = numbers.plural(layers.layer_count, "layer")
            verb = "takes" if layers.layer_count == 1 else "take"
            return (
                f"{count} {shortened(layers.name, _LONGEST_OP)} {verb} {numbers.time(ps)} {longer}"
            )
    return None


def work_words(work: WorkDifference) -> str:
    """`loss, train.py:31` or `conv/1`; of an op first its name."""
    name = (work.op or work.kernel) if isinstance(work, OpDifference) else None
    line = line_words(work.source_line) if work.source_line else None
    return ", ".join(filter(None, (name, work.layer, line)))
