"""Makes the view of a report, and prints and searches the sections of topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace
from rich.cells import cell_len

import traceview
from scripts.scenarios import SCENARIOS
from traceview.analysis.measures.context import View
from traceview.document import markdown, terminal
from traceview.document.columns import cell_texts
from traceview.document.model import (
    Column,
    Document,
    Facts,
    Notes,
    Remark,
    Section,
    Subheading,
    Summary,
    Table,
    Value,
)
from traceview.document.phrase import plain
from traceview.report import document

HOST = "host0"
_SUMMARY = Summary("run1", "No problem found.", command="traceview report")


def view_of(**changes: Any) -> View:
    """The view of a report without any result or finding; the window of `HOST` starts at 0."""
    fields: dict[str, Any] = {
        "results": {},
        "skipped": {},
        "findings": (),
        "window_start_ps": {HOST: 0},
        "logdir": "logs",
        "run": "run1",
    }
    return View(**fields | changes)


def view_of_scenario(name: str, folder: Path, **changes: Any) -> View:
    """The view of the report on a scenario, which is written to a folder."""
    SCENARIOS[name]().write(folder)
    return replace(document.view_of(traceview.analyze(folder)), **changes)


def lines_of(section: Section, width: int = 80, *, unicode: bool = True) -> list[str]:
    """The lines of a section on a terminal, none of which is wider than it; only commands are never broken."""
    text = terminal.render_section(section, width=width, color=False, unicode=unicode)
    lines = text.splitlines()
    assert all(cell_len(line) <= width or "traceview " in line for line in lines)
    assert "\x1b" not in text
    return lines


def markdown_of(section: Section) -> str:
    """A document in Markdown with this section alone."""
    return markdown.render(Document("0.1.0", _SUMMARY, (section,)))


def check_printed(section: Section | None, *words: str) -> None:
    """Check that a section holds `words` in every text format, and that it fits a terminal."""
    assert section is not None
    for width in (80, 120):
        lines_of(section, width)
        assert "".join(lines_of(section, width, unicode=False)).isascii()
    wide = "\n".join(lines_of(section, 200))
    page = markdown_of(section)
    for word in words:
        assert word in wide
        assert word in page


def tables_of(section: Section | None) -> list[Table]:
    """The tables of a section."""
    blocks = section.blocks if section else ()
    return [block for block in blocks if isinstance(block, Table)]


def values_of(table: Table, heading: str) -> tuple[Value, ...]:
    """The values below a heading."""
    return _column(table, heading).values


def cells_of(table: Table, heading: str) -> list[str]:
    """The cells below a heading, as they are printed."""
    return cell_texts(_column(table, heading))


def headings_of(table: Table) -> list[str]:
    """The headings of a table from left to right."""
    return [column.heading for column in table.columns]


def facts_of(section: Section) -> tuple[str, ...]:
    """The facts of a section that has them in one block."""
    (facts,) = [block for block in section.blocks if isinstance(block, Facts)]
    return tuple(map(plain, facts.items))


def sentences_of(section: Section | None) -> list[str]:
    """The notes, remarks and subheadings of a section."""
    sentences: list[str] = []
    for block in section.blocks if section else ():
        match block:
            case Notes(items):
                sentences += map(plain, items)
            case Remark(text, command):
                sentences.append(f"{plain(text)} {command}" if command else plain(text))
            case Subheading(text, remark):
                sentences += [plain(text), plain(remark)] if remark else [plain(text)]
    return sentences


def _column(table: Table, heading: str) -> Column:
    (column,) = [column for column in table.columns if column.heading == heading]
    return column
