"""Judges captures by conditions: budgets in numbers, and changes against a baseline.

Of several captures of a side the median of each value is judged; a change of the step time is judged with all captures of
both sides and their noise (`noise.py`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from traceview.base.errors import TraceFormatError, TraceNotFoundError, UsageError
from traceview.base.location import Location
from traceview.base.version import VERSION
from traceview.comparison.baselines import DEFAULT_FOLDER, baseline_called
from traceview.comparison.conditions import (
    STEP_TIME,
    Condition,
    Value,
    condition_of,
    written,
)
from traceview.comparison.jobs import blocking_words, conditions_of
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
from traceview.comparison.noise import ENOUGH, ENOUGH_RUNS, Difference, Level
from traceview.comparison.sides import Side
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
_DECIDES: Final[tuple[Outcome, ...]] = ("fails", "no_verdict", "holds", "unknown")
"""Which of the outcomes of its rows a condition has."""
_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "absent": operator.le,
}
_TOO_FEW_STEPS: Final = "a single step says nothing of noise: capture ten or more"

# Budgets

OF_BASELINE: Final = "step_time:+5%"
"""What a gate asks for as well where a baseline is given and no condition is about a change."""


class Budget(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of conditions. `baseline`: a name or a path, None where it names none."""

    require: tuple[str, ...] = ()
    baseline: str | None = None


def budget_in(path: Location) -> Budget:
    """The budget in a file.

    Raises `TraceNotFoundError` where there is no such file, `TraceFormatError` for one that is no TOML, and `UsageError`
    for a key that does not exist.
    """
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Budget)
    except FileNotFoundError:
        raise TraceNotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise TraceNotFoundError(f"{path}: {error.strerror or error}") from error
    except ImportError:
        raise UsageError(
            f"{path}: reading TOML needs Python 3.11 or the package tomli",
            hint="pip install tomli, or give the conditions with --require",
        ) from None
    except msgspec.ValidationError as error:
        hint = 'a budget has a list of texts, require = ["step_time_ms <= 120"], and a baseline'
        raise UsageError(f"{path}: {error}", hint=hint) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceFormatError(path, f"not TOML: {error}") from None


def asked_conditions(
    texts: Sequence[str], file: Location | None, baseline: str | None
) -> tuple[tuple[Condition, ...], str | None]:
    """The conditions of the file and of the command line together, and the baseline: that of the command line first.

    Raises `UsageError` where nothing is asked for, and what `budget_in` and `condition_of` raise.
    """
    read = budget_in(file) if file is not None else Budget()
    conditions = tuple(map(condition_of, (*read.require, *texts)))
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
    return conditions, baseline


def baseline_of(text: str, folder: Path | None) -> Subject:
    """The captures of a baseline by its name, or the report by its path where there is no baseline of this name.

    Raises what `baseline_called` and `report_at` raise.
    """
    path = location_of(text)
    is_name = "/" not in text and "\\" not in text and not is_remote(path)
    if is_name and (folder is not None or not path.exists()):
        return Subject(text, baseline_called(folder or DEFAULT_FOLDER, text))
    return Subject(text, (report_at(path),))


# Judging


class Subject(Struct, frozen=True, dict=True):
    """The captures of a side, and the path or the name that they were given as."""

    name: str
    reports: tuple[Report, ...]

    @cached_property
    def side(self) -> Side:
        """The captures, each once."""
        return Side.of(self.reports)

    @property
    def shown(self) -> JudgedSide:
        """How the result names it."""
        source = self.reports[0].source
        return JudgedSide(self.name, source.logdir, source.run, len(self.side.reports))


def judged(
    subject: Subject,
    conditions: Iterable[Condition],
    baseline: Subject | None = None,
    *,
    earlier: Sequence[Sequence[Level]] = (),
) -> GateResult:
    """What the conditions say of the captures of a side.

    `baseline`: what changes are compared with. `earlier`: steps of earlier runs of the job, in groups without a change.
    Changes between runs that cannot be compared are not judged.
    """
    judgements = []
    for condition in conditions:
        if condition.is_change:
            rows = _of_change(condition, subject, baseline, earlier)
        else:
            rows = [
                _unknown(value.where, value.note)
                if value.value is None
                else _row(condition, value, condition.sign, condition.limit)
                for value in _median_values(condition, subject.side.reports)
            ]
        judgements.append(_judgement(condition.text, rows))
    judgements.sort(key=lambda row: _FIRST.index(row.outcome))
    outcome, code = _VERDICTS[judgements[0].outcome] if judgements else _VERDICTS["holds"]
    report = subject.reports[0]
    return GateResult(
        schema_version=GATE_SCHEMA_VERSION,
        traceview_version=VERSION,
        outcome=outcome,
        exit_code=code,
        subject=subject.shown,
        baseline=baseline.shown if baseline else None,
        headline=report.verdict.headline,
        capture_quality=report.capture.quality,
        judgements=tuple(judgements),
    )


