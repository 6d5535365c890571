"""Reads conditions, and finds the values they are about: `step_time_ms <= 120`, `finding:unused-gpu absent`, `step_time:+5%`.

condition = KEY OPERATOR LIMIT | KEY ":" CHANGE | "finding:" CODE "absent"
OPERATOR  = "<=" | ">=" | "<" | ">"
LIMIT     = NUMBER [UNIT]
CHANGE    = ("+" | "-") NUMBER ("%" | [UNIT])

A key is a query on the report: `QUERIES` has them all. KEY[GPU:0] is of one device.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from traceview.analysis.registry import RULES
from traceview.analysis.rules.finding import SEVERITIES, Finding
from traceview.base.errors import UsageError
from traceview.base.text import did_you_mean
from traceview.comparison.sides import step_time_ps
from traceview.document import numbers
from traceview.document.sanitize import shortened
from traceview.ledger.states import KEYS
from traceview.report.model import Report, why_absent

Quantity: TypeAlias = Literal["time", "bytes", "ratio", "number"]
"""`time` is picoseconds."""

STEP_TIME: Final = "step_time"
"""The mean of the used steps, as compare counts it: the only key whose noise is known."""
_FINDING: Final = "finding:"
_UNITS: Final[Mapping[Quantity, Mapping[str, Fraction]]] = {
    "time": {
        unit: Fraction(factor)
        for unit, factor in (*numbers.TIMES.items(), ("us", numbers.TIMES["µs"]))
    },
    "bytes": {unit: Fraction(factor) for unit, factor in numbers.SIZES.items()},
    "ratio": {"%": Fraction(1, 100)},
    "number": {},
}
_CONDITION: Final = re.compile(
    r"(?P<key>finding ?: ?[\w-]+|[A-Za-z_.]+)(?:\[(?P<device>[^\[\]]+)\])? ?"
    r"(?:(?P<absent>absent)|(?P<sign>[<>]=?) ?(?P<limit>.+)|: ?(?P<way>[+-]) ?(?P<change>[^+-].*))",
    re.ASCII,
)
_NUMBER: Final = re.compile(
    r"(?P<number>[+-]?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18}))\s*(?P<unit>[^\s\d]*)"
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
    """What a key asks of a report: at least one value."""

    quantity: Quantity
    values: Callable[[Report], list[Value]]
    is_of_devices: bool = True


# Queries


def _step_time(report: Report) -> list[Value]:
    steps = report.results.steps
    reason = why_absent(report, "steps") if steps is None else "no step is used"
    excluded = dict.fromkeys(step.excluded for step in (steps.steps if steps else ()))
    words = ", ".join(filter(None, excluded))
    return [Value("", step_time_ps(report), f"{reason}: {words}" if words else reason)]


def _busy(report: Report) -> list[Value]:
    """Of the devices that compute; others are not busy, and need not be."""
    times = report.results.device_time
    rows = [
        Value(row.device, row.busy_ratio)
        for row in (times.devices if times else ())
        if row.is_in_use
    ]
    reason = why_absent(report, "device_time") if times is None else "no device computed"
    return rows or [Value("", None, reason)]


def _memory_peak(report: Report) -> list[Value]:
    times = report.results.device_time
    if times is None:
        return [Value("", None, why_absent(report, "device_time"))]
    rows = [
        Value(row.device, row.memory_peak_bytes, "its allocator was not recorded")
        for row in times.devices
    ]
    return rows or [Value("", None, "there is no device")]


def _examples(report: Report) -> list[Value]:
    balance = report.results.balance
    if balance is None:
        return [Value("", None, why_absent(report, "balance"))]
    throughput = balance.throughput
    return [Value("", throughput.examples_per_second, "the batch size is not known")]


def _absent_hosts(report: Report) -> list[Value]:
    return [Value("", report.capture.absent_host_count)]


def _state(key: str, is_ratio: bool, report: Report) -> list[Value]:
    """The mean step of each device in a state, or its share of the step; a state that does not occur takes 0."""
    ledger = report.results.ledger
    if ledger is None:
        return [Value("", None, why_absent(report, "ledger"))]
    rows = [
        Value(row.device, row.states.get(key, 0) / (max(row.step_ps, 1) if is_ratio else 1))
        for row in ledger.devices
    ]
    return rows or [Value("", None, "there is no device")]


QUERIES: Final[Mapping[str, Query]] = {
    STEP_TIME: Query("time", _step_time, is_of_devices=False),
    "busy_ratio": Query("ratio", _busy),
    "examples_per_second": Query("number", _examples, is_of_devices=False),
    "memory_peak": Query("bytes", _memory_peak),
    "absent_hosts": Query("number", _absent_hosts, is_of_devices=False),
    **{f"state.{key}": Query("time", partial(_state, key, False)) for key in KEYS},
    **{f"state.{key}_ratio": Query("ratio", partial(_state, key, True)) for key in KEYS},
}


def _finding(code: str, is_cost: bool, report: Report) -> list[Value]:
    """Whether the report has the finding, as 1 or 0, or what it costs of the GPU time; a severity means the more severe, too."""
    if report.capture.quality == "unusable":
        return [Value("", None, _UNUSABLE)]
    made = [row for row in report.findings if _is_meant(row, code)]
    if not made:
        return [Value("", 0.0)]
    title = made[0].title + (f" (and {len(made) - 1} more)" if len(made) > 1 else "")
    if not is_cost:
        return [Value("", 1.0, title)]
    costs = [row.loss.gpu_time_ratio for row in made if row.loss]
    return [Value("", max(costs), title) if costs else Value("", None, "it costs no time")]


def _is_meant(finding: Finding, code: str) -> bool:
    if code not in SEVERITIES:
        return finding.code == code
    return SEVERITIES.index(finding.severity) <= list(SEVERITIES).index(code)


# Conditions


class Condition(Struct, frozen=True):
    """What has to hold of a key.

    `sign`: an operator with its `limit` in the smallest unit of the key; `absent`; `+` or `-`, what the value may rise or fall
    by against the baseline, of whose value `is_relative` makes the limit a share. `device`: the only one that is meant.
    """

    text: str
    key: str
    query: Query
    sign: str
    limit: Fraction = Fraction(1, 2)
    is_relative: bool = False
    device: str = ""

    @property
    def is_change(self) -> bool:
        """Whether it needs a baseline."""
        return self.sign in ("+", "-")

    @property
    def is_of_finding(self) -> bool:
        """Whether it is about a finding."""
        return self.key.startswith(_FINDING)

    def values(self, report: Report) -> list[Value]:
        """The values in a report that it is about, at least one."""
        values = self.query.values(report)
        if not self.device or values[0].where == "":
            return values
        asked = [
            row for row in values if self.device in (row.where, numbers.without_host(row.where))
        ]
        there = numbers.beginning([row.where for row in values])
        return asked or [
            Value(self.device, None, f"there is no {self.device}; the run has {there}")
        ]


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
    key, device, way, change = match["key"], match["device"] or "", match["way"], match["change"]
    if key.startswith("finding"):
        code = _code(key.partition(":")[2].strip())
        if device or way:
            raise UsageError("a finding has a limit, no device and no change", hint=_EXAMPLE)
        query = Query("ratio", partial(_finding, code, not match["absent"]))
        key, factor = f"{_FINDING}{code}", None
    else:
        key, factor = _known_key(key)
        query = QUERIES[key]
        if match["absent"]:
            raise UsageError("only a finding can be absent", hint=_EXAMPLE)
        if device and not query.is_of_devices:
            raise UsageError(f"{key} is of the run, not of a device")
    if match["absent"]:
        return Condition(text, key, query, "absent")
    if not way:
        return Condition(
            text, key, query, match["sign"], limit_of(match["limit"], query, factor), device=device
        )
    is_relative = change.endswith("%")
    limit = limit_of(change, Query("ratio", query.values) if is_relative else query, factor)
    return Condition(text, key, query, way, limit, is_relative, device)


def _known_key(text: str) -> tuple[str, Fraction | None]:
    """The key, and what the unit at its end stands for; raises `UsageError`, with the keys that are near."""
    if text in QUERIES:
        return text, None
    key, _, unit = text.rpartition("_")
    units = _UNITS[QUERIES[key].quantity] if key in QUERIES else {}
    by_ending = {name.lower(): factor for name, factor in units.items()}
    if unit in by_ending:
        return key, by_ending[unit]
    hint = did_you_mean(text, QUERIES, "docs/runs.md lists the keys")
    raise UsageError(f"no key is called {text}", hint=hint)


def _code(text: str) -> str:
    code, known = text.lower(), (*RULES, *SEVERITIES)
    if code not in known:
        hint = did_you_mean(code, known, "traceview explain lists them")
        raise UsageError(f"no finding is called {code}", hint=hint)
    return code


def limit_of(text: str, query: Query, factor: Fraction | None = None) -> Fraction:
    """The limit that a text states, in the smallest unit of the quantity; raises `UsageError` for any other text.

    `factor`: what the unit at the end of the key stands for.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is no number")
    number, units = Fraction(match["number"]), _UNITS[query.quantity]
    if match["unit"]:
        if match["unit"] not in units:
            known = f"; units here: {', '.join(units)}" if units else "; this key has no unit"
            raise UsageError(f"{text!r}: no such unit{known}")
        return number * units[match["unit"]]
    if factor is None and query.quantity in ("time", "bytes"):
        raise UsageError(f"{text!r} has no unit", hint=f"write one of {', '.join(units)}")
    if query.quantity == "ratio" and abs(number) > 1:
        # Read as it is written, such a limit would hold for every value, or for none.
        meant = f"{float(abs(number)) * 100:.10g}%"
        raise UsageError(
            f"{match['number']} would be {meant}, and a share is at most 100%",
            hint=f"write {match['number']}%",
        )
    return number * (factor or 1)


def written(value: float | Fraction, quantity: Quantity) -> str:
    """A value as people read it."""
    in_words: Mapping[Quantity, Callable[[float], str]] = {
        "time": numbers.time,
        "bytes": numbers.size,
        "ratio": numbers.share,
        "number": numbers.number,
    }
    return in_words[quantity](int(value) if value == int(value) else float(value))
