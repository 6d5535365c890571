"""Defines tables: named columns of equal length, from which CSV, JSON, Parquet, DataFrames and documents are made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from traceview.base.ids import unique_inverse
from traceview.base.intervals import BoolArray
from traceview.base.record import Record, table_columns
from traceview.base.text import encodable
from traceview.trace.columns import NONE, Names

if TYPE_CHECKING:
    import pandas as pd

Kind: TypeAlias = Literal["int", "float", "bool", "category", "text"]

_ROWS_AT_ONCE: Final = 1 << 12
"""Bounds the memory that cells take as objects."""


class Column(Struct, frozen=True, eq=False):
    """One column of n cells.

    `values`, `[n]`: int64, float64, bool, whole codes into `labels` of a category, or texts as objects. `missing`: bool
    `[n]`, None where every cell is known; of a category `NONE` says what is not, of a float NaN, of a text None.
    """

    name: str
    kind: Kind
    values: npt.NDArray[Any]
    missing: BoolArray | None = None
    labels: tuple[str, ...] = ()

    def cells(self) -> list[Any]:
        """The cells as plain values, None for those that are missing."""
        if self.kind == "category":
            labels = [*self.labels, None]
            return [labels[code] for code in self.values.tolist()]
        cells: list[Any] = self.values.tolist()
        missing = np.isnan(self.values) if self.kind == "float" else self.missing
        if missing is not None:
            for place in np.flatnonzero(missing).tolist():
                cells[place] = None
        return cells

    def at(self, rows: npt.NDArray[np.int64] | slice) -> Column:
        """The cells of these rows, in their order."""
        missing = None if self.missing is None else self.missing[rows]
        return replace(self, values=self.values[rows], missing=missing)


class Table(Struct, frozen=True, eq=False):
    """Columns of `count` cells each."""

    name: str
    count: int
    columns: tuple[Column, ...]

    def __getitem__(self, name: str) -> list[Any]:
        """The cells of a column."""
        return next(column for column in self.columns if column.name == name).cells()

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each row with its cells by the names of their columns."""
        names = [column.name for column in self.columns]
        for first in range(0, self.count, _ROWS_AT_ONCE):
            some = slice(first, first + _ROWS_AT_ONCE)
            for cells in zip(*(column.at(some).cells() for column in self.columns), strict=True):
                yield dict(zip(names, cells, strict=True))

    def at(self, rows: Sequence[int]) -> Table:
        """The table with these rows alone, in their order."""
        chosen = np.array(rows, dtype=np.int64)
        return Table(self.name, chosen.size, tuple(column.at(chosen) for column in self.columns))

    def where(self, name: str, values: Collection[Any]) -> Table:
        """The table with the rows that have one of these values in a column."""
        return self.at([place for place, cell in enumerate(self[name]) if cell in values])


def table(name: str, *columns: Column) -> Table:
    """A table of columns, of which there is at least one."""
    return Table(name, int(columns[0].values.size), columns)


def joined_tables(tables: Sequence[Table]) -> Table:
    """The rows of tables with the same columns, none of which is a category."""

    def joined(parts: tuple[Column, ...]) -> Column:
        missing = [part.missing for part in parts if part.missing is not None]
        return replace(
            parts[0],
            values=np.concatenate([part.values for part in parts]),
            missing=np.concatenate(missing) if missing else None,
        )

    return table(tables[0].name, *map(joined, zip(*(each.columns for each in tables), strict=True)))


# Columns of arrays


def whole(name: str, values: npt.NDArray[np.integer], missing: BoolArray | None = None) -> Column:
    """Whole numbers."""
    return Column(name, "int", values.astype(np.int64, copy=False), missing)


def flag(name: str, values: BoolArray) -> Column:
    """Yes or no."""
    return Column(name, "bool", values)


