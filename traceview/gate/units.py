"""Defines what the values of conditions are measured in, and how a limit is written in each unit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from traceview.document import numbers
from traceview.errors import UsageError

Quantity: TypeAlias = Literal["time", "bytes", "rate", "ratio", "number", "text", "flag"]
"""`time` is picoseconds, `rate` bytes per second."""

TIMES: Final[Mapping[str, int]] = {**numbers.TIMES, "us": numbers.TIMES["µs"]}
"""Units of time as a limit may write them, in picoseconds."""

_FACTORS: Final[Mapping[Quantity, Mapping[str, Fraction]]] = {
    "time": {unit: Fraction(factor) for unit, factor in TIMES.items()},
    "bytes": {unit: Fraction(factor) for unit, factor in numbers.SIZES.items()},
    "rate": {f"{unit}/s": Fraction(factor) for unit, factor in numbers.SIZES.items()},
    "ratio": {"%": Fraction(1, 100)},
}
_NUMBER: Final = re.compile(
    r"(?P<number>[+-]?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18}))\s*(?P<unit>[^\s\d]*)"
)


class Unit(Struct, frozen=True):
    """What a key is measured in. `factor`: how many of the smallest unit its ending stands for; None where a limit has
    to name its unit. `is_share`: of a ratio, that it cannot exceed 1.
    """

    quantity: Quantity
    factor: int | None = 1
    is_share: bool = False


SHARE: Final = Unit("ratio", is_share=True)


def limit_of(text: str, unit: Unit) -> Fraction:
    """The limit that a text states, in the smallest unit of the quantity; raises `UsageError` for any other text."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is no number")
    number = Fraction(Decimal(match["number"]))
    factors = _FACTORS.get(unit.quantity, {})
    if match["unit"]:
        if match["unit"] not in factors:
            known = f"; units here: {', '.join(factors)}" if factors else "; this key has no unit"
            raise UsageError(f"{text!r}: no such unit{known}")
        return number * factors[match["unit"]]
    if unit.factor is None:
        raise UsageError(f"{text!r} has no unit", hint=f"write one of {', '.join(factors)}")
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
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Fraction):
        value = int(value) if value.denominator == 1 else float(value)
    if quantity == "time":
        return numbers.time(value)
    if quantity == "bytes":
        return numbers.size(value)
    if quantity == "rate":
        return numbers.rate(value)
    return numbers.share(value) if quantity == "ratio" else numbers.number(value)


_SHOWN: Final = re.compile(r"(?P<number>-?[\d,.]+)(?P<unit>\D*)")
_MOST_DIGITS: Final = 15


def written_apart(value: float, limit: Fraction, quantity: Quantity) -> tuple[str, str]:
    """A value and a limit that is another one, with as many digits as show that."""
    texts = written(value, quantity), written(limit, quantity)
    match = _SHOWN.fullmatch(texts[0])
    if texts[0] != texts[1] or limit == Fraction(value) or match is None:
        return texts
    factor = _FACTORS.get(quantity, {}).get(match["unit"].strip(), Fraction(1))
    for digits in range(4, _MOST_DIGITS):
        shown = [float(Fraction(number) / factor) for number in (value, limit)]
        texts = (f"{shown[0]:.{digits}g}{match['unit']}", f"{shown[1]:.{digits}g}{match['unit']}")
        if texts[0] != texts[1]:
            break
    return texts
