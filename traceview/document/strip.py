"""Prints utilization strips: what each device did when, one character per slice of time, readable without colour."""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len
from rich.text import Text

from traceview.document import numbers
from traceview.document.figures import UtilizationStrip
from traceview.document.model import Strips
from traceview.document.page import Page
from traceview.document.vocabulary import PARTS

NARROWEST: Final = 20
"""Fewer characters than this show nothing worth the line."""

_WIDEST_NAME: Final = 28
_GAP: Final = 2
_MOSTLY_BUSY: Final = 0.5
"""From this share of a slice on its character is the full one."""

_THIN: Final = "less than half busy"
"""What the second character says of a slice."""

_CHARACTERS: Final = {
    "compute": (("█", "▂"), ("#", "+")),
    "collective": (("▒", "░"), ("%", ":")),
    "copies": (("≡", "─"), ("=", "-")),
    "idle": (("·", "·"), (".", ".")),
}
"""By what the busy part of a slice mostly is: the character of one that is busy for half of it or more, and of another
one; where there is only ASCII, the first is the letter of the part."""


def strip_lines(page: Page, block: Strips) -> None:
    """Add a strip per device below an axis, and the legend; nothing where a page is too narrow."""
    by_device = {strip.device: strip for strip in block.strips.devices}
    drawn = [by_device[device] for device in block.devices if device in by_device]
    widest = min(_WIDEST_NAME, page.width - NARROWEST - _GAP)
    names = [page.middle(strip.device, widest) for strip in drawn]
    name_width = max(map(cell_len, names), default=0)
    length = _fitting_length(block.strips.slice_count, page.width - name_width - _GAP)
    if not drawn or not length:
        return
    lengths = {strip.end_ps - strip.start_ps for strip in drawn}
    window_ps = lengths.pop() if len(lengths) == 1 else None
    if window_ps is not None:
        axis = f"0{page.text(numbers.time(window_ps)).rjust(length - 1)}"
        page.line(" " * (name_width + _GAP), page.styled(axis, "dim"))
    used: set[str] = set()
    for name, strip in zip(names, drawn, strict=True):
        line = _strip(page, strip, length)
        used |= set(line.plain)
        blank = " " * (name_width - cell_len(name) + _GAP)
        page.line(Text(name, "bold"), blank, line)
    page.facts(_legend(page, used, window_ps // length if window_ps else None), between="   ")


def _fitting_length(slice_count: int, width: int) -> int:
    """The most characters within `width` that stand for equally many slices each; 0 if hardly any."""
    lengths = [n for n in range(NARROWEST, width + 1) if slice_count and slice_count % n == 0]
    return max(lengths, default=0)


def _characters(page: Page, part: str) -> tuple[str, str]:
    return _CHARACTERS[part][0 if page.unicode else 1]


def _strip(page: Page, strip: UtilizationStrip, length: int) -> Text:
    """The strip of a device in `length` characters; `length` divides its number of slices."""
    per = len(strip.idle_ps) // length
    result = Text()
    for begin in range(0, per * length, per):
        part, share = _busiest(strip, slice(begin, begin + per))
        result.append(_characters(page, part)[share < _MOSTLY_BUSY], PARTS[part].ink)
    return result


def _busiest(strip: UtilizationStrip, slices: slice) -> tuple[str, float]:
    """What the busy part of some slices is mostly, and its share of them."""
    parts = {
        "compute": sum(strip.compute_ps[slices]),
        "collective": sum(strip.collective_ps[slices]),
        "copies": sum(strip.copy_ps[slices]),
    }
    busy = sum(parts.values())
    if busy == 0:
        return "idle", 1.0
    return max(parts, key=parts.__getitem__), busy / (busy + sum(strip.idle_ps[slices]))


def _legend(page: Page, used: set[str], character_ps: int | None) -> list[Text]:
    """What the characters in `used` mean, each of them once, and how long one of them is."""
    facts = []
    for part in _CHARACTERS:
        look = PARTS[part]
        full, thin = _characters(page, part)
        if full in used:
            facts.append(Text.assemble((full, look.ink), f" {look.words}"))
            if thin in used and thin != full:
                facts[-1] = Text.assemble(facts[-1], ", ", (thin, look.ink), f" {_THIN}")
        elif thin in used:
            facts.append(Text.assemble((thin, look.ink), f" {look.words}, {_THIN}"))
    if character_ps is not None:
        facts.append(page.styled(f"one character is {numbers.time(character_ps)}"))
    return facts
