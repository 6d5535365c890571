"""Judges captures by conditions: budgets in numbers, and changes against a baseline.

Of several captures of a side the median of each value is judged; a change of the step time is judged with all captures of
both sides and their noise (`noise.py`).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from statistics import median
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.registry import RULES
from traceview.analysis.rules.finding import SEVERITIES
from traceview.base.errors import TraceFormatError, TraceNotFoundError, UsageError
from traceview.base.location import Location
from traceview.base.text import did_you_mean, lazy_pattern
from traceview.base.version import VERSION
from traceview.comparison.build import blocking_words, conditions_of
from traceview.comparison.model import (
    GATE_SCHEMA_VERSION,
    GateResult,
    JudgedRow,
    JudgedSide,
    Judgement,
    Outcome,
)
from traceview.comparison.noise import ENOUGH, ENOUGH_RUNS, Difference, Earlier
from traceview.comparison.sides import Side, step_time_ps, why_no_step
from traceview.comparison.verdict import interval_words
from traceview.document import numbers
from traceview.document.columns import WRITE
from traceview.document.sanitize import shortened
from traceview.ledger.states import KEYS
from traceview.report.model import Report, why_absent

_VERDICTS: Final[Mapping[Outcome, tuple[str, int]]] = {
    "fails": ("failed", 10),
    "unknown": ("unknown", 7),
    "no_verdict": ("no_verdict", 9),
    "holds": ("passed", 0),
}
"""The outcome and exit code of a gate by the worst outcome of its conditions, the worst first."""
_DECIDES: Final[tuple[Outcome, ...]] = ("fails", "no_verdict", "holds", "unknown")
"""Which of the outcomes of its rows a condition has."""
_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "absent": operator.le,
}

# Budgets

OF_BASELINE: Final = "step_time:+5%"
"""The condition that a gate adds where a baseline is given and no condition is about a change."""


class _Budget(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of conditions. `baseline`: a name or a path, None where it names none."""

    require: tuple[str, ...] = ()
    baseline: str | None = None


def _budget_in(path: Location) -> _Budget:
    try:
        return msgspec.toml.decode(path.read_bytes(), type=_Budget)
    except OSError as error:
        raise TraceNotFoundError(f"{path}: {error.strerror or error}") from None
    except ImportError:
        hint = "pip install tomli, or give the conditions with --require"
        raise UsageError(f"{path}: TOML needs Python 3.11 or tomli", hint=hint) from None
    except msgspec.ValidationError as error:
        hint = 'a budget has a list of texts, require = ["step_time_ms <= 120"], and a baseline'
        raise UsageError(f"{path}: {error}", hint=hint) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceFormatError(path, f"not TOML: {error}") from None


def asked_conditions(
    texts: Sequence[str], file: Location | None, baseline: str | None
) -> tuple[tuple[Condition, ...], str | None]:
    """The conditions of the file and of the command line together, and the baseline: that of the command line first.

    Raises `UsageError` where nothing is asked for, for what is no condition, and for a key that the file must not have;
    `TraceNotFoundError` where there is no such file, and `TraceFormatError` for one that is no TOML.
    """
    read = _budget_in(file) if file is not None else _Budget()
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


# Judging


def judged(
    subject: Side,
    conditions: Iterable[Condition],
    baseline: Side | None = None,
    *,
    earlier: Earlier = (),
) -> GateResult:
    """Judge the captures of a side by conditions.

    `baseline`: what changes are compared with. `earlier`: steps of earlier runs of the job, in groups without a change.
    Changes between runs that cannot be compared are not judged. A run that lacks hosts has to be asked for by `absent_hosts`.
    """
    conditions = list(conditions)
    lacks_hosts = any(report.capture.absent_host_count for report in subject.reports)
    if lacks_hosts and all(condition.key != "absent_hosts" for condition in conditions):
        conditions.append(condition_of("absent_hosts <= 0"))
    judgements = [_judgement(of.text, _rows(of, subject, baseline, earlier)) for of in conditions]
    judgements.sort(key=lambda row: [*_VERDICTS].index(row.outcome))
    outcome, code = _VERDICTS[judgements[0].outcome]
    report = subject.reports[0]
    return GateResult(
        schema_version=GATE_SCHEMA_VERSION,
        traceview_version=VERSION,
        outcome=outcome,
        exit_code=code,
        subject=_judged_side(subject),
        baseline=_judged_side(baseline) if baseline else None,
        headline=report.verdict.headline,
        capture_quality=report.capture.quality,
        judgements=tuple(judgements),
    )


