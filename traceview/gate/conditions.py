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
from typing import Any, Final

from msgspec import Struct

from traceview.analysis.base import SEVERITIES
from traceview.analysis.registry import RULES
from traceview.base.errors import UsageError
from traceview.document import numbers
from traceview.document.sanitize import shortened
from traceview.gate.keys import TIMES, Key, Quantity, Unit, key_at_start

OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
UNITS: Final[Mapping[Quantity, Mapping[str, Fraction]]] = {
    "time": {unit: Fraction(factor) for unit, factor in TIMES.items()},
    "bytes": {unit: Fraction(factor) for unit, factor in numbers.SIZES.items()},
    "rate": {f"{unit}/s": Fraction(factor) for unit, factor in numbers.SIZES.items()},
    "ratio": {"%": Fraction(1, 100)},
}
_FINDING: Final = re.compile(r"finding ?: ?(?P<code>[\w-]+) absent", re.ASCII)
_REST: Final = re.compile(
    r" ?(?:(?P<absent>absent)|(?P<sign>[<>=!]=|[<>]) ?(?P<limit>.*)|: ?(?P<way>[+-]) ?(?P<change>[^+-].*))"
)
_NUMBER: Final = re.compile(
    r"(?P<number>[+-]?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18}))\s*(?P<unit>[^\s\d]*)"
)
_SHOWN: Final = 80
_EXAMPLE: Final = "for instance step_time_ms <= 120, or finding:unused-gpu absent"


class Condition(Struct, frozen=True):
    """What has to hold of a key, or of findings.

    `key`: None for a condition on findings. `sign`: an operator with its `limit` in the smallest unit of the key; `absent`; `+`
    or `-`, what the value may rise or fall by against the baseline, of whose value `is_relative` makes the limit a share.
    `code`: of the finding, or a severity, which means the more severe ones, too.
    """

    text: str
    key: Key | None
    sign: str
    limit: Fraction | str | bool = ""
    is_relative: bool = False
    code: str = ""

    @property
    def is_change(self) -> bool:
        """Whether it needs a baseline."""
        return self.sign in ("+", "-")

    @property
    def quantity(self) -> Quantity:
        """What its values are measured in."""
        return self.key.unit.quantity if self.key else "text"


def condition_of(text: str) -> Condition:
    """The condition that a text states; raises `UsageError`, which names the text, for one that states none."""
    text = " ".join(text.split())
    try:
        return _condition(text)
    except UsageError as error:
        where = shortened(text, _SHOWN)
        raise UsageError(f"condition {where!r}: {error.message}", hint=error.hint) from None


def _condition(text: str) -> Condition:
    if not text:
        raise UsageError("it is empty", hint=_EXAMPLE)
    if re.match(r"finding ?:", text):
        return _no_finding(text)
    key, rest = key_at_start(text)
    match = _REST.fullmatch(rest)
    if match is None:
        problem = f"{rest.strip()!r} is no comparison" if rest else "it says nothing about the key"
        raise UsageError(problem, hint=_EXAMPLE)
    if match["absent"]:
        return Condition(text, key, "absent")
    quantity = key.unit.quantity
    if quantity == "several":
        raise UsageError(
            f"{key.text} holds several values, and is none itself",
            hint="docs/metrics.md lists the keys in it; KEY absent asks whether it is empty",
        )
    if match["way"]:
        if quantity in ("text", "flag"):
            raise UsageError(f"{key.text} is no number, and has no change")
        is_relative = match["change"].endswith("%")
        unit = Unit("ratio") if is_relative else key.unit
        return Condition(text, key, match["way"], limit_of(match["change"], unit), is_relative)
    if quantity in ("text", "flag"):
        return Condition(text, key, match["sign"], _word(key, match["sign"], match["limit"]))
    return Condition(text, key, match["sign"], limit_of(match["limit"], key.unit))


def _no_finding(text: str) -> Condition:
    match = _FINDING.fullmatch(text)
    if match is None:
        raise UsageError("a condition on a finding is finding:CODE absent", hint=_EXAMPLE)
    code, known = match["code"].lower(), (*RULES, *SEVERITIES)
    if code not in known:
        near = get_close_matches(code, known)
        hint = f"did you mean {' or '.join(near)}?" if near else "traceview explain lists them"
        raise UsageError(f"no finding is called {code}", hint=hint)
    return Condition(text, None, "absent", code=code)


def _word(key: Key, sign: str, text: str) -> str | bool:
    if sign not in ("==", "!="):
        raise UsageError(f"{key.text} is no number: compare it with == or !=")
    if key.unit.quantity == "text":
        return text.strip('"')
    if text not in ("true", "false"):
        raise UsageError(f"{key.text} is true or false: {key.text} == true")
    return text == "true"


def limit_of(text: str, unit: Unit) -> Fraction:
    """The limit that a text states, in the smallest unit of the quantity; raises `UsageError` for any other text."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is no number")
    number = Fraction(match["number"])
    units = UNITS.get(unit.quantity, {})
    if match["unit"]:
        if match["unit"] not in units:
            known = f"; units here: {', '.join(units)}" if units else "; this key has no unit"
            raise UsageError(f"{text!r}: no such unit{known}")
        return number * units[match["unit"]]
    if unit.factor is None:
        raise UsageError(f"{text!r} has no unit", hint=f"write one of {', '.join(units)}")
    if unit.is_share and abs(number) > 1:
        # Read as it is written, such a limit would hold for every value, or for none.
        meant = f"{float(abs(number)) * 100:.10g}%"
        raise UsageError(
            f"{match['number']} would be {meant}, and this share is at most 100%",
            hint=f"write {match['number']}%",
        )
    return number * unit.factor


def written(value: float | Fraction | str | bool, quantity: Quantity) -> str:
    """A value as people read it."""
    if isinstance(value, (str, bool)):
        return str(value).lower() if isinstance(value, bool) else value
    number = int(value) if value == int(value) else float(value)
    in_words: Mapping[Quantity, Callable[[float], str]] = {
        "time": numbers.time,
        "bytes": numbers.size,
        "rate": numbers.rate,
        "ratio": numbers.share,
    }
    return in_words.get(quantity, numbers.number)(number)