def category(name: str, codes: npt.NDArray[np.integer], labels: Sequence[str]) -> Column:
    """Codes into labels, `NONE` where there is none; labels that repeat become one."""
    place: dict[str, int] = {}
    for label in labels:
        place.setdefault(label, len(place))
    known = np.array([*(place[label] for label in labels), NONE], dtype=np.int64)
    return Column(name, "category", known[codes], labels=tuple(place))


def named(name: str, indices: npt.NDArray[np.integer], names: Names) -> Column:
    """Names of a trace by their indices; only those that occur become labels."""
    used, codes = unique_inverse(indices)
    labels = [text for text in map(names.text, used.tolist()) if text is not None]
    # `NONE` sorts before all names.
    return category(name, codes.reshape(-1) - (used.size - len(labels)), labels)


# Columns of plain values


def texts(name: str, values: Sequence[str | None]) -> Column:
    """Texts of which most differ."""
    cells = np.empty(len(values), dtype=np.object_)
    cells[:] = list(values)
    return Column(name, "text", cells)


def integers(name: str, values: Sequence[int | None]) -> Column:
    """Whole numbers, None for those that are not known."""
    missing = np.array([value is None for value in values], dtype=np.bool_)
    return Column(name, "int", np.array([value or 0 for value in values], dtype=np.int64), missing)


def floats(name: str, values: Sequence[float | None]) -> Column:
    """Numbers with a fraction, None for those that are not known."""
    known = [np.nan if value is None else value for value in values]
    return Column(name, "float", np.array(known, dtype=np.float64))


def flags(name: str, values: Sequence[bool | None], *, is_optional: bool = True) -> Column:
    """Yes or no; `is_optional`: whether it may be None, for not known."""
    missing = np.array([value is None for value in values], dtype=np.bool_)
    cells = np.array([bool(value) for value in values], dtype=np.bool_)
    return Column(name, "bool", cells, missing if is_optional else None)


def record_columns(
    kind: type[Record],
    rows: Sequence[Record | None],
    fields: Sequence[str] | None = None,
    names: Mapping[str, str] | None = None,
) -> tuple[Column, ...]:
    """Columns of the fields of records, all without `fields`; a row without a record has no values.

    `names`: of the columns that are not called as in the JSON of the record.
    """
    known = {column.field: column for column in table_columns(kind)}
    columns = []
    for field in known if fields is None else fields:
        column = known[field]
        name = (names or {}).get(field, column.key)
        values = [None if row is None else getattr(row, field) for row in rows]
        if column.kind == "text":
            columns.append(texts(name, values))
        elif column.kind == "bool":
            columns.append(flags(name, values, is_optional=column.is_optional or None in rows))
        else:
            columns.append((integers if column.kind == "int" else floats)(name, values))
    return tuple(columns)


# DataFrames, for notebooks; nothing else imports pandas


def records_frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """One row per record that was made a dictionary, with its keys as columns."""
    import pandas as pd

    return pd.DataFrame(list(rows))


def frame_of(rows: Table) -> pd.DataFrame:
    """A table as a DataFrame: whole numbers and flags of which some may be missing have pandas' types for that.

    Text columns that are not categories have the type `string`, so that they are text when empty, too.
    """
    import pandas as pd

    def series(column: Column) -> Any:
        values, missing = column.values, column.missing
        if column.kind == "category":
            known = category(column.name, values, list(map(encodable, column.labels)))
            labels = pd.Index(known.labels, dtype=object)
            return pd.Categorical.from_codes(known.values, categories=labels)
        if column.kind == "text":
            # Left to itself pandas makes numbers of an empty column.
            texts = [None if text is None else encodable(text) for text in values]
            return pd.array(texts, dtype="string")
        if column.kind == "int" and missing is not None:
            return pd.arrays.IntegerArray(values.copy(), missing.copy())
        if column.kind == "bool" and missing is not None:
            return pd.arrays.BooleanArray(values.copy(), missing.copy())
        return values

    return pd.DataFrame({column.name: series(column) for column in rows.columns})