def _judgement(text: str, rows: Sequence[JudgedRow]) -> Judgement:
    """A condition holds if each row does that has a value, and one has."""
    outcomes = {row.outcome for row in rows}
    outcome = next(known for known in _DECIDES if known in outcomes)
    chosen = [row for row in rows if row.outcome != "holds"]
    if outcome == "holds":
        held = [row for row in rows if row.outcome == "holds"]
        chosen.insert(0, min(held, key=lambda row: abs((row.limit or 0.0) - (row.value or 0.0))))
    return Judgement(text, outcome, len(rows), tuple(chosen))


def _median_values(condition: Condition, captures: Sequence[Report]) -> list[Value]:
    """By device that most captures have the median of its values, where most captures have one."""
    by_place: dict[str, list[Value]] = {}
    for report in captures:
        for value in condition.values(report):
            by_place.setdefault(value.where, []).append(value)
    values = []
    for of_place in by_place.values():
        known = [value for value in of_place if value.value is not None]
        if 2 * len(known) > len(captures):
            largest = max(known, key=lambda value: value.value or 0.0)
            middle = median(value.value or 0.0 for value in known)
            values.append(replace(largest, value=middle))
        elif 2 * len(of_place) > len(captures):
            values.append(next(value for value in of_place if value.value is None))
    return values or [Value("", None, "no device is in more than half of the captures")]


def _unknown(where: str, reason: str) -> JudgedRow:
    return JudgedRow(where, "unknown", None, None, numbers.ABSENT, "", reason=reason)


def _row(condition: Condition, value: Value, sign: str, limit: Fraction) -> JudgedRow:
    """A value on one side of its limit."""
    assert value.value is not None
    # A limit written as 0.7 is the float 0.7, which is not seven tenths.
    holds = _OPERATORS[sign](value.value, float(limit))
    measured, allowed = written(value.value, condition.query.quantity), ""
    if sign == "absent":
        measured, allowed = "absent" if holds else "present", "absent"
    return JudgedRow(
        where=value.where,
        outcome="holds" if holds else "fails",
        value=value.value,
        limit=float(limit),
        measured=measured,
        allowed=allowed or f"{sign} {written(limit, condition.query.quantity)}",
        reason=value.note if value.note and condition.is_of_finding and not holds else None,
    )


# Changes against a baseline


def _of_change(
    condition: Condition,
    subject: Subject,
    baseline: Subject | None,
    earlier: Sequence[Sequence[Level]],
) -> list[JudgedRow]:
    if baseline is None:
        return [_unknown("", "no baseline is given")]
    sides = baseline.side, subject.side
    blocking = blocking_words(conditions_of(*(side.reports for side in sides)))
    if blocking:
        return [_unknown("", f"the runs cannot be compared ({blocking})")]
    if condition.key == STEP_TIME:
        return [_of_step_time(condition, *sides, earlier)]
    old, new = (_median_values(condition, side.reports) for side in sides)
    before = {value.where: value for value in old}
    return [
        _changed_row(condition, value, before.get(value.where, before.get(""))) for value in new
    ]


def _changed_row(condition: Condition, value: Value, before: Value | None) -> JudgedRow:
    """A value that may rise or fall by the limit of the condition against that before."""
    if value.value is None:
        return _unknown(value.where, value.note)
    if before is None:
        return _unknown(value.where, f"the baseline has no {value.where}")
    if before.value is None:
        return _unknown(value.where, f"in the baseline: {before.note}")
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
    condition: Condition, before: Side, after: Side, earlier: Sequence[Sequence[Level]]
) -> JudgedRow:
    """The change of the step, with its noise."""
    old, new = (_mean_step(condition, side) for side in (before, after))
    row = _changed_row(condition, new, old)
    change = before.change_to(after, earlier)
    if row.outcome == "unknown" or change is None or after.is_same_as(before):
        return row
    assert row.baseline is not None
    assert row.limit is not None
    limit = row.limit / row.baseline - 1
    outcome = outcome_of(change, limit, 1 if condition.sign == "+" else -1)
    few = min(len(before.reports), len(after.reports)) < ENOUGH_RUNS
    return replace(
        row,
        outcome=outcome,
        change_least_ratio=change.low,
        change_most_ratio=change.high,
        reason=_noise_words(change, row.outcome, outcome, is_few=few),
    )


def _mean_step(condition: Condition, side: Side) -> Value:
    """The mean step of a side, or why there is none."""
    if side.has_steps:
        return Value("", float(side.mean_ps))
    values = (value for report in side.reports for value in condition.values(report))
    return next(value for value in values if value.value is None)


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
    change: Difference, of_mean: Outcome, outcome: Outcome, *, is_few: bool
) -> str | None:
    """Why there is no verdict, or why another number than that of the mean step, with its outcome, decides."""
    if outcome == "unknown":
        return _TOO_FEW_STEPS
    interval = f"{numbers.signed_share(change.low)} to {numbers.signed_share(change.high)}"
    if outcome == "no_verdict":
        more = f": {ENOUGH}" if is_few else ""
        why = "these runs differ too much"
        if change.basis == "assumed":
            why = "one capture of a side does not show how much runs differ"
        return f"{why}, so the 95% interval of the change is {interval}{more}"
    if outcome != of_mean:
        changed = numbers.signed_share(change.value)
        return f"the typical step changed by {changed}, 95% interval {interval}; few steps make the mean"
    return None
