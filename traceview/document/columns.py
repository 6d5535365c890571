"""Makes the columns of a table from its rows: each is described once, by its heading and the field that it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, TypeAlias

from msgspec import Struct

from traceview.document.model import Column, Kind, Table, Value
from traceview.document.model import table as of_columns

Cell: TypeAlias = str | Callable[[Any], Value]
"""Where the cell of a row is from: a field, `contention.thread_count` that of a record in it, or a function of the row."""

_BY_ENDING: Final[tuple[tuple[str, Kind], ...]] = (
    ("device", "device"),
    ("bytes_per_second", "rate"),
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
