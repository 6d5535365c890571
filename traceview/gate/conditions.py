"""Reads conditions: `step_time_ms <= 120`, `finding:unused-gpu absent`, `step_time:+5%`.

condition = KEY OPERATOR LIMIT | KEY "absent" | KEY ":" CHANGE | "finding:" CODE "absent"
OPERATOR  = "<=" | ">=" | "<" | ">" | "==" | "!="
LIMIT     = NUMBER [UNIT] | WORD
CHANGE    = ("+" | "-") NUMBER ("%" | [UNIT])
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from fractions import Fraction
from typing import Any, Final, TypeAlias

from msgspec import Struct

from traceview.analysis.base import SEVERITIES
from traceview.analysis.registry import RULES
from traceview.document.sanitize import shortened
from traceview.errors import UsageError
from traceview.gate.key import Key, key_at_start
from traceview.gate.units import Unit, limit_of

OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_OPERATOR: Final = re.compile(r"\s*(?P<sign>[<>=!]=|[<>])\s*(?P<limit>.*)", re.DOTALL)
_CHANGE: Final = re.compile(
    r"\s*:\s*(?P<sign>[+-])\s*(?P<number>[^\s%+-][^%]*?)\s*(?P<percent>%?)\s*"
)
_FINDING: Final = re.compile(r"finding\s*:\s*(?P<code>[\w-]+)\s+absent", re.ASCII)
_SHOWN: Final = 80
_EXAMPLE: Final = "for instance step_time_ms <= 120, or finding:unused-gpu absent"


class Limit(Struct, frozen=True):
    """The value is on this side of a limit."""

    text: str
    key: Key
    sign: str
    limit: Fraction | str | bool


class Absence(Struct, frozen=True):
    """The key has no value, no row and no entry."""

    text: str
    key: Key


class NoFinding(Struct, frozen=True):
    """The report has no finding of this code, or of this severity and more severe ones."""

    text: str
    code: str


class Change(Struct, frozen=True):
    """The value differs from the baseline's by at most so much in this direction.

    `sign`: `+`, it may rise by so much; `-`, it may fall. `ratio`: relative to the value of the baseline; without one
    `amount` says how much, in the smallest unit of the key.
    """

    text: str
    key: Key
    sign: str
    ratio: Fraction | None
    amount: Fraction | None


Condition: TypeAlias = Limit | Absence | NoFinding | Change


def condition_of(text: str) -> Condition:
    """The condition that a text states; raises `UsageError`, which names the text, for one that states none."""
    try:
        return _condition(" ".join(text.split()))
    except UsageError as error:
        where = shortened(" ".join(text.split()), _SHOWN)
        raise UsageError(f"condition {where!r}: {error.message}", hint=error.hint) from None


def _condition(text: str) -> Condition:
    if not text:
        raise UsageError("it is empty", hint=_EXAMPLE)
    if re.match(r"finding\s*:", text):
        return _no_finding(text)
    key, rest = key_at_start(text)
    if rest.strip() == "absent":
        return Absence(text, key)
    compared = _OPERATOR.fullmatch(rest)
    if compared:
        return Limit(text, key, compared["sign"], _limit(key, compared["sign"], compared["limit"]))
    changed = _CHANGE.fullmatch(rest)
    if changed:
        return _change(text, key, changed)
    after = rest.strip()
    problem = f"{after!r} is no comparison" if after else "it says nothing about the key"
    raise UsageError(problem, hint=_EXAMPLE)


def _no_finding(text: str) -> NoFinding:
    match = _FINDING.fullmatch(text)
    if match is None:
        raise UsageError("a condition on a finding is finding:CODE absent", hint=_EXAMPLE)
    code = match["code"].lower()
    known = (*RULES, *SEVERITIES)
    if code not in known:
        near = get_close_matches(code, known)
        hint = f"did you mean {' or '.join(near)}?" if near else "traceview explain lists them"
        raise UsageError(f"no finding is called {code}", hint=hint)
    return NoFinding(text, code)


def _limit(key: Key, sign: str, text: str) -> Fraction | str | bool:
    unit = _measured(key)
    if unit.quantity == "text":
        if sign not in ("==", "!="):
            raise UsageError(f"{key.text} is a text: compare it with == or !=")
        return text.strip('"')
    if unit.quantity == "flag":
        if sign not in ("==", "!=") or text not in ("true", "false"):
            raise UsageError(f"{key.text} is true or false: {key.text} == true")
        return text == "true"
    return limit_of(text, unit)


def _change(text: str, key: Key, match: re.Match[str]) -> Change:
    unit = _measured(key)
    if unit.quantity in ("text", "flag"):
        raise UsageError(f"{key.text} is no number, and has no change")
    if match["percent"]:
        ratio = limit_of(match["number"], Unit("number")) / 100
        return Change(text, key, match["sign"], ratio, None)
    return Change(text, key, match["sign"], None, limit_of(match["number"], unit))


def _measured(key: Key) -> Unit:
    if key.unit is None:
        raise UsageError(
            f"{key.text} holds several values, and is none itself",
            hint="docs/metrics.md lists the keys in it; KEY absent asks whether it is empty",
        )
    return key.unit
