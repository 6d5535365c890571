"""Judges a report by conditions, value by value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.registry import RULES
from traceview.analysis.rules.finding import SEVERITIES, Finding
from traceview.base.version import VERSION
from traceview.comparison.build import condition_words, run_spread_of
from traceview.comparison.captures import capture_steps, distinct, mean
from traceview.comparison.conditions import conditions_of
from traceview.comparison.difference import SHOW_NOTHING, StepChange, step_change, step_level
from traceview.comparison.gate.conditions import OPERATORS, Condition, Value, written
from traceview.comparison.gate.result import (
    FAILED,
    GATE_SCHEMA_VERSION,
    HOLDS,
    NOT_JUDGED,
    GateResult,
    JudgedRow,
    Judgement,
    Outcome,
    Side,
)
from traceview.document import numbers
from traceview.report.model import Report

_FIRST: Final = ("fails", "unknown", "holds")
_VERDICTS: Final = {
    "fails": ("failed", FAILED),
    "unknown": ("unknown", NOT_JUDGED),
    "holds": ("passed", HOLDS),
}
_MANY_TIMES: Final = 10
"""Past a limit by so many limits, or far from it, the value is said in limits, not the margin in percent."""
_UNUSABLE: Final = "the capture is unusable: the trace holds no device event"
_TOO_FEW_STEPS: Final = "past the limit, but a single step says nothing of noise; --strict fails it"
_NO_BASELINE: Final = "no baseline is given"


class Subject(Struct, frozen=True):
    """A report, and the path or the name that it was given as.

    `others`: reports on further captures of the same side, which tell a change of the step time from noise.
    """

    name: str
    report: Report
    others: tuple[Report, ...] = ()

    @property
    def captures(self) -> tuple[Report, ...]:
        """All captures of the side, each once."""
        return tuple(distinct((self.report, *self.others)))

    @property
    def side(self) -> Side:
        """How the result names it."""
        return Side(self.name, self.report.source.logdir, self.report.source.run)


def judged(
    subject: Subject,
    conditions: Iterable[Condition],
    baseline: Subject | None = None,
    *,
    strict: bool = False,
    force: bool = False,
) -> GateResult:
    """What the conditions say of a report.

    `baseline`: what changes are compared with. `strict`: a change past its limit fails also within noise, and a row
    without a value leaves its condition without a judgement. Changes between runs that cannot be compared are not judged,
    unless `force`.
    """
    judgements = []
    for condition in conditions:
        if condition.is_change:
            rows = _of_change(condition, subject, baseline, strict=strict, force=force)
        elif condition.key is None:
            rows = [_of_findings(condition.code, subject.report)]
        elif condition.sign == "absent":
            rows = [_of_absence(condition.key.values(subject.report))]
        else:
            rows = _of_limit(condition, subject.report)
        judgements.append(_judgement(condition.text, rows, strict=strict))
    judgements.sort(key=lambda row: _FIRST.index(row.outcome))
    outcome, code = _VERDICTS[judgements[0].outcome] if judgements else _VERDICTS["holds"]
    return GateResult(
        schema_version=GATE_SCHEMA_VERSION,
        traceview_version=VERSION,
        outcome=outcome,
        exit_code=code,
        subject=subject.side,
        baseline=baseline.side if baseline else None,
        strict=strict,
        headline=subject.report.verdict.headline,
        capture_quality=subject.report.capture.quality,
        judgements=tuple(judgements),
    )


def _judgement(text: str, rows: Sequence[JudgedRow], *, strict: bool) -> Judgement:
    """A condition holds if each row does that has a value, and one has; strictly, if each row has one."""
    outcomes = {row.outcome for row in rows}
    outcome: Outcome = "holds" if "holds" in outcomes else "unknown"
    if "fails" in outcomes:
        outcome = "fails"
    elif strict and "unknown" in outcomes:
        outcome = "unknown"
    chosen = [row for row in rows if row.outcome != "holds"]
    if outcome == "holds":
        held = [row for row in rows if row.outcome == "holds"]
        chosen.insert(0, min(held, key=_nearness))
    return Judgement(text, outcome, len(rows), tuple(chosen))


def _nearness(row: JudgedRow) -> float:
    return float("inf") if row.margin_ratio is None else row.margin_ratio


def _unknown(where: str, reason: str) -> JudgedRow:
    return JudgedRow(where, "unknown", None, None, numbers.ABSENT, "", "", reason=reason)


# Limits


def _of_limit(condition: Condition, report: Report) -> list[JudgedRow]:
    without = _without_finding(condition, report)
    assert condition.key is not None
    return (
        [without]
        if without
        else [
            _unknown(value.where, value.reason)
            if value.value is None
            else _row(condition, value, condition.sign, condition.limit)
            for value in condition.key.values(report)
        ]
    )


def _row(condition: Condition, value: Value, sign: str, limit: Fraction | str | bool) -> JudgedRow:
    """A value on one side of its limit."""
    assert value.value is not None
    measured, quantity, margin, ratio = value.value, condition.quantity, "", None
    # A limit written as 0.7 is the float 0.7, which is not seven tenths.
    is_float = isinstance(limit, Fraction) and isinstance(measured, float)
    holds = OPERATORS[sign](measured, float(limit) if is_float else limit)
    if isinstance(limit, Fraction) and sign[0] in "<>" and not isinstance(measured, str):
        room = (limit - Fraction(measured)) * (1 if sign[0] == "<" else -1)
        ratio = float(room / abs(limit)) if limit else None
        side = "left" if room >= 0 else "over" if sign[0] == "<" else "short"
        share = f" ({numbers.share(abs(ratio))})" if ratio is not None else ""
        if ratio is not None and abs(ratio) >= _MANY_TIMES:
            share = f" ({1 + abs(ratio):,.0f}×)"
        margin = f"{written(abs(room), quantity)} {side}{share}"
        if quantity == "ratio":
            margin = f"{float(abs(room)) * 100:.3g} points {side}"
    plain: int | float | str | bool = limit if not isinstance(limit, Fraction) else float(limit)
    if isinstance(limit, Fraction) and limit.denominator == 1:
        plain = int(limit)
    return JudgedRow(
        where=value.where,
        outcome="holds" if holds else "fails",
        value=measured,
        limit=plain,
        measured=written(measured, quantity),
        allowed=f"{sign} {written(limit, quantity)}",
        margin=margin,
        margin_ratio=ratio,
    )


def _of_absence(values: Sequence[Value]) -> JudgedRow:
    there = [value for value in values if value.value is not None]
    if not there:
        return JudgedRow("", "holds", None, None, "absent", "absent", "")
    names = list(dict.fromkeys(value.where for value in there if value.where))
    shown = numbers.listed(names) or numbers.plural(len(there), "value")
    return JudgedRow(there[0].where, "fails", len(there), None, shown, "absent", "")


# Findings


def _of_findings(code: str, report: Report) -> JudgedRow:
    if report.capture.quality == "unusable":
        return _unknown("", _UNUSABLE)
    made = [row for row in report.findings if _is_meant(row, code)]
    if not made and code in report.left_out_findings:
        # It was made, and not asked for: its title is not in the report.
        return JudgedRow(code, "fails", code, None, code, "absent", "")
    if not made:
        return JudgedRow("", "holds", None, None, "absent", "absent", "")
    worst = made[0]
    more = f" (and {len(made) - 1} more)" if len(made) > 1 else ""
    devices = sorted(worst.devices, key=lambda key: (len(key), key))
    return JudgedRow(
        where=worst.code if code in SEVERITIES else numbers.joined_devices(devices),
        outcome="fails",
        value=worst.code,
        limit=None,
        measured=f"{worst.severity}{more}",
        allowed="absent",
        margin="",
        reason=worst.title,
    )


def _is_meant(finding: Finding, code: str) -> bool:
    """Whether a condition is about this finding; one on a severity is about the more severe ones, too."""
    if code not in SEVERITIES:
        return finding.code == code
    return SEVERITIES.index(finding.severity) <= list(SEVERITIES).index(code)


def _without_finding(condition: Condition, report: Report) -> JudgedRow | None:
    """What a limit on a finding says where the run has no such finding; None where it has, or where none is meant."""
    assert condition.key is not None
    if condition.key.names[0] != "findings":
        return None
    name = condition.key.rows.get(0, "")
    if name and name not in RULES and name not in SEVERITIES:
        return None
    if any(name in ("", row.code, row.severity) for row in report.findings):
        return None
    named = f" {name}" if name else ""
    if report.capture.quality == "unusable":
        return _unknown("", _UNUSABLE)
    if any(name in ("", code) for code in report.left_out_findings):
        return _unknown("", f"the report leaves out the finding{named}, which was made")
    allowed = f"{condition.sign} {written(condition.limit, condition.quantity)}"
    return JudgedRow("", "holds", None, None, "absent", allowed, "", reason=f"no finding{named}")


# Changes against a baseline


def _of_change(
    condition: Condition, subject: Subject, baseline: Subject | None, *, strict: bool, force: bool
) -> list[JudgedRow]:
    assert condition.key is not None
    reason = _NO_BASELINE if baseline is None else ""
    if baseline and not force:
        reason = _why_not_comparable(baseline.captures, subject.captures)
    if baseline is None or reason:
        return [_unknown("", reason)]
    old, new = (condition.key.values(side.report) for side in (baseline, subject))
    change = None
    if condition.key.is_step_time:
        sides = [
            [steps for report in side.captures if (steps := capture_steps(report)) is not None]
            for side in (baseline, subject)
        ]
        if all(sides):
            old, new = ([Value("", float(mean([s.mean_ps for s in side])))] for side in sides)
            levels = [[step_level(steps.lengths_ps) for steps in side] for side in sides]
            spread = run_spread_of([*baseline.captures, *subject.captures])
            change = step_change(levels[0], levels[1], spread)
    before = {value.where: value for value in old}
    counts = Counter(value.where for value in new) | Counter(value.where for value in old)
    rows = []
    for value in new:
        of_before = before.get(value.where, before.get(""))
        if counts[value.where] > 1:
            rows.append(_unknown(value.where, "several rows have this name"))
        elif of_before is None:
            rows.append(_unknown(value.where, f"the baseline has no {value.where}"))
        elif value.value is None:
            rows.append(_unknown(value.where, value.reason))
        elif of_before.value is None:
            rows.append(_unknown(value.where, f"in the baseline: {of_before.reason}"))
        else:
            rows.append(_of_known_change(condition, value, of_before, change, strict=strict))
    return rows


def _of_known_change(
    condition: Condition, value: Value, before: Value, change: StepChange | None, *, strict: bool
) -> JudgedRow:
    """A step that is longer than allowed fails only if it is shown to be longer, unless that is asked for strictly."""
    assert isinstance(before.value, (int, float))
    assert isinstance(value.value, (int, float))
    assert isinstance(condition.limit, Fraction)
    was = Fraction(before.value)
    room = was * condition.limit if condition.is_relative else condition.limit
    is_rise = condition.sign == "+"
    limit = was + room if is_rise else was - room
    row = _row(condition, value, "<=" if is_rise else ">=", limit)
    row = replace(
        row,
        baseline=before.value,
        change_ratio=value.value / before.value - 1 if was else None,
        change_least_ratio=change.low_ratio if change else None,
        change_most_ratio=change.high_ratio if change else None,
    )
    if change is None or row.outcome == "holds" or strict:
        return row
    if change.direction == "unknown":
        return replace(row, outcome="unknown", reason=_TOO_FEW_STEPS)
    if change.direction == ("slower" if is_rise else "faster"):
        return row
    return replace(row, outcome="holds", reason=_within_noise(change))


def _within_noise(change: StepChange) -> str:
    if change.least_shown_ratio is None or change.least_shown_ratio >= SHOW_NOTHING:
        return "within noise: these runs are too noisy to show a change; --strict fails it"
    low, high = map(numbers.signed_share, (change.low_ratio, change.high_ratio))
    return (
        f"within noise: the 95% interval of the change is {low} to {high}; such runs show a change of "
        f"{numbers.share(change.least_shown_ratio)} or more; --strict fails it"
    )


def _why_not_comparable(before: Sequence[Report], after: Sequence[Report]) -> str:
    """What makes the steps of two sides other work, or work on other hardware; empty where nothing is known to."""
    blocking = [row for row in conditions_of(before, after) if row.is_blocking]
    words = "; ".join(map(condition_words, blocking))
    return f"the runs cannot be compared ({words})" if words else ""
