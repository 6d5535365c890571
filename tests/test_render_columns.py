"""Is a column that does not fit named, in every table?"""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.text import Text

from scripts.scenarios import SCENARIOS
from tests.command import Command
from traceview.document.page import Page
from traceview.render.columns import Column, add_fitting


def column(heading: str, text: str, droppable: int = 0) -> Column:
    return Column(heading, [Text(text)], droppable=droppable)


def shown(*columns: Column, width: int = 40, rest: str = "") -> list[str]:
    page = Page(width)
    add_fitting(page, columns, rest=rest)
    return page.render().splitlines()


def test_what_does_not_fit_is_named() -> None:
    """10, 20 and 15 wide, with gaps of 2: 49."""
    columns = (column("a", "x" * 10), column("long", "y" * 20, 2), column("c", "z" * 15, 1))
    assert shown(*columns) == [
        "a           c",
        f"{'x' * 10}  {'z' * 15}",
        "Not shown at 40 columns: long; --width",
        "49 shows all.",
    ]
    assert shown(*columns, rest="-o FILE.csv")[2:] == [
        "Not shown at 40 columns: long; -o",
        "FILE.csv has all.",
    ]
    assert shown(*columns, width=49) == [
        "a           long                  c",
        f"{'x' * 10}  {'y' * 20}  {'z' * 15}",
    ]


def test_columns_without_a_heading_have_no_name() -> None:
    assert len(shown(column("a", "x" * 30), column("", "y" * 20, 1))) == 2


def test_it_is_said_once_however_many_tables() -> None:
    page = Page(40)
    for _ in range(3):
        add_fitting(page, [column("a", "x" * 30), column("b", "y" * 20, 1)])
    assert page.render().count("Not shown") == 1


@pytest.mark.usefixtures("no_terminal")
@pytest.mark.parametrize("name", ["analyze", "balance", "collectives", "devices", "ops", "runs"])
def test_no_column_vanishes_without_a_word(command: Command, name: str, tmp_path: Path) -> None:
    """Headings that a wide page has and a narrow one lacks are named there, or the same words elsewhere."""
    SCENARIOS["slower_gpu"]().write(tmp_path)
    headings = {
        "analyze": ("status", "busy time", "ends earlier by", "in transfer"),
        "balance": ("longest in", "starts later by", "ends earlier by", "saves at most"),
        "collectives": ("in transfer", "start"),
        "devices": ("comm", "vs others", "starts later by"),
        "ops": ("class",),
        "runs": ("started", "size"),
    }[name]
    wide, narrow = (command(name, str(tmp_path), "--width", str(width)).out for width in (200, 40))
    assert "Not shown" not in wide
    told = " ".join(narrow.split()).split("Not shown at 40 columns: ")[1:]
    assert told
    for heading in headings:
        assert heading in wide
        assert any(heading in part for part in told), heading
