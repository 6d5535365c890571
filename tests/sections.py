"""Views for the tests of sections, and what a section looks like in each format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

import traceview
from scripts.scenarios import SCENARIOS
from traceview.analysis.context import View
from traceview.document import markdown, terminal
from traceview.document.cells import texts
from traceview.document.model import (
    Block,
    Document,
    Facts,
    Notes,
    Remark,
    Section,
    Subheading,
    Summary,
    Table,
)
from traceview.report.document import view_of

HOST = "host0"
SUMMARY = Summary("run1", (), (), "", "", None, (), (), 0, "")


def view(results: dict[str, Any] | None = None, **changes: Any) -> View:
    """What a section sees of a report with `results`, all of its windows starting at 0."""
    fields: dict[str, Any] = {
        "results": results or {},
        "skipped": {},
        "findings": (),
        "window_start_ps": {HOST: 0},
        "logdir": "logs",
        "run": "run1",
    }
    return View(**fields | changes)


def view_of_scenario(name: str, folder: Path, **changes: Any) -> View:
    """The same of a scenario."""
    SCENARIOS[name]().write(folder)
    return replace(view_of(traceview.analyze(folder)), **changes)


def tables(section: Section | None) -> list[Table]:
    """The tables of a section."""
    return [block for block in _blocks(section) if isinstance(block, Table)]


def column(table: Table, heading: str) -> list[str]:
    """The cells below a heading, as text."""
    return next(texts(column) for column in table.columns if column.heading == heading)


def headings(table: Table) -> list[str]:
    """The headings of a table."""
    return [column.heading for column in table.columns]


def sentences(section: Section | None) -> list[str]:
    """All that a section says besides its tables."""
    found = [section.lead] if section and section.lead else []
    for block in _blocks(section):
        match block:
            case Notes(items) | Facts(items):
                found += items
            case Remark(text):
                found.append(text)
            case Subheading(text, remark):
                found += [text, remark] if remark else [text]
    return found


def check_printed(section: Section | None, *words: str) -> None:
    """That `words` are in the section in every format of text, and that its lines fit a terminal."""
    assert section is not None
    for width in (80, 120):
        for is_unicode in (True, False):
            text = terminal.render_section(section, width=width, color=False, unicode=is_unicode)
            assert all(len(line) <= width for line in text.splitlines())
            assert is_unicode or text.isascii()
            assert "\x1b" not in text
    wide = terminal.render_section(section, width=200, color=False)
    page = markdown.render(Document("1", SUMMARY, (section,)))
    for word in words:
        assert word in wide
        assert word in page


def _blocks(section: Section | None) -> tuple[Block, ...]:
    return section.blocks if section else ()
