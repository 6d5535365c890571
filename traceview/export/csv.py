"""Writes a table as CSV, for spreadsheets and everything else that reads it; a million rows take seconds.

A spreadsheet takes a cell that begins with `=`, `+`, `-` or `@`, also in full width, for a formula and runs it. Names come
from the trace, so such a text gets an apostrophe in front, and so does one that begins with a tab or a line break. Where
the spreadsheet's language has a comma in its numbers, semicolons and line breaks divide cells, in quotes or not, so the
same holds behind each of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from traceview.base.intervals import Int32Array
from traceview.base.sweeping import SWEEPS
from traceview.document.sanitize import encodable, sanitize
from traceview.trace.device.table import Table

_FORMULA_START: Final = re.compile(r"(?:^|(?<=[;\t\r\n]))(?=[ \"']*[=+\-@＝＋－＠])|^(?=[\t\r\n])")
_NEEDS_QUOTES: Final = re.compile(r'[",\r\n]')
_ROWS_AT_ONCE: Final = 1 << 13
"""Bounds the memory that the text takes, to some MB."""

_A_NUMBER: Final = -1
"""The code of a cell that is a whole number."""


def written(table: Table, *, is_escaped: bool = False) -> Iterator[bytes]:
    """The file in parts: one line per row below a line with the names of the columns; what is not known is empty.

    `is_escaped`: for a terminal, which must not be sent the control characters of a name.
    """
    yield (",".join(column.name for column in table.columns) + "\n").encode()
    cells = _Cells(is_escaped)
    (nothing,) = cells.codes([None]).tolist()
    labels = [cells.codes([*column.labels, None]) for column in table.columns]
    for first in range(0, table.count, _ROWS_AT_ONCE):
        rows = slice(first, min(first + _ROWS_AT_ONCE, table.count))
        codes = np.full((len(table.columns), rows.stop - first), _A_NUMBER, dtype=np.int32)
        numbers = np.zeros(codes.shape, dtype=np.int64)
        for place, column in enumerate(table.columns):
            values = column.values[rows]
            if column.kind == "int":
                numbers[place] = values
            elif column.kind == "category":
                codes[place] = labels[place][values]
            elif column.kind == "text":
                codes[place] = cells.codes(values)
            missing = column.missing[rows] if column.missing is not None else None
            if column.kind in ("float", "bool"):
                missing = np.isnan(values) if column.kind == "float" else missing
                known = slice(None) if missing is None else ~missing
                codes[place, known] = cells.codes_of_values(values[known])
            if missing is not None:
                codes[place, missing] = nothing
        yield SWEEPS.lines_of(codes, numbers, *cells.packed())


class _Cells:
    """The distinct cells of a table that are no whole numbers, by their codes; most cells of a column repeat."""

    def __init__(self, is_escaped: bool) -> None:
        self._is_escaped = is_escaped
        # Texts by themselves; other values, which no spreadsheet takes for a formula, by a pair with their text.
        self._known: dict[Any, int] = {}
        self._cells: list[bytes] = []
        self._packed = np.empty(0, dtype=np.uint8), np.zeros(1, dtype=np.int64)

    def codes(self, texts: Sequence[str | None] | npt.NDArray[np.object_]) -> Int32Array:
        """The codes of texts, of which None is empty."""
        values = np.empty(len(texts), dtype=np.object_)
        values[:] = texts
        codes: Int32Array = SWEEPS.codes_of(values, self._known)
        for text in self._new():
            self._cells.append(b"" if text is None else _text(text, self._is_escaped).encode())
        return codes

    def codes_of_values(self, values: npt.NDArray[Any]) -> Int32Array:
        """The codes of numbers with a fraction, or of yes and no."""
        keys = np.empty(values.size, dtype=np.object_)
        keys[:] = [(str(value),) for value in values.tolist()]
        codes: Int32Array = SWEEPS.codes_of(keys, self._known)
        self._cells += [key[0].encode() for key in self._new()]
        return codes

    def _new(self) -> list[Any]:
        """What is known and has no cell yet."""
        count = len(self._cells)
        return list(islice(self._known, count, None)) if len(self._known) > count else []

    def packed(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """All cells one after the other, and where each begins, with the end of the last."""
        if self._packed[1].size <= len(self._cells):
            lengths = [len(cell) for cell in self._cells]
            begin = np.array([0, *accumulate(lengths)], dtype=np.int64)
            self._packed = np.frombuffer(b"".join(self._cells), dtype=np.uint8), begin
        return self._packed


def _text(text: str, is_escaped: bool) -> str:
    """A cell with a text that no spreadsheet takes for a formula, in quotes where it needs them."""
    text = sanitize(text) if is_escaped else text
    cell = encodable(_FORMULA_START.sub("'", text))
    return f'"{cell.replace(chr(34), chr(34) * 2)}"' if _NEEDS_QUOTES.search(cell) else cell
