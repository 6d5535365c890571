"""How do rows become aligned columns that fit the page?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from traceview.document.page import Page

GAP: Final = 2

ROWS_IN: Final = "-o FILE.csv"
"""The option of a command for one table that writes its rows with all columns."""


@dataclass
class Column:
    """One column: its heading, its cells from top to bottom, and how it behaves where room is short.

    `droppable`: 0 stays in any case; of the others the highest goes first.
    """

    heading: str
    cells: list[Text] = field(default_factory=list)
    right: bool = False
    droppable: int = 0

    def width(self, page: Page) -> int:
        """Columns on the page that the widest cell takes."""
        texts = [page.text(self.heading), *(cell.plain for cell in self.cells)]
        return max(cell_len(text) for text in texts)


def fitting(page: Page, columns: Sequence[Column]) -> list[Column]:
    """The columns that fit beside each other, without those that had to go."""
    kept = {id(column): column.width(page) for column in columns}
    while sum(kept.values()) + GAP * (len(kept) - 1) > page.width:
        droppable = [column for column in columns if column.droppable and id(column) in kept]
        if not droppable:
            break
        del kept[id(max(droppable, key=lambda column: column.droppable))]
    return [column for column in columns if id(column) in kept]


def add_fitting(page: Page, columns: Sequence[Column], *, rest: str = "") -> None:
    """Print the columns that fit, and name the others below; `rest` as in `add_left_out`."""
    kept = fitting(page, columns)
    add_columns(page, kept)
    add_left_out(page, columns, kept, rest=rest)


def add_left_out(
    page: Page, columns: Sequence[Column], kept: Sequence[Column], *, rest: str = ""
) -> None:
    """Name the columns that are not among those kept; once on a page, and nothing if all are.

    `rest`: what holds them, for the rows of a command that writes them to a file too; else the page that is wide
    enough for all of them.
    """
    left = {id(column) for column in columns} - {id(column) for column in kept}
    named = [column.heading for column in columns if id(column) in left and column.heading]
    if named:
        needed = sum(column.width(page) for column in columns) + GAP * (len(columns) - 1)
        where = f"{rest} has all" if rest else f"--width {needed} shows all"
        page.remark(f"Not shown at {page.width} columns: {', '.join(named)}; {where}.")


def room_beside(page: Page, columns: Sequence[Column]) -> int:
    """What is left of the page's width for one more column."""
    return page.width - sum(column.width(page) + GAP for column in columns)


def add_columns(page: Page, columns: Sequence[Column], *, indent: int = 0) -> None:
    """Print the columns side by side below their headings."""
    widths = [column.width(page) for column in columns]

    def add(cells: Sequence[Text]) -> None:
        pieces = [Text(" " * indent)]
        for column, cell, width in zip(columns, cells, widths, strict=True):
            blank = Text(" " * (width - cell_len(cell.plain)))
            pieces += [blank, cell] if column.right else [cell, blank]
            pieces.append(Text(" " * GAP))
        page.line(*pieces)

    if any(column.heading for column in columns):
        add([page.styled(column.heading, "dim") for column in columns])
    for cells in zip(*(column.cells for column in columns), strict=True):
        add(cells)