def _judged_side(side: Side) -> JudgedSide:
    source = side.reports[0].source
    return JudgedSide(side.name, source.logdir, source.run, len(side.reports))


def _judgement(text: str, rows: Sequence[JudgedRow]) -> Judgement:
    """A condition holds if each row does that has a value, and one has."""
    outcome = next(known for known in _DECIDES if known in {row.outcome for row in rows})
    chosen = [row for row in rows if row.outcome != "holds"]
    if outcome == "holds":
        held = [row for row in rows if row.outcome == "holds"]
        chosen.insert(0, min(held, key=lambda row: abs((row.limit or 0.0) - (row.value or 0.0))))
    return Judgement(text, outcome, tuple(chosen))


def _median_values(condition: Condition, side: Side) -> list[Value]:
    """By device that most captures have the median of its values, where most captures have one."""
    by_place: dict[str, list[Value]] = {}
    captures = side.reports
    for report in captures:
        for value in condition.query.values(report):
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


def _row(condition: Condition, value: Value, sign: str, limit: float) -> JudgedRow:
    if value.value is None:
        return _unknown(value.where, value.note)
    holds = _OPERATORS[sign](value.value, limit)
    if sign == "absent":
        measured, allowed = "absent" if holds else "present", "absent"
    else:
        write = WRITE[condition.query.quantity]
        measured, allowed = write(value.value), f"{sign} {write(limit)}"
    return JudgedRow(
        where=value.where,
        outcome="holds" if holds else "fails",
        value=value.value,
        limit=limit,
        measured=measured,
        allowed=allowed,
        reason=None if holds else value.note or None,
    )


def _rows(
    condition: Condition, subject: Side, baseline: Side | None, earlier: Earlier
) -> list[JudgedRow]:
    if not condition.is_change:
        values = _median_values(condition, subject)
        return [_row(condition, value, condition.sign, condition.limit) for value in values]
    if baseline is None:
        return [_unknown("", "no baseline is given")]
    blocking = blocking_words(conditions_of(baseline.reports, subject.reports))
    if blocking:
        return [_unknown("", f"the runs cannot be compared ({blocking})")]
    if condition.key == STEP_TIME:
        return [_of_step_time(condition, baseline, subject, earlier)]
    before = {value.where: value for value in _median_values(condition, baseline)}
    return [
        _changed_row(condition, value, before.get(value.where, before.get("")))
        for value in _median_values(condition, subject)
    ]


def _changed_row(condition: Condition, value: Value, before: Value | None) -> JudgedRow:
    """A value that may rise or fall by the limit of the condition against that before."""
    if value.value is None:
        return _unknown(value.where, value.note)
    if before is None:
        return _unknown(value.where, f"the baseline has no {value.where}")
    if before.value is None:
        return _unknown(value.where, f"in the baseline: {before.note}")
    was = before.value
    room = was * condition.limit if condition.is_relative else condition.limit
    sign, limit = ("<=", was + room) if condition.sign == "+" else (">=", was - room)
    row = _row(condition, value, sign, limit)
    return replace(row, baseline=was, change_ratio=value.value / was - 1 if was else None)


def _of_step_time(condition: Condition, before: Side, after: Side, earlier: Earlier) -> JudgedRow:
    change = before.change_to(after, earlier)

    def step_of(side: Side) -> Value:
        """The step that the change is of, or why there is none."""
        if change is not None and change.measure == "typical":
            return Value("", side.typical_ps)
        values = (_step_time(report)[0] for report in side.reports)
        return next((of for of in values if of.value is None), None) or Value("", side.mean_ps)

    row = _changed_row(condition, step_of(after), step_of(before))
    if row.limit is None or row.baseline is None or change is None or after.is_same_as(before):
        return row
    sign = 1 if condition.sign == "+" else -1
    outcome = outcome_of(change, row.limit / row.baseline - 1, sign)
    few = min(len(before.reports), len(after.reports)) < ENOUGH_RUNS
    return replace(row, outcome=outcome, reason=_noise_words(change, outcome, is_few=few))


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
    is_clear = (high - low) / 2 <= limit
    return "holds" if high <= limit or (is_clear and value <= limit) else "no_verdict"


