"""Writes the values of a column as texts: one unit for all, a dash for what was not measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from traceview.document import numbers
from traceview.document.model import Bar, Column, Kind, Span, Value
from traceview.document.vocabulary import Look

_FACTORS: Final = {"ps": 1, "ns": 10**3, "µs": 10**6, "ms": 10**9, "s": 10**12}
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
    "time": numbers.time,
}


def texts(column: Column) -> list[str]:
    """Every value of a column as text; empty for a bar and a span, which are no text."""
    write = _in_one_unit(column) if column.kind == "time" else _WRITE.get(column.kind)
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
        return ", ".join(link.text for link in value)
    return write(value) if write else str(value)


def _in_one_unit(column: Column) -> Callable[[float], str]:
    """Times in the unit of the longest one."""
    lengths = [abs(value) for value in column.values if isinstance(value, (int, float))]
    unit = numbers.time(max(lengths, default=0)).rpartition(" ")[2]
    factor = _FACTORS.get(unit)
    if factor is None or factor == 1:
        return numbers.time

    def write(ps: float) -> str:
        scaled = abs(ps) / factor
        sign = "-" if ps < 0 else ""
        if not scaled:
            return "0"
        if scaled < _LEAST_IN_UNIT:
            return f"{'>-' if ps < 0 else '<'}0.001 {unit}"
        digits = 3 if scaled < 0.9995 else 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
        return f"{sign}{scaled:,.{digits}f} {unit}"

    return write


def is_absent(text: str) -> bool:
    """Whether there is nothing to read in a cell."""
    return text in ("", numbers.ABSENT)
