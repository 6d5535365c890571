"""Writes what the mean step of each device consists of: a bar per device or group of alike devices, and its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup, escape

from traceview.document import html_text, numbers
from traceview.document.model import AnatomyPart, AnatomyRow

_LETTER_FROM: Final = 0.02
"""Of the longest bar: a part that is shorter has no letter inside it."""
_BAR_CHARACTERS: Final = 72
"""Of bold text in the longest bar on a page of 800 pixels; a part has its words inside where they fit there."""

_LISTED_FROM: Final = 0.005
"""Of the step: shorter parts are in the bar and not in the list."""


def anatomy(rows: Sequence[AnatomyRow]) -> Markup:
    """The bars, as long as the steps beside the longest one."""
    longest = max((row.step_ps for row in rows), default=0) or 1
    whole = "the mean step" if any(row.step_count for row in rows) else "the window"
    joined = (
        ": devices that are alike share a bar, their mean"
        if any(len(row.devices) > 1 for row in rows)
        else ""
    )
    return Markup(
        '<h2 class="small" id="anatomy-title">What {} consists of{}</h2>\n'
        '<div class="anatomy" id="anatomy">\n{}\n</div>'
    ).format(whole, joined, Markup("\n").join(_row(row, longest) for row in rows))


def _row(row: AnatomyRow, longest: int) -> Markup:
    width = row.step_ps / longest
    listed = [part for part in row.parts if part.ratio >= _LISTED_FROM]
    return Markup(
        '<div class="anatomy-row"><b class="anatomy-name">{}</b>'
        '<span class="anatomy-bar" role="img" aria-label="{}"><span style="width:{:.2f}%">{}</span></span>'
        '<span class="anatomy-time">{}</span><span class="anatomy-parts">{}</span></div>'
    ).format(
        html_text.name(row.label),
        html_text.cut(", ".join(map(_words, row.parts)), html_text.LONGEST_TEXT),
        100 * width,
        Markup("").join(_piece(part, part.ratio * width) for part in row.parts),
        numbers.time(row.step_ps),
        Markup(" ").join(map(_listed, listed)),
    )


def _words(part: AnatomyPart) -> str:
    return f"{part.words} {numbers.time(part.duration_ps)} ({numbers.share(part.ratio)})"


def _piece(part: AnatomyPart, width: float) -> Markup:
    text = part.words if len(part.words) < width * _BAR_CHARACTERS else ""
    if not text and width >= _LETTER_FROM:
        text = _letter(part)
    return Markup('<i class="part {}{}" style="width:{:.3f}%" title="{}">{}</i>').format(
        part.look.style,
        " tv-hatched" if part.look.is_hatched else "",
        100 * part.ratio,
        html_text.cut(_words(part), html_text.LONGEST_TEXT),
        html_text.cut(text, html_text.LONGEST_NAME),
    )


def _letter(part: AnatomyPart) -> str:
    """The letter in a bar and in the list below it; the signs of what a device does are for text only."""
    return part.look.letter if part.look.letter.isalpha() else ""


def _listed(part: AnatomyPart) -> Markup:
    swatch = Markup('<i class="part {}{}">{}</i>').format(
        part.look.style, " tv-hatched" if part.look.is_hatched else "", _letter(part)
    )
    return Markup("<span>{}{} <b>{}</b> {}</span>").format(
        swatch,
        escape(html_text.cut(part.words, html_text.LONGEST_NAME)),
        numbers.time(part.duration_ps),
        numbers.share(part.ratio),
    )
