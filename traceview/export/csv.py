"""Writes a table as CSV, for spreadsheets and everything else that reads it; a million rows take seconds.

A spreadsheet takes a cell that begins with `=`, `+`, `-` or `@`, also in full width, for a formula and runs it. Names come
from the trace, so such a text gets an apostrophe in front, and so does one that begins with a tab or a line break. Where
the spreadsheet's language has a comma in its numbers, semicolons and line breaks divide cells, in quotes or not, so the
same holds behind each of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from traceview.document.sanitize import encodable, sanitize
from traceview.trace.table import Column, Table

_FORMULA_START: Final = re.compile(r"(?:^|(?<=[;\t\r\n]))(?=[ \"']*[=+\-@＝＋－＠])|^(?=[\t\r\n])")
_NEEDS_QUOTES: Final = re.compile(r'[",\r\n]')
_ROWS_AT_ONCE: Final = 1 << 17
"""Bounds the memory that the text takes, to some tens of MB."""


def written(table: Table, *, is_escaped: bool = False) -> Iterator[bytes]:
    """The file in parts: one line per row below a line with the names of the columns; what is not known is empty.

    `is_escaped`: for a terminal, which must not be sent the control characters of a name.
    """
    yield (",".join(column.name for column in table.columns) + "\n").encode()
    for first in range(0, table.count, _ROWS_AT_ONCE):
        rows = slice(first, min(first + _ROWS_AT_ONCE, table.count))
        cells = [_cells(column, rows, is_escaped) for column in table.columns]
        # One format for a whole row takes half as long as a text for each of its numbers.
        line = ",".join("%d" if _is_whole(column) else "%s" for column in table.columns) + "\n"
        yield "".join(map(line.__mod__, zip(*cells, strict=True))).encode()


def _is_whole(column: Column) -> bool:
    """Whether every cell of a column is a whole number."""
    return column.kind == "int" and (column.missing is None or not column.missing.any())


def _cells(column: Column, rows: slice, is_escaped: bool) -> list[Any]:
    if column.kind == "category":
        labels = [*(_text(label, is_escaped) for label in column.labels), ""]
        return [labels[code] for code in column.values[rows].tolist()]
    if column.kind == "text":
        texts = column.values[rows].tolist()
        # Most texts of a column repeat.
        cell_of = {text: "" if text is None else _text(text, is_escaped) for text in set(texts)}
        return [cell_of[text] for text in texts]
    values = column.values[rows]
    if _is_whole(column):
        numbers: list[int] = values.tolist()
        return numbers
    missing = column.missing
    if column.kind == "float":
        missing = np.isnan(column.values)
    cells = list(map(str, values.tolist()))
    if missing is not None:
        for place in np.flatnonzero(missing[rows]).tolist():
            cells[place] = ""
    return cells


def _text(text: str, is_escaped: bool) -> str:
    """A cell with a text that no spreadsheet takes for a formula, in quotes where it needs them."""
    text = sanitize(text) if is_escaped else text
    cell = encodable(_FORMULA_START.sub("'", text))
    return f'"{cell.replace(chr(34), chr(34) * 2)}"' if _NEEDS_QUOTES.search(cell) else cell
