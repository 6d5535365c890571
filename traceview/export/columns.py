"""What is a table, before it is a file? Named columns of equal length, each of one type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from traceview.intervals import BoolArray
from traceview.trace.model import NONE, Names

Kind: TypeAlias = Literal["int", "float", "bool", "category", "text"]


@dataclass(frozen=True, eq=False)
class Column:
    """One column of n cells.

    `values`, `[n]`: int64, float64, bool, int64 codes into `labels` of a category, or texts as objects. `missing`: bool
    `[n]`, None where every cell is known; of a category `NONE` says what is not, of a float NaN, of a text None.
    """

    name: str
    kind: Kind
    values: npt.NDArray[Any]
    missing: BoolArray | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of `count` cells each."""

    name: str
    count: int
    columns: tuple[Column, ...]


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
    used, codes = np.unique(indices, return_inverse=True)
    labels = [text for text in map(names.text, used.tolist()) if text is not None]
    # `NONE` sorts before all names.
    return category(name, codes.reshape(-1) - (used.size - len(labels)), labels)


def texts(name: str, values: Sequence[str | None]) -> Column:
    """Texts of which most differ."""
    found = np.empty(len(values), dtype=np.object_)
    found[:] = list(values)
    return Column(name, "text", found)


def table_of_rows(name: str, rows: Sequence[Any], row: type) -> Table:
    """A row per data class of type `row`, a column per field, of the type that the field is annotated with."""
    columns = []
    for field in fields(row):
        values = [getattr(one, field.name) for one in rows]
        columns.append(_column(field.name.removesuffix("_"), str(field.type), values))
    return Table(name, len(rows), tuple(columns))


def _column(name: str, annotation: str, values: list[Any]) -> Column:
    if "str" in annotation:
        return texts(name, values)
    if "float" in annotation:
        numbers = np.array([np.nan if one is None else one for one in values], dtype=np.float64)
        return Column(name, "float", numbers)
    missing = np.array([one is None for one in values], dtype=np.bool_)
    if "bool" in annotation:
        found = np.array([bool(one) for one in values], dtype=np.bool_)
        return Column(name, "bool", found, missing if "None" in annotation else None)
    return Column(name, "int", np.array([one or 0 for one in values], dtype=np.int64), missing)