def _noise_words(change: Difference, outcome: Outcome, *, is_few: bool) -> str | None:
    """Why there is no verdict, or which step the change is of."""
    if outcome == "unknown":
        return "a single step says nothing of noise: capture ten or more"
    interval, step = interval_words(change.low, change.high), ""
    if change.measure == "typical":
        step = "; value and change are of the typical step, without the slowest third"
    if outcome != "no_verdict":
        return f"{interval}{step}" if step else None
    why = "these runs differ too much"
    if change.basis == "assumed":
        why = "one capture of a side does not show how much runs differ"
    return f"{why}, {interval}{f': {ENOUGH}' if is_few else ''}{step}"


# The language of conditions. A key is a query on the report: `QUERIES` has them all.
#
# condition = KEY OPERATOR LIMIT | KEY ":" CHANGE | "finding:" CODE "absent"
# OPERATOR  = "<=" | ">=" | "<" | ">"
# LIMIT     = NUMBER ["%"]
# CHANGE    = ("+" | "-") NUMBER ["%"]
#
# The unit of a number ends the key: step_time_ms, memory_peak_gb.


Quantity: TypeAlias = Literal["time", "bytes", "share", "number"]
"""`time` is picoseconds."""

STEP_TIME: Final = "step_time"
"""The mean of the used steps, as compare counts it: the only key whose noise is known."""
_FINDING: Final = "finding:"
_UNITS: Final[Mapping[Quantity, Mapping[str, int]]] = {
    "time": {unit.replace("µ", "u"): factor for unit, factor in numbers.TIMES.items()},
    "bytes": {unit.lower(): factor for unit, factor in numbers.SIZES.items()},
    "share": {},
    "number": {},
}
"""The endings of keys."""
_CONDITION: Final = lazy_pattern(
    r"(?P<key>finding ?: ?[\w-]+|[A-Za-z_.]+) ?(?:(?P<absent>absent)|(?:(?P<sign>[<>]=?)|: ?(?P<way>[+-])) ?"
    r"(?P<number>-?\d{1,18}(?:\.\d{0,18})?|\.\d{1,18}) ?(?P<percent>%?))",
    re.ASCII,
)
_SHOWN: Final = 80
_EXAMPLE: Final = "for instance step_time_ms <= 120, or finding:unused-gpu absent"
_UNUSABLE: Final = "the capture is unusable: the trace holds no device event"


class Value(Struct, frozen=True):
    """A value in a report. `where`: its device, empty for one of the run; `note`: why there is none, or what it is of."""

    where: str
    value: float | None
    note: str = ""


class Query(Struct, frozen=True):
    """The values of a report that a key stands for: at least one."""

    quantity: Quantity
    values: Callable[[Report], list[Value]]


# Queries


def _none(report: Report, topic: str, reason: str) -> list[Value]:
    """Why a report has no value: it lacks the topic, or else this reason."""
    is_absent = getattr(report.results, topic) is None
    return [Value("", None, why_absent(report, topic) if is_absent else reason)]


def _step_time(report: Report) -> list[Value]:
    step_ps = step_time_ps(report)
    return [Value("", step_ps, why_no_step(report) if step_ps is None else "")]


def _busy(report: Report) -> list[Value]:
    """Of the devices that compute; others are not busy, and need not be."""
    values = [Value(row.device, row.busy_ratio) for row in report.device_times if row.is_in_use]
    return values or _none(report, "device_time", "no device computed")


def _memory_peak(report: Report) -> list[Value]:
    without = "its allocator was not recorded"
    values = [Value(row.device, row.memory_peak_bytes, without) for row in report.device_times]
    return values or _none(report, "device_time", "there is no device")


def _examples(report: Report) -> list[Value]:
    balance = report.results.balance
    rate = balance.throughput.examples_per_second if balance else None
    unknown = _none(report, "balance", "the batch size is not known")
    return unknown if rate is None else [Value("", rate)]


def _state(key: str, is_ratio: bool, report: Report) -> list[Value]:
    """The mean step of each device in a state, or its share of the step; a state that does not occur takes 0."""
    values = [
        Value(row.device, row.states.get(key, 0) / (max(row.step_ps, 1) if is_ratio else 1))
        for row in report.device_states
    ]
    return values or _none(report, "ledger", "there is no device")


QUERIES: Final[Mapping[str, Query]] = {
    STEP_TIME: Query("time", _step_time),
    "busy_ratio": Query("share", _busy),
    "examples_per_second": Query("number", _examples),
    "memory_peak": Query("bytes", _memory_peak),
    "absent_hosts": Query("number", lambda report: [Value("", report.capture.absent_host_count)]),
    **{f"state.{key}": Query("time", partial(_state, key, False)) for key in KEYS},
    **{f"state.{key}_ratio": Query("share", partial(_state, key, True)) for key in KEYS},
}


