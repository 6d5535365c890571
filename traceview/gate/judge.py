"""Judges a report by conditions, value by value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.base import SEVERITIES, Finding
from traceview.analysis.registry import RULES
from traceview.comparison.difference import Difference
from traceview.comparison.repeats import distinct
from traceview.document import numbers
from traceview.gate.conditions import (
    OPERATORS,
    Absence,
    Change,
    Condition,
    Limit,
    NoFinding,
)
from traceview.gate.noise import grace, is_shown, step_change, why_not_comparable
from traceview.gate.result import (
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
from traceview.gate.schema_keys import SchemaKey, Value
from traceview.gate.units import Quantity, written, written_apart
from traceview.report.model import Report
from traceview.version import VERSION

_FIRST: Final = ("fails", "unknown", "holds")
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
    reason = "" if baseline else _NO_BASELINE
    if baseline and not force:
        reason = why_not_comparable(baseline.captures, subject.captures)
    judge = _Judge(subject, baseline, strict, reason)
    judgements = sorted(map(judge.judgement, conditions), key=lambda row: _FIRST.index(row.outcome))
    outcomes = {row.outcome for row in judgements}
    outcome, code = (
        ("failed", FAILED)
        if "fails" in outcomes
        else ("unknown", NOT_JUDGED)
        if "unknown" in outcomes
        else ("passed", HOLDS)
    )
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


class _Judge(Struct, frozen=True):
    """Judges one condition after another. `why_no_change`: why changes cannot be judged; empty where they can."""

    subject: Subject
    baseline: Subject | None
    strict: bool
    why_no_change: str

    def judgement(self, condition: Condition) -> Judgement:
        """What a condition says."""
        if isinstance(condition, Limit):
            without = _without_finding(condition, self.subject.report)
            rows = (
                [without]
                if without
                else [_of_limit(condition, value) for value in self._values(condition)]
            )
        elif isinstance(condition, Change):
            rows = self._of_change(condition)
        elif isinstance(condition, NoFinding):
            rows = [_of_finding(condition, self.subject.report)]
        else:
            rows = [_of_absence(self._values(condition))]
        return self._of_rows(condition.text, rows)

    def _values(self, condition: Limit | Absence | Change) -> list[Value]:
        return condition.key.values(self.subject.report)

    def _of_rows(self, text: str, rows: Sequence[JudgedRow]) -> Judgement:
        """A condition holds if each row does that has a value, and one has; strictly, if each row has one."""
        outcomes = [row.outcome for row in rows]
        outcome: Outcome = "holds" if "holds" in outcomes else "unknown"
        if "fails" in outcomes:
            outcome = "fails"
        elif self.strict and "unknown" in outcomes:
            outcome = "unknown"
        chosen = [row for row in rows if row.outcome != "holds"]
        if outcome == "holds":
            chosen = [
                min(
                    (row for row in rows if row.outcome == "holds"),
                    key=lambda row: float("inf") if row.margin_ratio is None else row.margin_ratio,
                ),
                *chosen,
            ]
        return Judgement(text, outcome, len(rows), tuple(chosen))

    def _of_change(self, condition: Change) -> list[JudgedRow]:
        if self.baseline is None or self.why_no_change:
            return [_unknown("", self.why_no_change)]
        before_values, values = condition.key.values(self.baseline.report), self._values(condition)
        noise = None
        if condition.key.is_step_time:
            noise = step_change(self.baseline.captures, self.subject.captures)
            if noise.before is not None and noise.after is not None:
                before_values, values = [Value("", noise.before)], [Value("", noise.after)]
        before = {value.where: value for value in before_values}
        rows = []
        repeated = _repeated(values) | _repeated(before_values)
        for value in values:
            of_before = before.get(value.where, before.get(""))
            if value.where in repeated:
                rows.append(_unknown(value.where, "several rows have this name"))
            elif of_before is None:
                rows.append(_unknown(value.where, f"the baseline has no {value.where}"))
            elif value.value is None:
                rows.append(_unknown(value.where, value.reason))
            elif of_before.value is None:
                rows.append(_unknown(value.where, f"in the baseline: {of_before.reason}"))
            else:
                row = _of_known_change(condition, value, of_before)
                rows.append(row if noise is None else self._with_noise(condition, row, noise))
        return rows

    def _with_noise(self, condition: Change, row: JudgedRow, noise: Difference) -> JudgedRow:
        """A change that noise can explain is let pass, unless asked to be strict."""
        row = replace(row, change_least_ratio=noise.low_ratio, change_most_ratio=noise.high_ratio)
        if row.outcome != "fails" or self.strict or is_shown(noise, condition.sign):
            return row
        if noise.direction == "unknown":
            return replace(row, outcome="unknown", reason=_TOO_FEW_STEPS)
        return replace(row, outcome="holds", reason=grace(noise))


def _repeated(values: Sequence[Value]) -> set[str]:
    """The names that several rows have, so that the row of the other run is ambiguous."""
    counts = Counter(value.where for value in values)
    return {where for where, count in counts.items() if count > 1}


def _of_limit(condition: Limit, value: Value) -> JudgedRow:
    if value.value is None:
        return _unknown(value.where, value.reason)
    quantity, limit = _quantity(condition), condition.limit
    # A limit written as 0.7 is the float 0.7, which is not seven tenths.
    bound = (
        float(limit) if isinstance(limit, Fraction) and isinstance(value.value, float) else limit
    )
    holds = OPERATORS[condition.sign](value.value, bound)
    return _row(value, holds, limit, quantity, condition.sign)


def _of_known_change(condition: Change, value: Value, before: Value) -> JudgedRow:
    assert isinstance(before.value, (int, float))
    assert isinstance(value.value, (int, float))
    was, sign = Fraction(before.value), 1 if condition.sign == "+" else -1
    room = was * condition.ratio if condition.ratio is not None else condition.amount or Fraction(0)
    limit = was + sign * room
    operator = "<=" if condition.sign == "+" else ">="
    holds = OPERATORS[operator](Fraction(value.value), limit)
    quantity = _quantity(condition)
    row = _row(value, holds, limit, quantity, operator)
    ratio = float(Fraction(value.value) / was - 1) if was else None
    return replace(row, baseline=before.value, change_ratio=ratio)


def _row(
    value: Value,
    holds: bool,
    limit: Fraction | str | bool,
    quantity: Quantity,
    sign: str,
) -> JudgedRow:
    assert value.value is not None
    measured, allowed = written(value.value, quantity), written(limit, quantity)
    margin, ratio = "", None
    if isinstance(limit, Fraction) and sign in ("<=", "<", ">=", ">"):
        assert isinstance(value.value, (int, float))
        room = limit - Fraction(value.value) if sign[0] == "<" else Fraction(value.value) - limit
        ratio = float(room / abs(limit)) if limit else None
        margin = _margin(room, ratio, quantity, past="over" if sign[0] == "<" else "short")
        measured, allowed = written_apart(value.value, limit, quantity)
    return JudgedRow(
        where=value.where,
        outcome="holds" if holds else "fails",
        value=value.value,
        limit=_plain(limit),
        measured=measured,
        allowed=f"{sign} {allowed}",
        margin=margin,
        margin_ratio=ratio,
    )


def _margin(room: Fraction, ratio: float | None, quantity: Quantity, *, past: str) -> str:
    """`7.20 ms over (12.0%)`, `3.1 points short`, `3.1 points left`. `past`: what a value past the limit is."""
    side = "left" if room >= 0 else past
    if quantity == "ratio":
        return f"{float(abs(room)) * 100:.3g} points {side}"
    share = "" if ratio is None else f" ({numbers.share(abs(ratio))})"
    if ratio is not None and abs(ratio) >= _MANY_TIMES:
        share = f" ({1 + abs(ratio):,.0f}×)"
    return f"{written(abs(room), quantity)} {side}{share}"


def _plain(limit: Fraction | str | bool) -> int | float | str | bool:
    if not isinstance(limit, Fraction):
        return limit
    return int(limit) if limit.denominator == 1 else float(limit)


def _quantity(condition: Limit | Change) -> Quantity:
    assert condition.key.unit is not None  # without one it was no condition
    return condition.key.unit.quantity


def _of_finding(condition: NoFinding, report: Report) -> JudgedRow:
    code = condition.code
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
    return JudgedRow(
        where=worst.code
        if code in SEVERITIES
        else numbers.joined_devices(sorted(worst.devices, key=lambda key: (len(key), key))),
        outcome="fails",
        value=worst.code,
        limit=None,
        measured=f"{worst.severity}{more}",
        allowed="absent",
        margin="",
        reason=worst.title,
    )


def _without_finding(condition: Limit, report: Report) -> JudgedRow | None:
    """What a limit on a finding says where the run has no such finding; None where it has, or where none is meant."""
    asked = condition.key.source
    if not isinstance(asked, SchemaKey) or asked.steps[0].name != "findings":
        return None
    name = asked.steps[0].selector
    if name is None:
        there, left_out = bool(report.findings), bool(report.left_out_findings)
    elif name in RULES or name in SEVERITIES:
        there = any(name in (row.code, row.severity) for row in report.findings)
        left_out = name in report.left_out_findings
    else:
        return None
    if there:
        return None
    named = f" {name}" if name else ""
    if report.capture.quality == "unusable":
        return _unknown("", _UNUSABLE)
    if left_out:
        return _unknown("", f"the report leaves out the finding{named}, which was made")
    allowed = f"{condition.sign} {written(condition.limit, _quantity(condition))}"
    return JudgedRow("", "holds", None, None, "absent", allowed, "", reason=f"no finding{named}")


def _is_meant(finding: Finding, code: str) -> bool:
    """Whether a condition is about this finding; one on a severity is about the more severe ones, too."""
    if code not in SEVERITIES:
        return finding.code == code
    return SEVERITIES.index(finding.severity) <= list(SEVERITIES).index(code)


def _of_absence(values: Sequence[Value]) -> JudgedRow:
    there = [value for value in values if value.value is not None]
    if not there:
        return JudgedRow("", "holds", None, None, "absent", "absent", "")
    names = list(dict.fromkeys(value.where for value in there if value.where))
    shown = numbers.listed(names) or numbers.plural(len(there), "value")
    return JudgedRow(there[0].where, "fails", len(there), None, shown, "absent", "")


def _unknown(where: str, reason: str) -> JudgedRow:
    return JudgedRow(where, "unknown", None, None, numbers.ABSENT, "", "", reason=reason)
