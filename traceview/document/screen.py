"""Prints reports on a terminal, the first screen or all: as much as its lines have room for, what matters most first."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import Final

from msgspec import Struct
from rich.cells import cell_len

from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.page import (
    BETWEEN,
    WIDEST_PROSE,
    Page,
    Text,
    in_lines,
    joined,
    legend_entry,
)
from traceview.document.phrase import ended, phrase
from traceview.document.sanitize import sanitize
from traceview.document.terminal import add_section
from traceview.document.vocabulary import Look

FEW_DEVICES: Final = 4
FEW_LINES: Final = 23
"""A terminal of 24 lines shows them with the prompt below."""

MOST_LINES: Final = 39
MOST_FULL_LINES: Final = 120

_LEAST_RATIO: Final = 0.005
"""A smaller part of a step is not named beside its bar."""

_LARGE_RATIO: Final = 0.10
"""A part of this share of a step or more is named, if need be instead of a finding; a choice of ours."""

_TITLE_LINES: Final = 6
"""Only a title with recorded names of many characters has more."""

_WIDEST_LABEL: Final = 32
_BESIDE_LABEL: Final = 24
"""Columns that a label leaves to its bar and its time."""
_GAP: Final = 2
_APART: Final = "  "
_REST: Final = "other"
_LEAST_REST_RATIO: Final = 0.001
"""Of the step: less is not said."""


class _Room(Struct, frozen=True):
    """How much is shown: findings; lines of numbers; whether empty lines set parts apart; lines of what to do, None for all.

    `gaps`: 2 between few parts only. `has_large_parts`: parts that are large have a number, on further lines if those of
    numbers are too few.
    """

    findings: int
    number_lines: int = 2
    action_lines: int | None = None
    gaps: int = 4
    has_large_parts: bool = True


_ROOMS: Final = (
    _Room(2),
    _Room(2, gaps=2),
    _Room(2, number_lines=1),
    _Room(1),
    _Room(1, number_lines=1),
    _Room(1, number_lines=1, gaps=2),
    *(_Room(count, number_lines=1, gaps=0) for count in (1, 0)),
    _Room(0, number_lines=1, gaps=0, action_lines=1),
    _Room(0, number_lines=1, gaps=0, action_lines=1, has_large_parts=False),
)
"""From the roomiest to the tightest: the answer and the devices come before further findings."""


def render_screen(screen: doc.Summary, *, width: int, color: bool) -> str:
    """The screen: at most 24 lines for up to four devices, at most 40 for more.

    Only a command may be wider than `width` columns. `color`: with escape sequences of the 16 colours.
    """
    device_count = sum(len(row.devices) for row in screen.anatomy)
    most_lines = FEW_LINES if device_count <= FEW_DEVICES else MOST_LINES
    page = Page(width)
    for room in _ROOMS:
        page = Page(min(width, WIDEST_PROSE), color)
        _add_screen(page, screen, room)
        if page.line_count <= most_lines:
            break
    return page.render()


def render(
    document: doc.Document,
    *,
    width: int,
    color: bool,
    most_lines: int = MOST_FULL_LINES,
) -> str:
    """The whole document in `most_lines`: what matters most first, then the commands that print what has no room.

    Other arguments as for `render_screen`; a table may be as wide as the terminal.
    """
    page = Page(width, color)
    _add_head(page, document.summary, _ROOMS[0])
    page.gap()
    _add_trust(page, document.summary, 2)
    for remark in document.summary.remarks:
        page.remark(remark)
    sections = [section for section in document.sections if not section.is_empty]
    about = [section for section in sections if section.id == "about"]
    left_out = [section for section in sections if section not in about]
    for section in left_out.copy():
        trial = page.copy()
        add_section(trial, section)
        rest = [other for other in left_out if other is not section]
        end = trial.copy()
        _add_end(end, rest, about)
        if end.line_count <= most_lines:
            page, left_out = trial, rest
    _add_end(page, left_out, about)
    return page.render()


def _add_end(page: Page, left_out: Sequence[doc.Section], about: Sequence[doc.Section]) -> None:
    """The commands that print sections, and what was recorded."""
    by_command: dict[str, list[str]] = {}
    for section in left_out:
        by_command.setdefault(section.command, []).append(section.title)
    if by_command:
        page.heading("More")
    for command, titles in by_command.items():
        _add_command(page, f"{', '.join(titles)}:", command)
    for section in about:
        add_section(page, section)


def _add_screen(page: Page, screen: doc.Summary, room: _Room) -> None:
    _add_head(page, screen, room)
    shown = screen.findings[: room.findings]
    if shown and room.gaps > 2:
        page.gap()
    for finding in shown:
        _add_finding(page, finding, room)
    if room.gaps > 2:
        page.gap()
    _add_trust(page, screen, 2 if room.gaps else 1)
    hidden_count = screen.hidden_count + len(screen.findings) - len(shown)
    if screen.next_command:
        _add_command(page, "Next:", screen.next_command)
    more = f"+ {numbers.plural(hidden_count, 'more finding')}:" if hidden_count else "All:"
    _add_command(page, more, screen.full_command)


def _add_head(page: Page, screen: doc.Summary, room: _Room) -> None:
    """Add the recorded run on one line, the answer with what to do, and a bar per device."""
    page.facts(screen.captured, most_lines=1)
    if room.gaps:
        page.gap()
    label = _severity(page, screen.label) if screen.label else None
    page.prose(
        page.phrase(screen.answer, "bold"),
        indent=label.width + _GAP if label else 0,
        label=label,
        most_lines=_TITLE_LINES,
    )
    if screen.action:
        page.prose(screen.action, indent=_GAP, most_lines=room.action_lines)
    if room.gaps:
        page.gap()
    add_anatomy(page, screen, room.number_lines, has_large_parts=room.has_large_parts)
    if screen.compute and room.gaps:
        page.facts(screen.compute, most_lines=2)


def _add_trust(page: Page, screen: doc.Summary, most_lines: int) -> None:
    ink = screen.quality.ink if screen.quality else ""
    facts = (page.phrase(fact, ink) for fact in screen.trust)
    page.prose(joined(facts, BETWEEN), most_lines=most_lines)


# Anatomy


def add_anatomy(
    page: Page, screen: doc.Summary, number_lines: int, *, has_large_parts: bool = True
) -> None:
    """Per row a bar as long as its step beside the longest one, and below it the length of its parts."""
    rows = screen.anatomy
    if not rows:
        if screen.anatomy_reason:
            page.prose(phrase("Step anatomy: ", screen.anatomy_reason, "."), most_lines=2)
        return
    longest_ps = max(row.step_ps for row in rows) or 1
    widest = min(_WIDEST_LABEL, page.width - _BESIDE_LABEL)
    # The numbers of a mean are those of no device.
    names = (f"mean of {row.label}" if len(row.devices) > 1 else row.label for row in rows)
    labels = [page.middle(name, widest) for name in names]
    times = [numbers.time(row.step_ps) for row in rows]
    indent = max(map(cell_len, labels)) + _GAP
    bar_width = page.width - indent - max(cell_len(sanitize(time)) for time in times) - _GAP
    page.prose(page.styled(_title(rows), "dim"), most_lines=1)
    drawn: dict[str, Look] = {}
    named: set[str] = set()
    for row, label, time in zip(rows, labels, times, strict=True):
        bar = _bar(row, round(bar_width * row.step_ps / longest_ps))
        blank = " " * (indent - cell_len(label))
        rest = " " * (bar_width - bar.width + _GAP)
        page.line(page.styled(label, "bold"), blank, bar, rest, sanitize(time))
        lines, letters_below = _numbers(
            page, row, page.width - _GAP, number_lines, has_large_parts=has_large_parts
        )
        for line in lines:
            page.line(" " * _GAP, line)
        named |= letters_below
        letters = {_letter(part.look): part.look for part in row.parts}
        drawn |= {letter: look for letter, look in letters.items() if letter in bar.plain}
    unnamed = {letter: look for letter, look in drawn.items() if letter not in named}
    for line in _legend(page, unnamed, page.width - _GAP):
        page.line(" " * _GAP, line)


def _bar(row: doc.AnatomyRow, length: int) -> Text:
    """Letters shared out by largest remainder, so that there are as many as the bar is long."""
    whole = fsum(part.ratio for part in row.parts) or 1.0
    exact = [part.ratio / whole * length for part in row.parts]
    counts = [int(number) for number in exact]
    by_rest = sorted(range(len(exact)), key=lambda place: counts[place] - exact[place])
    for place in by_rest[: length - sum(counts)]:
        counts[place] += 1
    parts = zip(row.parts, counts, strict=True)
    return Text(tuple((_letter(part.look) * count, part.look.ink) for part, count in parts))


def _letter(look: Look) -> str:
    """The letter of a look in a bar."""
    return look.letter or look.words[:1].upper()


def _title(rows: tuple[doc.AnatomyRow, ...]) -> str:
    counts = sorted({row.step_count for row in rows})
    if not counts[-1]:
        return "What each device did in the window"
    if counts == [1]:
        return "What each device did in the step"
    of = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"What each device did in a step, mean of {of} steps"


def _legend(page: Page, looks: dict[str, Look], width: int) -> list[Text]:
    before = f"{_REST}: "
    room = width - cell_len(before) - 2
    pieces = [
        legend_entry(letter, look.ink, page.middle(sanitize(look.words), room))
        for letter, look in looks.items()
    ]
    if pieces:
        pieces[0] = joined([Text.of(before, "dim"), pieces[0]])
    return in_lines(pieces, width, _APART)


def _numbers(
    page: Page, row: doc.AnatomyRow, width: int, most_lines: int, *, has_large_parts: bool
) -> tuple[list[Text], set[str]]:
    """Compute, the longest other parts that fit, and the rest of the step as one number: they add up to it, but for a thousandth.

    The lines below a bar, and the letters of the parts that they name.
    Large parts have a number of their own, on further lines where they need them.
    """
    parts = sorted(row.parts, key=lambda part: (part.look.key != "compute", -part.duration_ps))
    named = [part for part in parts if part.ratio >= _LEAST_RATIO]
    large = [count for count, part in enumerate(named, 1) if part.ratio >= _LARGE_RATIO]
    least_count = max(large, default=0) if has_large_parts else 0
    lines: list[Text] = []
    for count in range(len(named), -1, -1):
        rest_ps = sum(part.duration_ps for part in row.parts if part not in named[:count])
        pieces = [
            legend_entry(
                _letter(part.look),
                part.look.ink,
                sanitize(f"{part.words} {numbers.time(part.duration_ps)}"),
            )
            for part in named[:count]
        ]
        if rest_ps >= _LEAST_REST_RATIO * sum(part.duration_ps for part in row.parts):
            pieces.append(page.styled(f"{_REST} {numbers.time(rest_ps)}", "dim"))
        lines = in_lines(pieces, width, _APART)
        has_room = len(lines) <= most_lines or count == least_count
        if has_room and all(line.width <= width for line in lines):
            return lines, {_letter(part.look) for part in named[:count]}
    return lines[:most_lines], set()


# Findings and commands


def _add_finding(page: Page, finding: doc.Finding, room: _Room) -> None:
    label = _severity(page, finding.severity)
    indent = label.width + _GAP
    page.prose(ended(finding.title), indent=indent, label=label, most_lines=_TITLE_LINES)
    if finding.action:
        page.prose(finding.action, indent=_GAP, most_lines=room.action_lines)


def _severity(page: Page, severity: Look) -> Text:
    return page.styled(severity.words.upper(), severity.ink)


def _add_command(page: Page, before: str, command: str) -> None:
    page.command(page.styled(before), page.styled(command, "bold"))
