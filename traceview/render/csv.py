"""A table as CSV, for spreadsheets and everything else that reads it.

A spreadsheet takes a cell that begins with `=`, `+`, `-` or `@` for a formula and runs it. Names come from
the trace, so such a text gets an apostrophe in front, and so does one that begins with a tab or a line break.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

from traceview.document.sanitize import encodable, sanitize

_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


def columns_of(row: type) -> tuple[str, ...]:
    """The names of the columns of a table whose rows are data classes of type `row`."""
    return tuple(field.name.removesuffix("_") for field in fields(row))


def render(rows: Sequence[Any], row: type, *, escaped: bool = False) -> str:
    """One line per row below a line with the names of the columns; what is not known is empty.

    `row`: the type of the rows, a data class of plain values.

    `escaped`: for a terminal, which must not be sent the control characters of a name.
    """
    lines = _Lines()
    # The writer quotes the characters of its line end: both, so that neither can break a row apart.
    writer = csv.writer(lines, lineterminator="\r\n")
    writer.writerow(columns_of(row))
    names = [field.name for field in fields(row)]
    # Not `astuple`, which copies every value: a table of gaps has half a million rows.
    writer.writerows([_cell(getattr(one, name), escaped) for name in names] for one in rows)
    return "".join(lines.texts)


class _Lines:
    """Takes what a CSV writer writes, one row at a time, and ends it as other text files end a line."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def write(self, line: str) -> None:
        self.texts.append(line.removesuffix("\r\n") + "\n")


def _cell(value: object, escaped: bool) -> object:
    if not isinstance(value, str):
        return value
    return no_formula(sanitize(value) if escaped else value)


def no_formula(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return encodable(f"'{text}" if text.startswith(_FORMULA_STARTS) else text)
