"""Writes a table as CSV, for spreadsheets and everything else that reads it, or as Parquet; a million rows take seconds.

A spreadsheet takes a cell that begins with `=`, `+`, `-` or `@`, also in full width, for a formula and runs it. Names come
from the trace, so such a text gets an apostrophe in front, and so does one that begins with a tab or a line break. Where
the spreadsheet's language has a comma in its numbers, semicolons and line breaks divide cells, in quotes or not, so the
same holds behind each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from io import BytesIO
from typing import Final

from msgspec.structs import replace

from traceview.base.errors import UsageError
from traceview.base.text import encodable, lazy_pattern
from traceview.document.sanitize import sanitize
from traceview.trace.device.table import Column, Table

_FORMULA_START: Final = lazy_pattern(
    r"(?:^|(?<=[;\t\r\n]))(?=[ \"']*[=+\-@＝＋－＠])|^(?=[\t\r\n])"
)
_NEEDS_QUOTES: Final = lazy_pattern(r'[",\r\n]')
_ROWS_AT_ONCE: Final = 1 << 13
"""Bounds the memory that the text takes, to some MB."""


def csv_of(table: Table, *, is_escaped: bool = False) -> Iterator[bytes]:
    """The file in parts: one line per row below a line with the names of the columns; what is not known is empty.

    `is_escaped`: for a terminal, which must not be sent the control characters of a name.
    """
    yield (",".join(column.name for column in table.columns) + "\n").encode()
    texts = _Texts(is_escaped)
    for first in range(0, table.count, _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        cells = (_cells(column.at(rows), texts) for column in table.columns)
        yield ("\n".join(map(",".join, zip(*cells, strict=True))) + "\n").encode()


def _cells(column: Column, texts: _Texts) -> list[str]:
    if column.kind in ("text", "category"):
        return [texts[cell] for cell in column.cells()]
    return ["" if cell is None else str(cell) for cell in column.cells()]


class _Texts(dict[str | None, str]):
    """The cells of texts, each made once: most of a column repeat."""

    def __init__(self, is_escaped: bool) -> None:
        super().__init__({None: ""})
        self._is_escaped = is_escaped

    def __missing__(self, text: str) -> str:
        """A cell with a text that no spreadsheet takes for a formula, in quotes where it needs them."""
        shown = sanitize(text) if self._is_escaped else text
        cell = encodable(_FORMULA_START.sub("'", shown))
        if _NEEDS_QUOTES.search(cell):
            cell = f'"{cell.replace(chr(34), chr(34) * 2)}"'
        self[text] = cell
        return cell


def check_pyarrow(what: str) -> None:
    """Raise `UsageError` if Parquet, which `what` needs, cannot be written."""
    if find_spec("pyarrow") is None:
        raise UsageError(f"{what} needs pyarrow", hint="pip install 'traceview[parquet]'")


def parquet_of(table: Table) -> bytes:
    """The content of a Parquet file, as pandas writes it, so that it reads the exact types."""
    from traceview.trace.device.table import frame_of

    # A category without labels would have no type in the file.
    columns = (
        replace(column, labels=column.labels or ("",) if column.kind == "category" else ())
        for column in table.columns
    )
    content = BytesIO()
    frame_of(replace(table, columns=tuple(columns))).to_parquet(content, engine="pyarrow")
    return content.getvalue()
