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

_MOSTLY_BUSY: Final = 0.5
"""From this share of a slice on its character is the full one."""


@dataclass(frozen=True)
class Glyph:
    """What most of the busy part of a slice is: two characters, for a slice busy for half of it and for less.

    `ascii`: the same two where there are no others; `meaning`: what the legend says.
    """

    characters: str
    ascii: str
    style: str
    meaning: str

    def full(self, page: Page) -> str:
        """The character of a slice that is busy for at least half of it."""
        return (self.characters if page.unicode else self.ascii)[0]

    def thin(self, page: Page) -> str:
        """The character of a slice that is busy for less."""
        return (self.characters if page.unicode else self.ascii)[-1]


COMPUTE: Final = Glyph("█▂", "#+", "green", "compute")
COMMUNICATION: Final = Glyph("▒░", "%:", "magenta", "communication")
COPY: Final = Glyph("≡─", "=-", "cyan", "copy or fill")
IDLE: Final = Glyph("·", ".", "dim", "idle")
GLYPHS: Final = (COMPUTE, COMMUNICATION, COPY, IDLE)


def fitting_length(slice_count: int, width: int) -> int:
    """The most characters within `width` that stand for equally many slices each; 0 if hardly any."""
    lengths = [n for n in range(NARROWEST, width + 1) if slice_count and slice_count % n == 0]
    return max(lengths, default=0)


def strip(page: Page, timeline: DeviceTimeline, length: int) -> Text:
    """The timeline of a device in `length` characters; `length` divides its number of slices."""
    per = len(timeline.idle_ps) // length
    result = Text()
    for begin in range(0, per * length, per):
        glyph, share = _glyph(timeline, slice(begin, begin + per))
        is_full = share >= _MOSTLY_BUSY
        result.append(glyph.full(page) if is_full else glyph.thin(page), glyph.style)
    return result


def legend(page: Page, used: set[str], character_ps: int | None) -> list[Text]:
    """What the characters in `used` mean, and how long one of them is."""
    facts = []
    thin = []
    for glyph in GLYPHS:
        shown = [one for one in dict.fromkeys((glyph.full(page), glyph.thin(page))) if one in used]
        if shown:
            facts.append(Text.assemble((" ".join(shown), glyph.style), f" {glyph.meaning}"))
        if glyph is not IDLE:
            thin += [one for one in shown if one == glyph.thin(page)]
    if thin:
        facts.append(Text(f"{' '.join(thin)} for less than half of the time"))
    if character_ps is not None:
        facts.append(page.styled(f"one character is {numbers.time(character_ps)}"))
    return facts


def _glyph(timeline: DeviceTimeline, slices: slice) -> tuple[Glyph, float]:
    """What the busy part of some slices is mostly, and its share of them."""
    parts = {
        COMPUTE: sum(timeline.compute_ps[slices]),
        COMMUNICATION: sum(timeline.collective_ps[slices]),
        COPY: sum(timeline.copy_ps[slices]),
    }
    busy = sum(parts.values())
    if busy == 0:
        return IDLE, 1.0
    most = max(parts, key=lambda glyph: parts[glyph])
    return most, busy / (busy + sum(timeline.idle_ps[slices]))
