"""Writes the values of a column as texts: one unit for all, a dash for what was not measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from traceview.document import numbers
from traceview.document.model import Bar, Column, Kind, Span, Value
from traceview.document.phrase import Token, plain
from traceview.document.vocabulary import Look

_LEAST_IN_UNIT: Final = 0.0005
"""Less than this of the unit of a column is shown as `<0.001`."""

_WRITE: Final[Mapping[Kind, Callable[[float], str]]] = {
    "bytes": numbers.size,
    "count": lambda value: numbers.count(int(value)),
    "number": numbers.number,
    "ordinal": lambda value: str(int(value)),
    "rate": numbers.rate,
    "share": numbers.share,
    "signed_share": numbers.signed_share,
    "signed_time": numbers.signed_time,
    "time": numbers.time,
}
_UNITS: Final[Mapping[Kind, Mapping[str, int]]] = {
    "bytes": numbers.SIZES,
    "rate": {f"{unit}/s": factor for unit, factor in numbers.SIZES.items()},
    "signed_time": numbers.TIMES,
    "time": numbers.TIMES,
}


def texts(column: Column) -> list[str]:
    """Every value of a column as text; empty for a bar and a span, which are no text."""
    if column.kind == "words":
        return [
            plain(text) if isinstance(text, str) else _text(text, None) for text in column.values
        ]
    write = _in_one_unit(column) or _WRITE.get(column.kind)
    return [_text(value, write) for value in column.values]


def _text(value: Value, write: Callable[[float], str] | None) -> str:
    if value is None:
        return numbers.ABSENT
    if isinstance(value, str):
        return value
    if isinstance(value, Look):
        return value.words
    if isinstance(value, (Bar, Span)):
        return ""
    if isinstance(value, tuple):
        between = "" if value and isinstance(value[0], Token) else ", "
        return between.join(part.text for part in value)
    return write(value) if write else str(value)


def _in_one_unit(column: Column) -> Callable[[float], str] | None:
    """How to write values in the unit of the largest; None for a column without units, or in the smallest."""
    sizes = [abs(value) for value in column.values if isinstance(value, (int, float))]
    if column.kind not in _UNITS or not sizes:
        return None
    unit = _WRITE[column.kind](max(sizes)).rpartition(" ")[2]
    factor = _UNITS[column.kind].get(unit, 1)
    if factor == 1:
        return None

    plus = "+" if column.kind.startswith("signed") else ""

    def write(value: float) -> str:
        scaled = abs(value) / factor
        if not scaled:
            return "0"
        if scaled < _LEAST_IN_UNIT:
            return f"{'>-' if value < 0 else '<'}0.001 {unit}"
        digits = 3 if scaled < 0.9995 else numbers.decimals(scaled)
        return f"{'-' if value < 0 else plus}{scaled:,.{digits}f} {unit}"

    return write


def is_absent(text: str) -> bool:
    """Whether there is nothing to read in a cell."""
    return text in ("", numbers.ABSENT)
