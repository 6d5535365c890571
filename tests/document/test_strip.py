"""Tests what the characters of a utilization strip say."""

from __future__ import annotations

import pytest

from tests.charts import SLICE_COUNT, WINDOW_PS
from tests.charts import strip as strip_of
from traceview.document.figures import UtilizationStrip, UtilizationStrips
from traceview.document.model import Strips
from traceview.document.page import Page
from traceview.document.terminal import strip_lines


def alike(**parts: int) -> UtilizationStrip:
    """240 slices of 100 ps, each with so many picoseconds of a part."""
    slices = {
        part: (parts.get(part, 0),) * SLICE_COUNT for part in ("compute", "collective", "copy")
    }
    idle = (100 - sum(parts.values()),) * SLICE_COUNT
    return UtilizationStrip(
        "GPU:0", 0, 24_000, slices["compute"], slices["collective"], slices["copy"], idle
    )


def lines_of(*strips: UtilizationStrip, width: int = 80, unicode: bool = True) -> list[str]:
    page = Page(width, unicode=unicode)
    devices = tuple(strip.device for strip in strips)
    strip_lines(page, Strips(UtilizationStrips(SLICE_COUNT, strips), devices))
    return page.render().splitlines()


@pytest.mark.parametrize(
    ("parts", "characters"),
    [
        ({"compute": 50}, "█#"),
        ({"compute": 49}, "▂+"),
        ({"compute": 20, "collective": 40}, "▒%"),
        ({"compute": 20, "collective": 21}, "░:"),
        ({"copy": 60, "compute": 40}, "≡="),
        ({"copy": 1}, "─-"),
        ({}, "·."),
    ],
)
def test_a_character_shows_what_a_slice_is_mostly_and_how_full(
    parts: dict[str, int], characters: str
) -> None:
    is_thin = 0 < sum(parts.values()) < 50
    for unicode, character in zip((True, False), characters, strict=True):
        axis, strip, legend = lines_of(alike(**parts), unicode=unicode)
        assert axis == f"       0{'24.0 ns':>59}"
        assert strip == f"GPU:0  {character * 60}"
        assert legend.startswith(f"{character} ")
        assert legend.count(character) == 1
        assert ("less than half busy" in legend) == is_thin


def test_the_legend_says_how_long_a_character_is() -> None:
    *_, legend = lines_of(strip_of("GPU:0"), width=140)
    assert legend == (
        "█ compute, ▂ less than half busy   ▒ communication   ≡ copies and fills   · idle   one character is 833 µs"
    )


def test_windows_of_different_lengths_have_no_axis() -> None:
    short, long = alike(compute=100), strip_of("GPU:1")
    assert long.end_ps == WINDOW_PS
    strip, _, *legend = lines_of(short, long)
    assert strip.startswith("GPU:0")
    assert "one character" not in " ".join(legend)


def test_wide_names_leave_room() -> None:
    _, strip, *_ = lines_of(strip_of("表" * 30), width=40)
    assert strip.count("█") >= 12
