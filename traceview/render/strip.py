"""What was a device doing when? One character per slice of time, readable without colour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rich.text import Text

from traceview.analyses.timeline import DeviceTimeline
from traceview.render import numbers
from traceview.render.page import Page

NARROWEST: Final = 20
"""Fewer characters than this show nothing worth the line."""

_PARTLY_BUSY: Final = 0.5
"""Below this share of a slice its character only says that something ran."""


@dataclass(frozen=True)
class Glyph:
    """One kind of slice: its character, the ASCII one, its colour, and what the legend says."""

    character: str
    ascii: str
    style: str
    meaning: str


COMPUTE: Final = Glyph("█", "#", "green", "compute")
COMMUNICATION: Final = Glyph("▒", "%", "magenta", "communication")
COPY: Final = Glyph("≡", "=", "cyan", "copy or fill")
LITTLE: Final = Glyph("▁", "_", "yellow", "busy for less than half")
IDLE: Final = Glyph("·", ".", "dim", "idle")
GLYPHS: Final = (COMPUTE, COMMUNICATION, COPY, LITTLE, IDLE)


def fitting_length(slice_count: int, width: int) -> int:
    """The most characters within `width` that stand for equally many slices each; 0 if hardly any."""
    lengths = [n for n in range(NARROWEST, width + 1) if slice_count % n == 0]
    return max(lengths, default=0)


def strip(page: Page, timeline: DeviceTimeline, length: int) -> Text:
    """The timeline of a device in `length` characters; `length` divides its number of slices."""
    per = len(timeline.idle_ps) // length
    result = Text()
    for begin in range(0, per * length, per):
        glyph = _glyph(timeline, slice(begin, begin + per))
        result.append(glyph.character if page.unicode else glyph.ascii, glyph.style)
    return result


def legend(page: Page, used: set[str], character_ps: int | None) -> list[Text]:
    """What the characters in `used` mean, and how long one of them is."""
    facts = [
        Text.assemble((shown, glyph.style), f" {glyph.meaning}")
        for glyph in GLYPHS
        if (shown := glyph.character if page.unicode else glyph.ascii) in used
    ]
    if character_ps is not None:
        facts.append(page.styled(f"one character is {numbers.time(character_ps)}"))
    return facts


def _glyph(timeline: DeviceTimeline, slices: slice) -> Glyph:
    parts = {
        COMPUTE: sum(timeline.compute_ps[slices]),
        COMMUNICATION: sum(timeline.collective_ps[slices]),
        COPY: sum(timeline.copy_ps[slices]),
    }
    busy = sum(parts.values())
    if busy == 0:
        return IDLE
    if busy < _PARTLY_BUSY * (busy + sum(timeline.idle_ps[slices])):
        return LITTLE
    return max(parts, key=lambda glyph: parts[glyph])
