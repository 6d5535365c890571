"""Judges captures by conditions: budgets in numbers, and changes against a baseline.

A condition is judged on each capture of the side, and the middle one decides; a change of the step time is judged with all
captures of both sides and their noise (`noise.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.registry import RULES
from traceview.analysis.rules.finding import SEVERITIES, Finding
from traceview.base.errors import TraceFormatError, TraceNotFoundError, UsageError
from traceview.base.location import Location
from traceview.base.version import VERSION
from traceview.comparison.baselines import DEFAULT_FOLDER, baseline_called
from traceview.comparison.conditions import OPERATORS, Condition, Value, condition_of, written
from traceview.comparison.gate_document import headline, message
from traceview.comparison.model import (
    FAILED,
    GATE_SCHEMA_VERSION,
    HOLDS,
    NO_VERDICT,
    NOT_JUDGED,
    GateResult,
    JudgedRow,
    JudgedSide,
    Judgement,
    Outcome,
)
from traceview.comparison.noise import (
    ENOUGH,
    ENOUGH_RUNS,
    Difference,
    Level,
    run_spread_of,
    step_change,
    step_level,
)
from traceview.comparison.sides import (
    blocking_words,
    capture_steps,
    conditions_of,
    distinct,
    is_one_run,
    mean,
)
from traceview.document import numbers
from traceview.report.given import report_at
from traceview.report.model import Report
from traceview.store.address import is_remote, location_of

_VERDICTS: Final = {
    "fails": ("failed", FAILED),
    "unknown": ("unknown", NOT_JUDGED),
    "no_verdict": ("no_verdict", NO_VERDICT),
    "holds": ("passed", HOLDS),
}
"""What a gate says by the worst outcome of its conditions, the worst first."""
_FIRST: Final = tuple(_VERDICTS)
_MANY_TIMES: Final = 10
"""Past a limit by so many limits, or far from it, the value is said in limits, not the margin in percent."""
_UNUSABLE: Final = "the capture is unusable: the trace holds no device event"
_TOO_FEW_STEPS: Final = "a single step says nothing of noise: capture ten or more"
_NO_BASELINE: Final = "no baseline is given"

# Budgets

_KEYS: Final = ("require", "baseline", "strict")
OF_BASELINE: Final = "step_time:+5%"
"""What a gate asks for as well where a baseline is given and no condition is about a change."""


class Budget(Struct, frozen=True):
    """Conditions, and what else the file says. `baseline`: a name or a path, None where it names none."""

    conditions: tuple[Condition, ...]
    baseline: str | None = None
    strict: bool = False


def budget_in(path: Location) -> Budget:
    """The budget in a file.

    Raises `TraceNotFoundError` where there is no such file, `TraceFormatError` for one that is no TOML, and `UsageError`
    for a key or a condition that does not exist.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise TraceNotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise TraceNotFoundError(f"{path}: {error.strerror or error}") from error
    try:
        data = msgspec.toml.decode(content)
    except ImportError:
        raise UsageError(
            f"{path}: reading TOML needs Python 3.11 or the package tomli",
            hint="pip install tomli, or give the conditions with --require",
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceFormatError(path, f"not TOML: {error}") from None
    try:
        return _budget(data)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from None


def _budget(data: dict[str, Any]) -> Budget:
    for key in data:
        if key not in _KEYS:
            near = get_close_matches(key, _KEYS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"keys: {', '.join(_KEYS)}"
            raise UsageError(f"no key of a budget is called {key}", hint=hint)
    texts = data.get("require", [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UsageError("require is no list of texts", hint='require = ["step_time_ms <= 120"]')
    baseline, strict = data.get("baseline"), data.get("strict", False)
    if baseline is not None and not isinstance(baseline, str):
        raise UsageError("baseline is no text: the name of a baseline, or a path")
    if not isinstance(strict, bool):
        raise UsageError("strict is neither true nor false")
    return Budget(tuple(map(condition_of, texts)), baseline, strict)


def asked_budget(texts: Sequence[str], file: Location | None, baseline: str | None) -> Budget:
    """The conditions of the command line and of the file together, and the baseline: that of the command line first.

    Raises `UsageError` where nothing is asked for, and what `budget_in` and `condition_of` raise.
    """
    read = budget_in(file) if file is not None else Budget(())
    conditions: tuple[Condition, ...] = (*read.conditions, *map(condition_of, texts))
    baseline = read.baseline if baseline is None else baseline
    if baseline == "":
        raise UsageError("the baseline has an empty name", hint="--baseline NAME, or a path")
    changes = [condition for condition in conditions if condition.is_change]
    if baseline and not changes:
        conditions = (*conditions, condition_of(OF_BASELINE))
    if not conditions:
        raise UsageError(
            "nothing is asked for: there is no condition",
            hint="--require 'step_time_ms <= 120', --budget budget.toml or --baseline NAME",
        )
    if changes and not baseline:
        raise UsageError(
            f"condition {changes[0].text!r} needs a baseline",
            hint="--baseline NAME, of traceview gate LOGDIR --save NAME, or a path",
        )
    return Budget(conditions, baseline, read.strict)


def baseline_of(text: str, folder: Path | None) -> Subject:
    """The captures of a baseline by its name, or the report by its path where there is no baseline of this name.

    Raises what `baseline_called` and `report_at` raise.
    """
    path = location_of(text)
    is_name = "/" not in text and "\\" not in text and not is_remote(path)
    if is_name and (folder is not None or not path.exists()):
        return Subject(text, baseline_called(folder or DEFAULT_FOLDER, text).reports)
    return Subject(text, (report_at(path),))


def verdict(
    trace: Path, file: Path | None, texts: Sequence[str]
) -> tuple[Literal["holds", "fails", "unknown"], str]:
    """Whether a window of a training meets its budget, and a sentence on it.

    Raises what reading the budget, its baseline and the trace raises.
    """
    asked = asked_budget(texts, file, None)
    before = baseline_of(asked.baseline, None) if asked.baseline else None
    subject = Subject(str(trace), (report_at(trace),))
    result = judged(subject, asked.conditions, before, strict=asked.strict)
    shown = [
        f"{judgement.condition} ({message(judgement)})"
        for judgement in result.judgements
        if judgement.outcome != "holds"
    ]
    text = f"{headline(result)} {numbers.listed(shown)}".strip()
    if result.exit_code == HOLDS:
        return "holds", text
    return "fails" if result.exit_code == FAILED else "unknown", text


# Judging


class Subject(Struct, frozen=True):
    """The captures of a side, and the path or the name that they were given as."""

    name: str
    reports: tuple[Report, ...]

    @property
    def captures(self) -> tuple[Report, ...]:
        """The captures, each once."""
        return tuple(distinct(self.reports))

    @property
    def side(self) -> JudgedSide:
        """How the result names it."""
        source = self.reports[0].source
        return JudgedSide(self.name, source.logdir, source.run, len(self.captures))


def judged(
    subject: Subject,
    conditions: Iterable[Condition],
    baseline: Subject | None = None,
    *,
    earlier: Sequence[Sequence[Level]] = (),
    strict: bool = False,
    force: bool = False,
) -> GateResult:
    """What the conditions say of the captures of a side.

    `baseline`: what changes are compared with. `earlier`: steps of earlier runs of the job, in groups without a change.
    `strict`: a change is judged without regard to noise, and a row without a value leaves its condition without a
    judgement. Changes between runs that cannot be compared are not judged, unless `force`.
    """
    judgements = []
    rows: Sequence[JudgedRow]
    for condition in conditions:
        if condition.is_change:
            rows = _of_change(condition, subject, baseline, earlier, strict=strict, force=force)
        else:
            rows = _middle_rows([_of_capture(condition, report) for report in subject.captures])
        judgements.append(_judgement(condition.text, rows, strict=strict))
    judgements.sort(key=lambda row: _FIRST.index(row.outcome))
    outcome, code = _VERDICTS[judgements[0].outcome] if judgements else _VERDICTS["holds"]
    report = subject.reports[0]
    return GateResult(
        schema_version=GATE_SCHEMA_VERSION,
        traceview_version=VERSION,
        outcome=outcome,
        exit_code=code,
        subject=subject.side,
        baseline=baseline.side if baseline else None,
        strict=strict,
        headline=report.verdict.headline,
        capture_quality=report.capture.quality,
        judgements=tuple(judgements),
    )


def _judgement(text: str, rows: Sequence[JudgedRow], *, strict: bool) -> Judgement:
    """A condition holds if each row does that has a value, and one has; strictly, if each row has one."""
    outcomes = {row.outcome for row in rows}
    outcome: Outcome = "holds" if "holds" in outcomes else "unknown"
    if "fails" in outcomes:
        outcome = "fails"
    elif "no_verdict" in outcomes:
        outcome = "no_verdict"
    elif strict and "unknown" in outcomes:
        outcome = "unknown"
    chosen = [row for row in rows if row.outcome != "holds"]
    if outcome == "holds":
        held = [row for row in rows if row.outcome == "holds"]
        chosen.insert(0, min(held, key=_margin))
    return Judgement(text, outcome, len(rows), tuple(chosen))


def _margin(row: JudgedRow) -> float:
    return float("inf") if row.margin_ratio is None else row.margin_ratio


def _middle_rows(captures: Sequence[Sequence[JudgedRow]]) -> Sequence[JudgedRow]:
    """Of each row that most captures have the middle one, so that a row fails if it does in more than half of them."""
    if len(captures) == 1:
        return captures[0]
    is_single = all(len(rows) == 1 for rows in captures)
    by_place: dict[str, list[JudgedRow]] = {}
    for rows in captures:
        for row in rows:
            by_place.setdefault("" if is_single else row.where, []).append(row)
    middle = len(captures) // 2
    return [
        sorted(rows, key=lambda row: (_FIRST.index(row.outcome), _margin(row)))[middle]
        for rows in by_place.values()
        if len(rows) > middle
    ] or [_unknown("", "no row is in more than half of the captures")]


def _unknown(where: str, reason: str) -> JudgedRow:
    return JudgedRow(where, "unknown", None, None, numbers.ABSENT, "", "", reason=reason)


def _of_capture(condition: Condition, report: Report) -> list[JudgedRow]:
    if condition.key is None:
        return [_of_findings(condition.code, report)]
    values = condition.key.values(report)
    if condition.sign == "absent":
        return [_of_absence(values)]
    without = _without_finding(condition, report)
    if without is not None:
        return [without]
    return [
        _unknown(value.where, value.reason)
        if value.value is None
        else _row(condition, value, condition.sign, condition.limit)
        for value in values
    ]


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
    condition: Condition,
    subject: Subject,
    baseline: Subject | None,
    earlier: Sequence[Sequence[Level]],
    *,
    strict: bool,
    force: bool,
) -> list[JudgedRow]:
    assert condition.key is not None
    if baseline is None:
        return [_unknown("", _NO_BASELINE)]
    sides = baseline.captures, subject.captures
    blocking = "" if force else blocking_words(conditions_of(*sides))
    if blocking:
        return [_unknown("", f"the runs cannot be compared ({blocking})")]
    if condition.key.is_step_time:
        return [_of_step_time(condition, *sides, earlier, strict=strict)]
    old, new = (_middle_values(condition, side) for side in sides)
    before = {value.where: value for value in old}
    counts = Counter(value.where for value in new) | Counter(value.where for value in old)
    rows = []
    for value in new:
        of_before = before.get(value.where, before.get(""))
        if counts[value.where] > 1:
            rows.append(_unknown(value.where, "several rows have this name"))
        elif of_before is None:
            rows.append(_unknown(value.where, f"the baseline has no {value.where}"))
        else:
            rows.append(_changed_row(condition, value, of_before))
    return rows


def _middle_values(condition: Condition, captures: Sequence[Report]) -> list[Value]:
    """The values of the first capture, each the median of all captures that have one there."""
    assert condition.key is not None
    first, *others = [condition.key.values(report) for report in captures]
    by_place: dict[str, list[float]] = {}
    for values in (first, *others):
        for value in values:
            if isinstance(value.value, (int, float)):
                by_place.setdefault(value.where, []).append(value.value)
    if not others:
        return first
    return [
        replace(value, value=sorted(known)[(len(known) - 1) // 2])
        if (known := by_place.get(value.where))
        else value
        for value in first
    ]


def _changed_row(condition: Condition, value: Value, before: Value) -> JudgedRow:
    """A value that may rise or fall by the limit of the condition against that before."""
    if value.value is None:
        return _unknown(value.where, value.reason)
    if before.value is None:
        return _unknown(value.where, f"in the baseline: {before.reason}")
    assert isinstance(before.value, (int, float))
    assert isinstance(value.value, (int, float))
    assert isinstance(condition.limit, Fraction)
    was = Fraction(before.value)
    room = was * condition.limit if condition.is_relative else condition.limit
    is_rise = condition.sign == "+"
    row = _row(condition, value, "<=" if is_rise else ">=", was + room if is_rise else was - room)
    return replace(
        row,
        baseline=before.value,
        change_ratio=value.value / before.value - 1 if was else None,
    )


def _of_step_time(
    condition: Condition,
    before: Sequence[Report],
    after: Sequence[Report],
    earlier: Sequence[Sequence[Level]],
    *,
    strict: bool,
) -> JudgedRow:
    """The change of the step, with its noise unless `strict`."""
    assert condition.key is not None
    sides = [[capture_steps(report) for report in side] for side in (before, after)]
    values = [
        Value("", float(mean([steps.mean_ps for steps in side if steps])))
        if all(side)
        else next(value for report in of for value in condition.key.values(report) if value.reason)
        for side, of in zip(sides, (before, after), strict=True)
    ]
    row = _changed_row(condition, values[1], values[0])
    levels = [[step_level(steps.lengths_ps) for steps in side if steps] for side in sides]
    change = step_change(levels[0], levels[1], run_spread_of((*before, *after)), earlier)
    if row.outcome == "unknown" or change is None or strict or is_one_run(before, after):
        return row
    assert isinstance(row.baseline, float)
    assert isinstance(row.limit, (int, float))
    limit = row.limit / row.baseline - 1
    row = replace(row, change_least_ratio=change.low, change_most_ratio=change.high)
    outcome = outcome_of(change, limit, 1 if condition.sign == "+" else -1)
    few = min(len(before), len(after)) < ENOUGH_RUNS
    return replace(row, outcome=outcome, reason=_noise_words(change, row, outcome, is_few=few))


def outcome_of(change: Difference, limit: float, sign: int) -> Outcome:
    """Whether a change is within a limit; `sign`: 1 where it is how much the step may become longer.

    Fails: past the limit and beyond noise. Holds: the whole interval is within the limit, or the change is, with noise no
    larger than the limit. Else nobody can tell.
    """
    if change.low is None or change.high is None:
        return "unknown"
    low, high = sorted((sign * change.low, sign * change.high))
    value, limit = sign * change.value, sign * limit
    if value > limit and low > 0:
        return "fails"
    is_clear = high - value <= limit
    return "holds" if high <= limit or (is_clear and value <= limit) else "no_verdict"


def _noise_words(
    change: Difference, row: JudgedRow, outcome: Outcome, *, is_few: bool
) -> str | None:
    """Why there is no verdict, or why another number than that of the mean step decides."""
    if outcome == "unknown":
        return _TOO_FEW_STEPS
    interval = f"{numbers.signed_share(change.low)} to {numbers.signed_share(change.high)}"
    if outcome == "no_verdict":
        more = f": {ENOUGH}" if is_few else ""
        why = "these runs differ too much"
        if change.basis == "assumed":
            why = "one capture of a side does not show how much runs differ"
        return f"{why}, so the 95% interval of the change is {interval}{more}"
    if (outcome == "holds") != (_margin(row) >= 0):
        changed = numbers.signed_share(change.value)
        return f"the typical step changed by {changed}, 95% interval {interval}; few steps make the mean"
    return None
