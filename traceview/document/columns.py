"""Makes the columns of a table from its rows, and writes their values as texts.

A column is described once, by its heading and the field that it shows. It has one unit for all its values, and a dash for
what was not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, TypeAlias

from msgspec import Struct

from traceview.document import numbers
from traceview.document.model import Column, Kind, Span, Table, Value
from traceview.document.model import table as of_columns
from traceview.document.phrase import plain
from traceview.document.vocabulary import Look

Cell: TypeAlias = str | Callable[[Any], Value]
"""Where the cell of a row is from: a field, `contention.thread_count` that of a record in it, or a function of the row."""

_BY_ENDING: Final[tuple[tuple[str, Kind], ...]] = (
    ("device", "device"),
    ("bytes_per_second", "rate"),
    ("flops_per_second", "flop_rate"),
    ("flops_per_step", "flops"),
    ("bytes", "bytes"),
    ("_ps", "time"),
    ("_ps_per_step", "time"),
    ("ratio", "share"),
    ("count", "count"),
    ("count_per_step", "count"),
)


class Shown(Struct, frozen=True):
    """How rows are shown in one column.

    `kind`: without it the ending of the field says it; a function gives words. `priority`, `meaning`: as of `Column`.
    `if_several`: only where rows differ in it.
    """

    heading: str
    cell: Cell
    priority: int = 0
    kind: Kind | None = None
    meaning: str = ""
    if_several: bool = False


DEVICE: Final = Shown("device", "device")
"""The first column of a table with a row per device."""


def kind_of(field: str) -> Kind:
    """How the values of a field are written, by the unit at its end; recorded text without one."""
    return next((kind for ending, kind in _BY_ENDING if field.endswith(ending)), "name")


def columns(rows: Sequence[Any], shown: Iterable[Shown]) -> tuple[Column, ...]:
    """The columns of these rows; raises `AttributeError` for a field that they lack."""
    made = ((each, _column(rows, each)) for each in shown)
    return tuple(
        column for each, column in made if not each.if_several or len(set(column.values)) > 1
    )


def table(
    label: str,
    rows: Sequence[Any],
    shown: Iterable[Shown],
    *,
    most_rows: int | None = None,
    row_count: int | None = None,
    rest: str = "",
) -> tuple[Table, ...]:
    """The table of the first of these rows; nothing without any. `row_count`: more than there are rows, if some are not here."""
    count = len(rows) if row_count is None else row_count
    return of_columns(label, columns(rows[:most_rows], shown), row_count=count, rest=rest)


def _column(rows: Sequence[Any], shown: Shown) -> Column:
    cell = shown.cell
    kind = shown.kind or (kind_of(cell) if isinstance(cell, str) else "words")
    value_of = attrgetter(cell) if isinstance(cell, str) else cell
    values = tuple(map(value_of, rows))
    return Column(shown.heading, kind, values, shown.priority, shown.meaning)


# Values as texts

_LEAST_IN_UNIT: Final = 0.0005
"""Less than this of the unit of a column is shown as `<0.001`."""

WRITE: Final[Mapping[Kind, Callable[[float], str]]] = {
    "bytes": numbers.size,
    "count": lambda value: numbers.count(int(value)),
    "flop_rate": numbers.flop_rate,
    "flops": numbers.flops,
    "number": numbers.number,
    "ordinal": lambda value: str(int(value)),
    "rate": numbers.rate,
    "share": numbers.share,
    "signed_time": numbers.signed_time,
    "time": numbers.time,
}
"""How one number of a kind is written."""

_UNITS: Final[Mapping[Kind, Mapping[str, int]]] = {
    "bytes": numbers.SIZES,
    "flop_rate": {f"{unit}/s": factor for unit, factor in numbers.FLOPS.items()},
    "flops": numbers.FLOPS,
    "rate": {f"{unit}/s": factor for unit, factor in numbers.SIZES.items()},
    "signed_time": numbers.TIMES,
    "time": numbers.TIMES,
}


def cell_texts(column: Column) -> list[str]:
    """Every value of a column as text; empty for a span, which is no text."""
    if column.kind == "words":
        return [
            plain(text) if isinstance(text, str) else _text(text, None) for text in column.values
        ]
    write = _in_one_unit(column) or WRITE.get(column.kind)
    return [_text(value, write) for value in column.values]


def _text(value: Value, write: Callable[[float], str] | None) -> str:
    if value is None:
        return numbers.ABSENT
    if isinstance(value, str):
        return value
    if isinstance(value, Look):
        return value.words
    if isinstance(value, Span):
        return ""
    if isinstance(value, tuple):
        return plain(value)
    return write(value) if write else str(value)


def _in_one_unit(column: Column) -> Callable[[float], str] | None:
    """How to write values in the unit of the largest; None for a column without units, or in the smallest."""
    sizes = [abs(value) for value in column.values if isinstance(value, (int, float))]
    if column.kind not in _UNITS or not sizes:
        return None
    unit = WRITE[column.kind](max(sizes)).rpartition(" ")[2]
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
