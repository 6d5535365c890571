"""A terminal shows a whole document, and a first screen, in the room it has, and nothing that could do harm."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from tests.charts import SLICE_COUNT
from tests.reports import full_report
from traceview.document.figures import UtilizationStrip, UtilizationStrips
from traceview.document.model import (
    AnatomyPart,
    AnatomyRow,
    Column,
    Document,
    Section,
    Strips,
    Summary,
    column,
    notes,
    table,
)
from traceview.document.page import Page
from traceview.document.screen import render, render_screen
from traceview.document.terminal import render_section, strip_lines
from traceview.document.vocabulary import STATES
from traceview.report.document import screen_of

Golden = Callable[[str, str], None]


def shown(document: Document, width: int = 100) -> str:
    return render(document, width=width, color=False)


def lines_of(columns: Sequence[Column], width: int, **changes: Any) -> list[str]:
    """A table alone, without the title of its section."""
    section = Section("a", "Title", table("label", columns, **changes))
    return render_section(section, width=width, color=False).splitlines()[1:]


# Tables


def test_a_heading_is_broken_before_a_column_goes() -> None:
    columns = (
        column("words", "device", ["GPU:0"]),
        *(column("count", f"number of things {n}", [n], priority=1) for n in range(4)),
    )
    assert lines_of(columns, 100)[0].startswith("device  number of things 0  ")
    assert lines_of(columns, 60) == [
        "        number of  number of  number of  number of",
        "device   things 0   things 1   things 2   things 3",
        "GPU:0           0          1          2          3",
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


@pytest.mark.parametrize("name", ["a_training_script_with_a_long_name.py", "script" * 7 + ".py"])
@pytest.mark.parametrize("end", ["", ".", ","])
def test_the_number_of_a_line_is_never_broken(name: str, end: str) -> None:
    for number in ("7", "123", "123456"):
        section = Section("steps", "Steps", notes(f"Python runs in {name}:{number}{end}"))
        lines = render_section(section, width=40, color=False).splitlines()
        assert all(cell_len(line) <= 40 for line in lines)
        assert f":{number}{end}" in lines[-1]
        assert "".join(line.strip() for line in lines).endswith(f"{name}:{number}{end}")


# Strips


def alike(**parts: int) -> UtilizationStrip:
    """240 slices of 100 ps, each with so many picoseconds of a part."""
    slices = {
        part: (parts.get(part, 0),) * SLICE_COUNT for part in ("compute", "collective", "copy")
    }
    idle = (100 - sum(parts.values()),) * SLICE_COUNT
    return UtilizationStrip(
        "GPU:0", 0, 24_000, slices["compute"], slices["collective"], slices["copy"], idle
    )


def strip_lines_of(*strips: UtilizationStrip, width: int = 80) -> list[str]:
    page = Page(width)
    devices = tuple(strip.device for strip in strips)
    strip_lines(page, Strips(UtilizationStrips(SLICE_COUNT, strips), devices))
    return page.render().splitlines()


@pytest.mark.parametrize(
    ("parts", "character"),
    [
        ({"compute": 50}, "█"),
        ({"compute": 49}, "▂"),
        ({"compute": 20, "collective": 40}, "▒"),
        ({"compute": 20, "collective": 21}, "░"),
        ({"copy": 60, "compute": 40}, "≡"),
        ({"copy": 1}, "─"),
        ({}, "·"),
    ],
)
def test_a_character_shows_what_a_slice_is_mostly_and_how_full(
    parts: dict[str, int], character: str
) -> None:
    is_thin = 0 < sum(parts.values()) < 50
    axis, strip, legend = strip_lines_of(alike(**parts))
    assert axis == f"       0{'24.0 ns':>59}"
    assert strip == f"GPU:0  {character * 60}"
    assert legend.startswith(f"{character} ")
    assert legend.count(character) == 1
    assert ("less than half busy" in legend) == is_thin


# The first screen


MS = 10**9
WIDTHS = (40, 60, 80, 100, 200)
BAR = re.compile(r"(?:^| )([A-Z#%=<>+?]{4,}) +[\d.,]+ ?[mnpµu]?s?$")
NAMED = re.compile(r"(?:^  (?:other: )?|  )([A-Z#%=<>+?]) ")
SUMMARY = screen_of(full_report())


def row(label: str, step_ps: int = 50 * MS, **parts: int) -> AnatomyRow:
    """A step of these parts in milliseconds; what they lack of it has no recorded cause."""
    rest = step_ps // MS - sum(parts.values())
    lengths = {**parts, "unknown": rest} if rest else parts
    return AnatomyRow(
        label,
        (label,),
        4,
        step_ps,
        tuple(
            AnatomyPart(STATES[key], STATES[key].words, ps * MS, ps * MS / step_ps)
            for key, ps in lengths.items()
        ),
    )


def screen(**changes: Any) -> Summary:
    """Two GPUs, one of which waits; a degraded capture."""
    anatomy = (
        row("GPU:0", compute=20, communication=2, device_wait=18, input=10),
        row("GPU:1", 40 * MS, compute=20, input=20),
    )
    parts = {"anatomy": anatomy, "next_command": "traceview show input logs"}
    return replace(SUMMARY, **parts | changes)


def shown_screen(content: Summary, width: int = 80) -> str:
    return render_screen(content, width=width, color=False)


def fits(content: Summary) -> None:
    """At most 24 lines of 80 columns for up to four devices, at most 40 ever; no line is wider than the terminal."""
    device_count = sum(len(row.devices) for row in content.anatomy)
    for width in WIDTHS:
        lines = shown_screen(content, width).splitlines()
        wide = [line for line in lines if cell_len(line) > width]
        assert [line for line in wide if "traceview " not in line] == []
        line_count = sum(max(-(-cell_len(line) // width), 1) for line in lines)
        assert line_count <= (24 if width >= 80 and device_count <= 4 else 40), width
        assert [line for line in lines if line != line.rstrip()] == []
        assert unexplained(lines) == set()


def unexplained(lines: list[str]) -> set[str]:
    """Letters in a bar that neither the lines of numbers name nor the line about other parts."""
    begin = next((n for n, line in enumerate(lines) if line.startswith("What each device")), None)
    drawn: list[tuple[set[str], set[str]]] = []
    others: set[str] = set()
    is_other = False
    for line in lines[begin + 1 :] if begin is not None else ():
        bar = BAR.search(line)
        if bar is not None:
            drawn.append((set(bar[1]), set()))
        elif line.startswith("  ") and drawn:
            is_other |= line.startswith("  other: ")
            (others if is_other else drawn[-1][1]).update(NAMED.findall(line))
        else:
            break
    named = others.union(*(letters for _, letters in drawn))
    return set().union(*(letters for letters, _ in drawn)) - named


@pytest.mark.parametrize("width", WIDTHS)
def test_a_long_label_leaves_room_for_its_bar_and_has_no_more_than_it_needs(width: int) -> None:
    long = row("worker-with-a-name-of-many-letters/GPU:0", compute=20, input=30)
    lines = shown_screen(screen(anatomy=(long,)), width).splitlines()
    (bar,) = (found[1] for found in map(BAR.search, lines) if found)
    assert len(bar) >= 13
    (line,) = (line for line in lines if bar in line)
    assert line.index(bar) <= 34


@pytest.mark.parametrize(("width", "color"), [(60, False), (80, False), (200, False), (60, True)])
def test_whole_screen(width: int, color: bool, golden: Golden) -> None:
    name = f"screen-{width}{'-color' if color else ''}.txt"
    golden(name, render_screen(screen(), width=width, color=color))


def test_what_was_computed_most_is_whole_or_left_out() -> None:
    names = (
        f"{share}% in a_rather_long_function_of_the_model, model.py:{share}"
        for share in (51, 41, 8)
    )
    text = shown_screen(screen(compute=tuple(names)))
    assert ["model.py:51" in text, "model.py:41" in text, "8% in" in text] == [True, True, False]
    assert "…" not in text


# Anatomy


def bars(text: str) -> list[str]:
    return re.findall(r"^GPU:\d +(\S+) +[\d.]+ ms$", text, re.M)


def test_bars_share_one_scale() -> None:
    """A step of 1 ms beside one of 100 ms has a bar of one hundredth."""
    text = shown_screen(
        screen(anatomy=(row("GPU:0", 100 * MS, compute=100), row("GPU:1", MS, compute=1)))
    )
    long, short = bars(text)
    assert len(short) == round(len(long) / 100)
    assert set(long) == {"#"}


def test_numbers_add_up_to_the_step() -> None:
    """Parts that have no room are one number."""
    parts = dict.fromkeys(("compute", "communication", "input", "sync", "launch", "between"), 8)
    content = screen(anatomy=tuple(row(f"GPU:{n}", 50 * MS, **parts) for n in range(4)))
    (line, *_) = re.findall(r"^  # compute .*$", shown_screen(content, 60), re.M)
    times = [float(ms) for ms in re.findall(r"([\d.]+) ms", line)]
    assert "other" in line
    assert sum(times) == 50


def test_a_large_part_is_never_other_time() -> None:
    """Four devices with three lines of text each: a finding makes room for 10 % of the step."""
    parts = {"compute": 20, "communication": 14, "device_wait": 11, "between": 4, "launch": 1}
    rows = tuple(row(f"GPU:{n}", 50 * MS, **parts) for n in range(4))
    text = shown_screen(screen(anatomy=rows, findings=SUMMARY.findings * 2))
    assert len(text.splitlines()) <= 24
    assert text.count(f"{STATES['device_wait'].words} 11.0 ms") == 4
