"""Tests that a terminal shows a whole document in the room it has, and nothing that could do harm."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from rich.cells import cell_len

from tests.documents import bare_document, finding, full_document
from tests.hostile import HOSTILE
from traceview.document.model import (
    Column,
    Document,
    Findings,
    Section,
    counts,
    names,
    notes,
    shares,
    table,
    words,
)
from traceview.document.screen import MOST_FULL_LINES, render
from traceview.document.terminal import render_section
from traceview.report.build import analyze
from traceview.report.document import document_of

Golden = Callable[[str, str], None]
ESCAPES = re.compile(r"\x1b\[[\d;]*m")
LONG = (*HOSTILE, "表" * 500, "\x85\x9b1m\u200b")


def shown(document: Document, width: int = 100, *, unicode: bool = True) -> str:
    return render(document, width=width, color=False, unicode=unicode)


def lines_of(columns: Sequence[Column], width: int, **changes: Any) -> list[str]:
    """A table alone, without the title of its section."""
    section = Section("a", "Title", table("label", columns, **changes))
    return render_section(section, width=width, color=False).splitlines()[1:]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("document", [full_document, bare_document])
def test_whole_output(document: Callable[[], Document], width: int, golden: Golden) -> None:
    golden(f"{document.__name__}-{width}.txt", shown(document(), width))


def test_whole_output_in_ascii(golden: Golden) -> None:
    text = shown(full_document(), 80, unicode=False)
    assert text.isascii()
    golden("full_document-80-ascii.txt", text)


def test_colours_are_all_that_colour_adds() -> None:
    coloured = render(full_document(), width=100, color=True)
    assert ESCAPES.search(coloured)
    assert ESCAPES.sub("", coloured) == shown(full_document())


@pytest.mark.parametrize("width", [1, 40, 47, 60, 80, 100, 120, 250])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_wider_than_the_page(width: int, unicode: bool) -> None:
    for device_count in (2, 20):
        lines = shown(full_document(device_count=device_count), width, unicode=unicode).splitlines()
        too_wide = [line for line in lines if cell_len(line) > max(width, 40)]
        # A command is never broken.
        assert [line for line in too_wide if not line.startswith("traceview ")] == []
        assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.shared
@pytest.mark.parametrize("name", ["bert-8xV100", "jax-8xMI300X", "jax-gemm-1of8"])
def test_real_traces_fit(name: str, shared_traces: Path) -> None:
    document = document_of(analyze(shared_traces / name), is_brief=True)
    for width in (60, 80, 120):
        lines = shown(document, width).splitlines()
        # A command is never broken.
        assert all(cell_len(line) <= width or "traceview " in line for line in lines)


@pytest.mark.shared
@pytest.mark.parametrize("width", [80, 110, 200])
@pytest.mark.parametrize("name", ["bert-8xV100", "jax-8xMI300X", "jax-gemm-1of8"])
def test_all_of_eight_gpus_is_120_lines(name: str, width: int, shared_traces: Path) -> None:
    report = analyze(shared_traces / name)
    document = document_of(report, is_brief=True)
    page = shown(document, width)
    assert len(page.splitlines()) <= MOST_FULL_LINES
    for section in document.sections:
        assert section.is_empty or section.title in page
        assert f"\n{section.title}" in page or section.command in page


def test_many_devices_and_findings_are_120_lines() -> None:
    every = tuple(finding(number) for number in range(1, 31))
    document = full_document(device_count=64, most_rows=16)
    sections = tuple(
        structs.replace(section, blocks=(Findings(every),)) if section.id == "findings" else section
        for section in document.sections
    )
    for width in (60, 80, 120):
        page = shown(structs.replace(document, sections=sections), width)
        assert len(page.splitlines()) <= MOST_FULL_LINES
        assert "20 more findings: traceview show findings logs" in page


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize("text", LONG, ids=range(len(LONG)))
def test_hostile_names_do_no_harm(text: str, unicode: bool) -> None:
    document = full_document(lambda name: f"{text}{name}")
    page = shown(document, 80, unicode=unicode)
    assert [line for line in page.splitlines() if cell_len(line) > 80] == []
    assert all(line.isprintable() for line in page.split("\n"))
    page.encode("utf-8")
    coloured = render(document, width=80, color=True, unicode=unicode)
    assert ESCAPES.sub("", coloured) == page


def test_markup_of_a_name_is_text() -> None:
    assert "[red]GPU:0[/red]" in shown(full_document(lambda name: f"[red]{name}[/red]"))


# Tables


def test_what_does_not_fit_is_named() -> None:
    """10, 20 and 15 wide, with gaps of 2: 49."""
    columns = (
        words("a", ["x" * 10]),
        words("long", ["y" * 20], priority=2),
        words("c", ["z" * 15], priority=1),
    )
    assert lines_of(columns, 40) == [
        "a           c",
        f"{'x' * 10}  {'z' * 15}",
        "Not shown at 40 columns: long; --width",
        "49 shows all.",
    ]
    assert lines_of(columns, 49) == [
        "a           long                  c",
        f"{'x' * 10}  {'y' * 20}  {'z' * 15}",
    ]


def test_a_heading_is_broken_before_a_column_goes() -> None:
    columns = (
        words("device", ["GPU:0"]),
        *(counts(f"number of things {n}", [n], priority=1) for n in range(4)),
    )
    assert lines_of(columns, 100)[0].startswith("device  number of things 0  ")
    assert lines_of(columns, 60) == [
        "        number of  number of  number of  number of",
        "device   things 0   things 1   things 2   things 3",
        "GPU:0           0          1          2          3",
    ]


def test_names_stay_readable_as_long_as_other_columns_can_go() -> None:
    columns = (
        words("gap", ["1"]),
        names("op", ["gradient_tape/model/dense_12/MatMul/Assign"]),
        words("note", ["n" * 12], priority=1),
    )
    assert lines_of(columns, 44)[:2] == [
        "gap  op                         note",
        f"1    gradient…12/MatMul/Assign  {'n' * 12}",
    ]
    assert lines_of(columns, 40)[:2] == ["gap  op", "1    gradient_tap…dense_12/MatMul/Assign"]


def test_what_is_least_important_goes_first() -> None:
    rest = [shares(f"column_{n}", [0.5], priority=n) for n in (3, 1, 2)]
    for name, headings in (
        ("x" * 10, ["row", "column_3", "column_1", "column_2"]),
        ("x" * 11, ["row", "column_1", "column_2"]),
    ):
        first, *_ = lines_of([words("row", [name]), *rest], 40)
        assert re.split("  +", first) == headings


def test_columns_that_always_stay_go_from_the_right_where_nothing_else_helps() -> None:
    columns = [counts(f"count {n}", [10**8]) for n in range(5)]
    lines = lines_of(columns, 40)
    assert lines == [
        "    count 0      count 1      count 2",
        "100,000,000  100,000,000  100,000,000",
        "Not shown at 40 columns: count 3, count",
        "4; --width 63 shows all.",
    ]


# Other blocks


@pytest.mark.parametrize("width", [40, 60, 100])
def test_a_command_in_a_sentence_is_never_broken(width: int) -> None:
    command = "traceview show gaps '/data/my logs/of today' --run 2026_01_02_07_57_18 --steps 14:15"
    note = (
        f"Compare step 14 with step 12, a usual one: `{command}`, then capture {'more ' * 20}steps."
    )
    section = Section("steps", "Steps", notes(note))
    lines = render_section(section, width=width, color=False).splitlines()
    (line,) = [line for line in lines if "traceview" in line]
    assert command in line
    assert all(cell_len(other) <= width for other in lines if other is not line)
    assert " ".join(" ".join(lines).split()).endswith(note.replace("`", ""))
