"""Says in one sentence whether the step became slower or faster, by how much, how sure that is, and why.

Below the verdict stand one table of states, then ops and findings, for every printer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from traceview.analysis.gpu_time.device_states import DeviceStates, anatomy_rows
from traceview.analysis.rules.words import Line, line_words, tokens_of
from traceview.comparison.model import (
    LONGEST_VALUE,
    ComparedRun,
    Comparison,
    DeviceDifference,
    FindingDifference,
    OpDifference,
    PartDifference,
    StateDifference,
    StepDifference,
    WorkDifference,
)
from traceview.comparison.noise import ENOUGH, ENOUGH_RUNS, SHOW_NOTHING, TOO_NOISY, Direction
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, table
from traceview.document.phrase import plain
from traceview.document.sanitize import shortened
from traceview.document.vocabulary import CLASSES, STATES, Look, look_of
from traceview.ledger.states import BY_KEY, MEANINGS, State

# The verdict

_LEAST_REASON: Final = 0.25
"""Of the difference: a state below this is no reason worth a clause."""
_WHOLE_SHARE: Final = 0.75
"""Of the difference: states that make this much of it are the reason."""
_CHANGED_RATIO: Final = 0.02
"""Of the step: changes of this size are named where the step does not change."""
_PROBABLE_RATIO: Final = 0.25
"""Of the step before: a difference between any two captures that is hardly chance, though nothing shows that; a choice of ours."""
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


def verdict_of(comparison: Comparison) -> str:
    """The sentence on runs of the same work, without a full stop."""
    step, reasons = comparison.step, ", and ".join(_reasons(comparison))
    times, gone = f"{_times(step)} per step", _gone(comparison)
    if step.direction not in ("slower", "faster"):
        shown, ratio = step.least_shown_ratio, step.change_ratio or 0.0
        if _is_probable(comparison):
            change = "faster" if ratio < 0 else "slower"
            differs = f": {reasons}" if reasons else ""
            return f"{times}, probably {change}{differs}{gone}. {_unproved(comparison, 'it')}"
        verdict = "No verdict" if shown is None or shown >= TOO_NOISY else "No clear change"
        return f"{verdict}: {times}. {_least_shown(comparison)}{_changed_states(comparison)}{gone}"
    because = f", because {reasons}" if reasons else ""
    # What is beyond noise may be little beside what is not.
    inside = "" if reasons else _changed_states(comparison)
    how_sure = f"({interval_words(step)}){because}{gone}{inside}"
    if step.is_mean_typical and step.change_ratio is not None:
        return f"{ratio_words(step.change_ratio)}: {times} {how_sure}"
    change = ratio_words(step.typical_change_ratio or 0.0)
    return f"The typical step, without the slowest third, is {change}: mean {times} {how_sure}"


def _is_probable(comparison: Comparison) -> bool:
    """Whether the step differs much, and so between any two captures of both sides, though nothing shows the change."""
    step, sides = comparison.step, (comparison.before, comparison.after)
    before, after = ([run.step_ps for run in side] for side in sides)
    is_large = abs(step.change_ratio or 0.0) >= _PROBABLE_RATIO and step.basis != "none"
    return is_large and (max(before) < min(after) or max(after) < min(before))


def verdict_on_one_run(comparison: Comparison) -> str:
    """The sentence where there is nothing to compare."""
    step_ps = comparison.step.after_ps
    return f"Both sides are one run, so nothing can differ: {numbers.time(step_ps)} per step"


def verdict_on_different_work(comparison: Comparison, reasons: Sequence[str]) -> str:
    """The sentence where the steps of both sides are not the same work, so that their times say nothing of speed."""
    times = f"{_times(comparison.step)} per step{_gone(comparison)}"
    return f"The runs do different work ({', '.join(reasons)}), so their step times do not compare: {times}"


def _gone(comparison: Comparison) -> str:
    words = ""
    for status, text in (("gone", "no longer used"), ("new", "used only after")):
        keys = [device.device for device in comparison.devices if device.status == status]
        if keys:
            words += f"; {text}: {numbers.joined_devices(keys)}"
    return words


def ratio_words(ratio: float) -> str:
    """A change as a share of what was before: `12% slower`; from twice on `2.5 times as long`, or `2.5 times as fast`.

    So what is there and back has one number.
    """
    if _is_in_times(ratio):
        return f"{_times_as(ratio)} times as {'long' if ratio > 0 else 'fast'}"
    return f"{numbers.percent(abs(ratio))} {'slower' if ratio > 0 else 'faster'}"


def _is_in_times(ratio: float) -> bool:
    return ratio >= 1 or -1 < ratio <= -0.5


def _times_as(ratio: float) -> str:
    """How many times as long, or as fast where it is shorter."""
    times = 1 + ratio if ratio > 0 else 1 / max(1 + ratio, 1e-6)
    return f"{times:.2g}" if times < 99.5 else f"{times:,.0f}"


def _times(step: StepDifference) -> str:
    """`41.2 → 36.3 ms`: the unit once where it is the same."""
    before, after = numbers.time(step.before_ps), numbers.time(step.after_ps)
    unit = f" {after.rpartition(' ')[2]}"
    return f"{before.removesuffix(unit)} → {after}"


def interval_words(step: StepDifference) -> str:
    """`95% interval 10–14%` of a change that is shown, in the unit of the change."""
    ratio = (step.change_ratio if step.is_mean_typical else step.typical_change_ratio) or 0.0
    low, high = step.low_ratio or 0.0, step.high_ratio or 0.0
    ends = sorted((low, high), key=abs)
    if _is_in_times(ratio):
        words = f"{_times_as(ends[0])} to {_times_as(ends[1])} times"
    else:
        least, most = (numbers.percent(abs(end)) for end in ends)
        words = least if least == most else f"{least.removesuffix('%')}–{most}"
    return f"95% interval {words}"


def _least_shown(comparison: Comparison) -> str:
    """Which change such runs show, and how to show a smaller one."""
    shown = comparison.step.least_shown_ratio
    if shown is None:
        return "A single step on a side shows no noise: capture ten or more"
    if shown < TOO_NOISY:
        return f"These runs would show a change of {numbers.percent(shown)} or more"
    least = f"{_times_as(shown)} times as long" if shown >= 1 else numbers.percent(shown)
    below = "" if shown >= SHOW_NOTHING else f" below {least}"
    return _unproved(comparison, f"a change{below}")


def _unproved(comparison: Comparison, what: str) -> str:
    """What the captures cannot prove, and what may."""
    # Where the noise is assumed, a limit of the comparison says so, with the advice.
    if comparison.step.basis == "assumed":
        return f"One capture of a side cannot prove {what}"
    missing = ENOUGH_RUNS - min(len(comparison.before), len(comparison.after))
    more = ": a third capture of each side may" if missing == 1 else f": {ENOUGH}"
    return f"These runs differ too much to prove {what}{more if missing > 0 else ''}"


def _changed_states(comparison: Comparison) -> str:
    """The largest changes in each direction, where the step does not change; of many states some are beyond noise by
    chance, so the whole interval has to be large.
    """
    least, states = _CHANGED_RATIO * comparison.step.before_ps, comparison.states
    more = [row for row in states if row.low_ps is not None and row.low_ps >= least][:1]
    less = [row for row in states if row.high_ps is not None and row.high_ps <= -least][:1]
    clauses = [_clause(_change_of(row, comparison.devices), comparison) for row in (*more, *less)]
    if not clauses:
        return ""
    return f". {'Opposite changes' if len(clauses) > 1 else 'In it'}: {', and '.join(clauses)}"


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
    who = numbers.joined_devices(named)
    if len(who) > _MOST_DEVICES:
        who = f"{'all ' if len(named) == len(devices) else ''}{len(named)} devices"
    mean_ps = sum(by_device[key] for key in named) // len(named)
    return _Change(row, sign * mean_ps, who, is_of_all=len(named) == len(devices))


def _reasons(comparison: Comparison) -> list[str]:
    """The states that make most of the difference; none where the mean differs the other way.

    They are beyond noise, as the step is; of one that is only probably slower or faster they are what differs most.
    """
    step, whole = comparison.step, comparison.step.difference_ps
    is_shown = step.direction in ("slower", "faster")
    if is_shown and whole * (1 if step.direction == "slower" else -1) < 0:
        return []
    changes = [
        _change_of(row, comparison.devices)
        for row in comparison.states
        if (row.direction in ("slower", "faster") or not is_shown) and row.difference_ps * whole > 0
    ]
    changes = _with_cores(changes)
    changes.sort(key=lambda change: (change.state in _CONSEQUENCES, -abs(change.ps)))
    reasons: list[str] = []
    covered = 0
    for change in changes:
        is_enough = covered >= _WHOLE_SHARE * abs(whole) or len(reasons) == _MOST_REASONS
        if not is_enough and abs(change.ps) >= _LEAST_REASON * abs(whole):
            reasons.append(_clause(change, comparison))
            covered += abs(change.ps)
    return reasons


def _with_cores(changes: Sequence[_Change]) -> list[_Change]:
    """The changes, of which one is of compute with its waits for a core, where these grow with the work: it changed in step."""
    compute, waits = (
        next((change for change in changes if change.state is state), None)
        for state in (State.COMPUTE, State.NO_CORE)
    )
    if compute is None or waits is None or 2 * _change_ratio(compute) < _change_ratio(waits):
        return list(changes)
    if abs(compute.ps) < _LEAST_REASON * abs(waits.ps):  # Little work: others had the cores.
        return list(changes)
    both = compute._replace(ps=compute.ps + waits.ps)
    return [both, *(change for change in changes if change not in (compute, waits))]


def _change_ratio(change: _Change) -> float:
    """The change as a share of the longer time."""
    row = change.row
    return abs(row.difference_ps) / (max(row.before_ps, row.after_ps) or 1)


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
    first: tuple[WorkDifference, ...] = (
        *comparison.parts[:1],
        *(op for op in comparison.ops[:1] if op.class_ == "compute"),
    )
    for work in first:
        known = _work_words(work)
        if not known or work.status == "same":
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
    return None


def _work_words(work: WorkDifference) -> str:
    """`loss, train.py:31` or `conv/1`; of an op first its name."""
    if not isinstance(work, OpDifference | PartDifference):
        return ""
    name = (work.op or work.kernel or "") if isinstance(work, OpDifference) else ""
    line = line_words(work.source_line) if work.source_line else ""
    return ", ".join(filter(None, (name, work.layer, line)))


# The document

MOST_OPS: Final = 30
_BRIEF_ROWS: Final = 5
"""Rows of a table on the first screen of a terminal."""
_BRIEF_OPS: Final = 4
_BRIEF_NOTES: Final = 2
_LEAST_RATIO: Final = 0.005
"""Of the step: what differs by less is not listed; the JSON has it."""
_SHOWN_CONDITIONS: Final = 3

STATUSES: Final = {
    "slower": Look("slower", "slower", ink="red"),
    "faster": Look("faster", "faster", ink="green"),
    "new": Look("new", "new", ink="bold"),
    "gone": Look("gone", "gone", ink="bold"),
    "same": Look("same", "no difference shown", ink="dim"),
}
"""How an op changed."""

_NOISE: Final = {
    "slower": Look("beyond", "beyond", ink="red"),
    "faster": Look("beyond", "beyond", ink="green"),
    "none": Look("within", "within", ink="dim"),
    "unknown": Look("unknown", numbers.ABSENT, ink="dim"),
}
"""Whether a difference is larger than the noise of the steps explains."""


def screen_of(comparison: Comparison) -> tuple[doc.Section, ...]:
    """The screen of a terminal of 24 lines: the verdict, its largest parts and ops, and how far it can be trusted."""
    findings = comparison.findings
    hidden = len(findings) - _BRIEF_NOTES
    more = f"{numbers.plural(hidden, 'more finding')} came, went or changed" if hidden > 0 else None
    return (
        _verdict_section(
            comparison,
            *_state_table(comparison, _BRIEF_ROWS),
            *_brief_work(comparison),
            *doc.notes(*map(_finding_words, findings[:_BRIEF_NOTES]), more),
            *doc.remarks(*map(numbers.sentence, comparison.limits[:_BRIEF_NOTES])),
            *doc.remarks("Everything: `-o comparison.html`, `.md` or `.json`."),
        ),
    )


def sections_of(comparison: Comparison) -> tuple[doc.Section, ...]:
    """Everything, for a ticket: the verdict, then the details."""
    limits = doc.notes(*map(numbers.sentence, comparison.limits))
    return (_verdict_section(comparison, *limits), *_details(comparison))


def _verdict_section(comparison: Comparison, *blocks: doc.Block) -> doc.Section:
    facts = doc.facts(*_sides(comparison), *_changed(comparison))
    return doc.Section("comparison", comparison.verdict, (*facts, *blocks), is_folded=False)


def document_of(comparison: Comparison) -> doc.Document:
    """The page: both mean steps on one scale, then everything."""
    return doc.Document(
        traceview_version=comparison.traceview_version,
        summary=doc.Summary(
            run=f"{_names(comparison.before)} → {_names(comparison.after)}",
            answer=comparison.verdict,
            remarks=tuple(map(numbers.sentence, comparison.limits)),
            anatomy=tuple(_anatomy(comparison)),
        ),
        sections=tuple(_details(comparison)),
    )


def _names(runs: Sequence[ComparedRun]) -> str:
    first = shortened(runs[0].run, LONGEST_VALUE)
    return f"{first} and {len(runs) - 1} more" if len(runs) > 1 else first


def _sides(comparison: Comparison) -> Iterator[str]:
    """`before: logs/a, 12 steps`; of several captures the step of each."""
    is_same = comparison.before[0].logdir == comparison.after[0].logdir
    for name, runs in (("before", comparison.before), ("after", comparison.after)):
        steps = numbers.plural(sum(run.step_count for run in runs), "step")
        each = numbers.listed([numbers.time(run.step_ps) for run in runs])
        mean = f", mean per capture {each}" if runs[1:] else ""
        yield f"{name}: {_place(runs, has_run=is_same)}, {steps}{mean}"


def _place(runs: Sequence[ComparedRun], *, has_run: bool) -> str:
    """The log directory of the first capture of a side; `has_run`: and its run, as the other side has the same."""
    first = shortened(runs[0].logdir, LONGEST_VALUE)
    if has_run:
        first = f"{shortened(runs[0].run, LONGEST_VALUE)} in {first}"
    return (
        f"{first} and {numbers.plural(len(runs) - 1, 'more capture')}" if len(runs) > 1 else first
    )


def _changed(comparison: Comparison) -> tuple[str, ...]:
    words = [row.words for row in comparison.conditions]
    if not words:
        return ()
    hidden = len(words) - _SHOWN_CONDITIONS
    more = [f"{hidden} more"] if hidden > 0 else []
    return (f"also changed: {'; '.join([*words[:_SHOWN_CONDITIONS], *more])}",)


def _details(comparison: Comparison) -> Iterator[doc.Section]:
    for section in (
        doc.Section(
            "states",
            "States",
            _state_table(comparison, len(comparison.states)),
            lead="The mean steps of the devices by state; the differences sum to that of the steps.",
            is_folded=False,
        ),
        doc.Section(
            "parts",
            "Compute by function and layer",
            _work_table("Compute before and after", comparison, comparison.parts, _PARTS),
            lead="Compute per step and device of the functions of Python and the layers that made the ops, without waits for a core.",
            is_folded=False,
        ),
        doc.Section(
            "ops",
            "Ops and kernels",
            _work_table(_OPS_CAPTION, comparison, comparison.ops, _OPS),
            lead="Time per step and device, with waits for a core; the largest difference on the critical path first.",
        ),
        doc.Section(
            "findings-changed",
            "Findings",
            table("Findings that came, went or cost another time", comparison.findings, _FINDINGS),
        ),
        doc.Section(
            "conditions",
            "What else changed",
            table("What else is not the same on both sides", comparison.conditions, _CONDITIONS),
        ),
    ):
        if section.blocks:
            yield section


# Tables


class _StateRow(NamedTuple):
    """States that are shown together, and whether their difference is beyond noise."""

    words: str
    states: Sequence[StateDifference]
    look: Look


def _state_table(comparison: Comparison, most_rows: int) -> tuple[doc.Table, ...]:
    """The largest differences, what is left together, and the step as their sum."""
    states, step = comparison.states, comparison.step
    if not states:
        return ()
    least = _LEAST_RATIO * max(step.before_ps, step.after_ps)
    large = [row for row in states if max(row.before_ps, row.after_ps) >= least][:most_rows]
    rest = [row for row in states if row not in large]
    rows = [
        _StateRow(look_of(STATES, row.state).words, [row], _noise(comparison, row.direction))
        for row in large
    ]
    if rest:
        rows.append(_StateRow(numbers.plural(len(rest), "other state"), rest, Look("", "")))
    rows.append(_StateRow("step", states, _noise(comparison, step.direction)))
    return table("The mean step by state before and after", rows, _STATE_COLUMNS)


def _noise(comparison: Comparison, direction: Direction) -> Look:
    """Of single captures a difference that is not beyond the assumed noise is not within any that was measured either."""
    is_assumed = comparison.step.basis == "assumed" and direction == "none"
    return _NOISE["unknown" if is_assumed else direction]


_OPS_CAPTION: Final = "Ops and kernels before and after"


_OWN_RATIO: Final = 0.9
"""Of the time on both sides: with more of it in what the other side lacks they run other programs; a choice of ours."""


def _brief_work(comparison: Comparison) -> tuple[doc.Table | doc.Notes, ...]:
    """The functions and layers that differ, else the ops; without the columns that leave no room to names."""
    caption, rows, columns, what = (
        ("Compute before and after", comparison.parts, _PARTS, "function or layer")
        if any(_changed_work(comparison, comparison.parts))
        else (_OPS_CAPTION, comparison.ops, _OPS, "op")
    )
    own = [row for row in rows if row.status in ("new", "gone")]
    own_ps, whole_ps = (sum(row.before_ps + row.after_ps for row in each) for each in (own, rows))
    if own_ps > _OWN_RATIO * whole_ps and len(own) > _BRIEF_OPS:
        gone = sum(row.status == "gone" for row in own)
        of_each = f"{gone:,} gone, {len(own) - gone:,} new; all of them: -o FILE"
        return doc.notes(f"Hardly any {what} is on both sides: {of_each}.")
    shown = [column for column in columns if column.priority <= 1]
    return _work_table(caption, comparison, rows, shown, _BRIEF_OPS, "-o FILE")


def _work_table(
    caption: str,
    comparison: Comparison,
    rows: Sequence[WorkDifference],
    columns: Sequence[Shown],
    most_rows: int = MOST_OPS,
    rest: str = "the JSON",
) -> tuple[doc.Table, ...]:
    changed = list(_changed_work(comparison, rows))
    return table(caption, changed, columns, most_rows=most_rows, rest=rest)


def _changed_work(
    comparison: Comparison, rows: Iterable[WorkDifference]
) -> Iterator[WorkDifference]:
    """What differs beyond noise."""
    return (row for row in rows if row.status != "same" and _is_large(comparison, row))


def _is_large(comparison: Comparison, row: WorkDifference) -> bool:
    least = _LEAST_RATIO * comparison.step.before_ps
    return max(abs(row.difference_ps), abs(row.path_ps)) >= least


def _calls(row: WorkDifference) -> str:
    """`1 → 3` where they differ."""
    before, after = (f"{calls:.4g}" for calls in (row.before_calls, row.after_calls))
    return before if before == after else f"{before} → {after}"


def _finding_words(row: FindingDifference) -> str:
    if row.status == "changed":
        return f"changed: {row.title}; before: {numbers.time(row.before_ps)} ({row.code})"
    return f"{'new' if row.status == 'came' else 'gone'}: {row.title} ({row.code})"


_STATE_COLUMNS: Final = (
    Shown("state", "words", kind="words"),
    Shown("before", lambda row: sum(of.before_ps for of in row.states), 1, "time"),
    Shown("after", lambda row: sum(of.after_ps for of in row.states), 1, "time"),
    Shown("change", lambda row: sum(of.difference_ps for of in row.states), kind="signed_time"),
    Shown(
        "noise",
        "look",
        1,
        "look",
        "whether the difference is beyond what the noise of the steps explains",
    ),
)
_TIMES: Final = (
    Shown("before", "before_ps", 1),
    Shown("after", "after_ps", 1),
    Shown("change", "difference_ps", kind="signed_time"),
    Shown("", lambda row: STATUSES[row.status], 1, "look"),
)
_PARTS: Final = (Shown("function or layer", _work_words, kind="name"), *_TIMES)
_OPS: Final = (
    Shown("op or kernel", _work_words, kind="name"),
    *_TIMES,
    Shown("calls", _calls, 1),
    Shown("class", lambda row: look_of(CLASSES, row.class_), 5, "look"),
    Shown("kernel", lambda row: row.kernel if row.op else None, 6, "name"),
)
_FINDINGS: Final = (
    Shown("finding", "code"),
    Shown("", "status", kind="words"),
    Shown("title", "title", kind="words"),
    Shown("cost before", "before_ps", 1),
    Shown("cost after", "after_ps", 1),
    Shown("of GPU time before", "before_ratio", 2),
    Shown("of GPU time after", "after_ratio", 2),
)
_CONDITIONS: Final = (
    Shown("what", "name", kind="words"),
    Shown("before", "before"),
    Shown("after", "after"),
)


# Both mean steps on one scale


def _anatomy(comparison: Comparison) -> Iterator[doc.AnatomyRow]:
    for side in ("before", "after"):
        runs = comparison.before if side == "before" else comparison.after
        devices = tuple(
            _mean_step(device, side, sum(run.step_count for run in runs))
            for device in comparison.devices
            if device.status in ("both", "gone" if side == "before" else "new")
        )
        for row in anatomy_rows(devices):
            yield replace(row, label=f"{side}: {row.label}")


def _mean_step(device: DeviceDifference, side: str, step_count: int) -> DeviceStates:
    states = {row.state: getattr(row, f"{side}_ps") for row in device.states}
    return DeviceStates(
        host="",
        device=device.device,
        ordinal=0,
        step_count=step_count,
        step_ps=sum(states.values()),
        states={key: ps for key, ps in states.items() if ps},
        waits_for=None,
    )


# Files


def to_markdown(comparison: Comparison) -> str:
    """A page for a ticket or a pull request."""
    from traceview.document.markdown import render_section

    return "\n".join(map(render_section, sections_of(comparison)))


def to_html(comparison: Comparison) -> str:
    """A page for a browser, complete in one file."""
    from traceview.document.html import printer

    page = document_of(comparison)
    return printer.render(lambda _: page)
