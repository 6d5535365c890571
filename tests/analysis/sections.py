"""Makes the view of a report, and prints and searches the sections of topics."""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len

from traceview.analysis.context import View
from traceview.document import markdown, terminal
from traceview.document.model import (
    Document,
    Notes,
    Remark,
    Section,
    Subheading,
    Summary,
    Table,
    Value,
)

_SUMMARY = Summary("run1", (), (), "No problem found.", "", None, (), (), 0, "traceview report")


def view_of(**changes: Any) -> View:
    """The view of a report without any result or finding."""
    parts: dict[str, Any] = {
        "results": {},
        "skipped": {},
        "findings": (),
        "window_start_ps": {},
        "logdir": "logs",
        "run": "run1",
    }
    return View(**parts | changes)


def lines_of(section: Section, width: int = 80) -> list[str]:
    """The lines of a section on a terminal, none of which is wider than the terminal."""
    lines = terminal.render_section(section, width=width, color=False).splitlines()
    assert all(cell_len(line) <= width for line in lines)
    return lines


def markdown_of(section: Section) -> str:
    """A document in Markdown with this section alone."""
    return markdown.render(Document("0.1.0", _SUMMARY, (section,)))


def tables_of(section: Section) -> list[Table]:
    """The tables of a section."""
    return [block for block in section.blocks if isinstance(block, Table)]


def values_of(table: Table, heading: str) -> tuple[Value, ...]:
    """The values below a heading."""
    (values,) = [column.values for column in table.columns if column.heading == heading]
    return values


def headings_of(table: Table) -> list[str]:
    """The headings of a table from left to right."""
    return [column.heading for column in table.columns]


def sentences_of(section: Section) -> list[str]:
    """The notes, remarks and subheadings of a section."""
    sentences: list[str] = []
    for block in section.blocks:
        if isinstance(block, Notes):
            sentences += block.items
        elif isinstance(block, Remark | Subheading):
            sentences.append(block.text)
    return sentences
