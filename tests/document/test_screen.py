"""The first screen fits a screen, whatever was recorded, and says the numbers of the report."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from tests.documents import findings, summary
from tests.hostile import HOSTILE
from traceview.document.model import AnatomyPart, AnatomyRow, Summary
from traceview.document.phrase import name, phrase
from traceview.document.screen import render_screen
from traceview.document.vocabulary import STATES

Golden = Callable[[str, str], None]
ESCAPES = re.compile(r"\x1b\[[\d;]*m")
WIDTHS = (40, 60, 80, 100, 200)
MS = 10**9
BAR = re.compile(r"(?:^| )([A-Z#%=<>+?]{4,}) +[\d.,]+ ?[mnpµu]?s?$")
NAMED = re.compile(r"(?:^  (?:other: )?|  )([A-Z#%=<>+?]) ")
FINDING = findings()[1]


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
    return replace(summary(), **parts | changes)


def shown(content: Summary, width: int = 80) -> str:
    return render_screen(content, width=width, color=False)


def fits(content: Summary) -> None:
    """At most 24 lines of 80 columns for up to four devices, at most 40 ever; no line is wider than the terminal."""
    device_count = sum(len(row.devices) for row in content.anatomy)
    for width in WIDTHS:
        lines = shown(content, width).splitlines()
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


@pytest.mark.parametrize("width", [60, 80, 200])
def test_whole_output(width: int, golden: Golden) -> None:
    golden(f"screen-{width}.txt", shown(screen(), width))


def test_colours_are_all_that_colour_adds() -> None:
    coloured = render_screen(screen(), width=80, color=True)
    assert ESCAPES.search(coloured)
    assert ESCAPES.sub("", coloured) == shown(screen())


# Length


@pytest.mark.parametrize("text", [*HOSTILE, "表" * 300], ids=range(len(HOSTILE) + 1))
def test_hostile_names_do_no_harm(text: str) -> None:
    content = screen(
        captured=(phrase("run ", name(text)), (name(text),)),
        answer=(name(text),),
        action=(name(text),),
        anatomy=(replace(row("GPU:0", compute=20), label=text),),
        findings=(replace(FINDING, title=(name(text),), action=(name(text),)),),
        trust=((name(text),),),
        next_command="",
    )
    for width in WIDTHS:
        page = shown(content, width)
        assert all(line.isprintable() for line in page.split("\n"))
        assert max(map(cell_len, page.splitlines())) <= width
        assert len(page.splitlines()) <= 24
    assert ESCAPES.sub("", render_screen(content, width=80, color=True)) == shown(content)


# Anatomy


def bars(text: str) -> list[str]:
    return re.findall(r"^GPU:\d +(\S+) +[\d.]+ ms$", text, re.M)


def test_bars_share_one_scale() -> None:
    """A step of 1 ms beside one of 100 ms has a bar of one hundredth."""
    text = shown(screen(anatomy=(row("GPU:0", 100 * MS, compute=100), row("GPU:1", MS, compute=1))))
    long, short = bars(text)
    assert len(short) == round(len(long) / 100)
    assert set(long) == {"#"}


def test_numbers_add_up_to_the_step() -> None:
    """Parts that have no room are one number."""
    parts = dict.fromkeys(("compute", "communication", "input", "sync", "launch", "between"), 8)
    content = screen(anatomy=tuple(row(f"GPU:{n}", 50 * MS, **parts) for n in range(4)))
    (line, *_) = re.findall(r"^  # compute .*$", shown(content, 60), re.M)
    times = [float(ms) for ms in re.findall(r"([\d.]+) ms", line)]
    assert "other" in line
    assert sum(times) == 50


def test_a_large_part_is_never_other_time() -> None:
    """Four devices with three lines of text each: a finding makes room for 10 % of the step."""
    parts = {"compute": 20, "communication": 14, "device_wait": 11, "between": 4, "launch": 1}
    rows = tuple(row(f"GPU:{n}", 50 * MS, **parts) for n in range(4))
    text = shown(screen(anatomy=rows, findings=(FINDING,) * 2))
    assert len(text.splitlines()) <= 24
    assert text.count(f"{STATES['device_wait'].words} 11.0 ms") == 4