def _finding(code: str, is_cost: bool, report: Report) -> list[Value]:
    """Whether the report has the finding, as 1 or 0, or what it costs of the GPU time; a severity means the more severe, too."""
    if report.capture.quality == "unusable":
        return [Value("", None, _UNUSABLE)]
    severities = [*SEVERITIES]
    meant = severities[: severities.index(code) + 1] if code in severities else ()
    made = [row for row in report.findings if row.code == code or row.severity in meant]
    if not made:
        return [Value("", 0.0)]
    title = made[0].title + (f" (and {len(made) - 1} more)" if len(made) > 1 else "")
    if not is_cost:
        return [Value("", 1.0, title)]
    costs = [row.loss.gpu_time_ratio for row in made if row.loss]
    return [Value("", max(costs), title) if costs else Value("", None, "it costs no time")]


# Conditions


class Condition(Struct, frozen=True):
    """A requirement on the values of a key.

    `sign`: an operator with its `limit` in the smallest unit of the key; `absent`; `+` or `-`, what the value may rise or fall
    by against the baseline, of whose value `is_relative` makes the limit a share.
    """

    text: str
    key: str
    query: Query
    sign: str
    limit: float = 0.5
    is_relative: bool = False

    @property
    def is_change(self) -> bool:
        """Whether it needs a baseline."""
        return self.sign in ("+", "-")


def condition_of(text: str) -> Condition:
    """The condition that a text states; raises `UsageError`, which names the text, for one that states none."""
    text = " ".join(text.split())
    try:
        return _condition(text)
    except UsageError as error:
        where = shortened(text, _SHOWN)
        raise UsageError(f"condition {where!r}: {error.message}", hint=error.hint) from None


def _condition(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise UsageError("it is no key with a limit", hint=_EXAMPLE)
    key, way, is_absent = match["key"], match["way"], match["absent"] is not None
    if key.startswith("finding"):
        if way:
            raise UsageError("a finding has a limit and no change", hint=_EXAMPLE)
        code = _code(key.partition(":")[2].strip())
        key, unit = f"{_FINDING}{code}", 1
        query = Query("share", partial(_finding, code, not is_absent))
        if is_absent:
            return Condition(text, key, query, "absent")
    elif is_absent:
        raise UsageError("only a finding can be absent", hint=_EXAMPLE)
    else:
        key, unit = _known_key(key)
        query = QUERIES[key]
    # Of 82.3% the float 0.823.
    number, quantity = Fraction(match["number"]), query.quantity
    is_percent, is_relative = bool(match["percent"]), bool(way and match["percent"])
    if is_percent and not is_relative and quantity != "share":
        raise UsageError(f"{key} is no share, which a limit in percent is for")
    if not is_percent and not unit:
        endings = ", ".join(f"{key}_{ending}" for ending in _UNITS[quantity])
        relative = f"write {text}%, or " if way else "write "
        raise UsageError(f"{key} has no unit", hint=f"{relative}one of {endings}")
    if not is_percent and quantity == "share" and abs(number) > 1:
        # Read as it is written, such a limit would hold for every value, or for none.
        raise UsageError(
            f"{match['number']} is more than all, and a share is at most 100%",
            hint=f"write {match['number']}%",
        )
    limit = number / 100 if is_percent else number * unit
    return Condition(text, key, query, way or match["sign"], float(limit), is_relative)


def _known_key(text: str) -> tuple[str, int]:
    """The key, and its unit in the smallest one, 0 where it needs one; raises `UsageError`, with the keys that are near."""
    if text in QUERIES:
        return text, int(not _UNITS[QUERIES[text].quantity])
    key, _, ending = text.rpartition("_")
    unit = _UNITS[QUERIES[key].quantity].get(ending) if key in QUERIES else None
    if unit is None:
        hint = did_you_mean(
            text,
            QUERIES,
            f"the keys: {', '.join(key for key in QUERIES if '.' not in key)}, state.STATE, state.STATE_ratio, finding:CODE",
        )
        raise UsageError(f"no key is called {text}", hint=hint)
    return key, unit


def _code(text: str) -> str:
    code, known = text.lower(), (*RULES, *SEVERITIES)
    if code in known:
        return code
    hint = did_you_mean(code, known, "traceview explain lists them")
    raise UsageError(f"no finding is called {code}", hint=hint)
