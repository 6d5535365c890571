"""Prints documents on a terminal: lines of at most its width, with colour if it has any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from rich.cells import cell_len

from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import cell_texts
from traceview.document.figures import UtilizationStrip
from traceview.document.model import Strips
from traceview.document.page import Page, Text, joined, legend_entry
from traceview.document.sanitize import sanitize
from traceview.document.vocabulary import PARTS, Look

GAP: Final = 2
NARROWEST_NAME: Final = 24
"""A column of text is made no narrower than this as long as there are others to leave out."""

WIDEST_FIRST: Final = 28
"""The names of the rows, in the first column."""

WHOLE_FINDINGS: Final = 4
SHORT_FINDINGS: Final = 6
"""Further ones, of which the title is shown."""

_INDENT: Final = 11
_APART: Final = (doc.Findings, doc.Notes, doc.Remark, doc.Strips, doc.Table)
"""Blocks that a table or a strip does not follow without an empty line."""


def render_section(section: doc.Section, *, width: int, color: bool) -> str:
    """One section alone, as the commands for single tables print it, in lines of at most `width` columns.

    `color`: with escape sequences of the 16 colours.
    """
    page = Page(width, color)
    add_section(page, section)
    return page.render()


def add_section(page: Page, section: doc.Section) -> None:
    """A section below its title, with its lead beside or below it, and which columns had no room."""
    if section.is_empty:
        return
    page.heading(section.title, section.lead)
    before: doc.Block | None = None
    hidden: dict[str, None] = {}
    needed = 0
    for block in section.blocks:
        if isinstance(block, (doc.Table, doc.Strips)) and isinstance(before, _APART):
            page.gap()
        before = block
        if isinstance(block, doc.Table):
            headings, width = add_table(page, block)
            hidden |= dict.fromkeys(headings)
            needed = max(needed, width)
        else:
            _add_block(page, block, section.command)
    if hidden:
        names = ", ".join(hidden)
        page.remark(f"Not shown at {page.width} columns: {names}; --width {needed} shows all.")


def _add_block(page: Page, block: doc.Block, command: str) -> None:
    if isinstance(block, doc.Facts):
        page.facts(block.items)
    elif isinstance(block, doc.Notes):
        for note in block.items:
            page.prose(note, indent=4, label=Text.of("  - "))
    elif isinstance(block, doc.Remark):
        page.remark(block.text, block.command)
    elif isinstance(block, doc.Subheading):
        page.heading(block.text, block.remark, "dim")
    elif isinstance(block, doc.Strips):
        strip_lines(page, block)
    elif isinstance(block, doc.Findings):
        _add_findings(page, block, command)
    elif not isinstance(block, doc.Timeline):
        raise TypeError(block)


# Findings


def _add_findings(page: Page, block: doc.Findings, command: str) -> None:
    """The first in full; of the others, what is wrong."""
    for place, finding in enumerate(block.findings[: WHOLE_FINDINGS + SHORT_FINDINGS]):
        if place <= WHOLE_FINDINGS and place:
            page.gap()
        if place < WHOLE_FINDINGS:
            _add_finding(page, finding)
        else:
            _add_title(page, finding)
    shown_count = WHOLE_FINDINGS + SHORT_FINDINGS
    hidden_count = max(len(block.findings) - shown_count, 0) + block.hidden_count
    if hidden_count:
        page.remark(f"{numbers.plural(hidden_count, 'more finding')}:", command)
    elif len(block.findings) > WHOLE_FINDINGS:
        page.remark("The evidence of all findings:", command)


def _add_title(page: Page, finding: doc.Finding) -> None:
    severity = page.styled(finding.severity.words.upper(), finding.severity.ink)
    page.prose(page.phrase(finding.title, "bold"), indent=_INDENT, label=severity)


def _add_finding(page: Page, finding: doc.Finding) -> None:
    _add_title(page, finding)
    page.prose(finding.explanation, indent=_INDENT)
    for label, text in finding.facts:
        page.prose(text, indent=_INDENT, label=Text.of(f"  {label}", "dim"))


# Tables


class _Printed(Struct):
    """A column as it is printed: its cells, how wide the widest is, its heading in lines, and its width in the end."""

    column: doc.Column
    is_first: bool
    texts: list[Text]
    widest: int
    heading: list[str]
    width: int = 0

    @property
    def most(self) -> int:
        """The width at which nothing is shortened."""
        return max(self.widest, *map(cell_len, self.heading))

    @property
    def least(self) -> int:
        """The width below which a column is rather left out."""
        if self.column.kind not in ("name", "device", "words"):
            return self.most
        least = min(self.widest, WIDEST_FIRST if self.is_first else NARROWEST_NAME)
        return max(least, *map(cell_len, self.heading))


def add_table(page: Page, table: doc.Table) -> tuple[list[str], int]:
    """The columns that fit beside each other; returns the headings of the others, and the width at which all fit."""
    columns = [column for column in table.columns if column.kind != "span"]
    printed = [_printed(page, column, is_first=not at) for at, column in enumerate(columns)]
    needed = _total([column.least for column in printed])
    if needed > page.width:
        for column in printed:
            if cell_len(column.heading[0]) > column.widest:
                column.heading = _in_two_lines(column.heading[0])
    kept = _fitting(page, printed)
    _shrink(page, kept)
    if any(column.column.heading for column in kept):
        _add_headings(page, kept)
    for row in zip(*(column.texts for column in kept), strict=True):
        _add_row(page, kept, row)
    if table.cut:
        page.remark(table.cut.text, table.cut.command)
    left_out = [column for column in printed if column not in kept]
    return (
        [text for column in left_out if (text := sanitize(column.column.heading))],
        needed if left_out else 0,
    )


def _printed(page: Page, column: doc.Column, *, is_first: bool) -> _Printed:
    """The column as wide as it can be."""
    heading = [page.middle(column.heading, WIDEST_FIRST)]
    style = "bold" if is_first else ""
    inks = [value.ink if isinstance(value, Look) else style for value in column.values]
    texts = [page.styled(text, ink) for text, ink in zip(cell_texts(column), inks, strict=True)]
    widest = max((text.width for text in texts), default=0)
    return _Printed(column, is_first, texts, widest, heading)


def _in_two_lines(heading: str) -> list[str]:
    """A heading in two lines of about the same length; a single word in one."""
    words = heading.split(" ")
    breaks = [[" ".join(words[:n]), " ".join(words[n:])] for n in range(1, len(words))]
    return min(breaks, key=lambda lines: max(map(cell_len, lines)), default=words)


def _fitting(page: Page, columns: Sequence[_Printed]) -> list[_Printed]:
    """The columns for which there is room, by priority; the first of all in any case."""
    kept = columns[:1]
    for column in sorted(columns[1:], key=lambda column: column.column.priority):
        if _total([each.least for each in (*kept, column)]) > page.width:
            break
        kept = [*kept, column]
    return [column for column in columns if column in kept]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _shrink(page: Page, columns: Sequence[_Printed]) -> None:
    """Shorten names until the columns fit, the widest first; below their least only a first one alone."""
    for column in columns:
        column.width = column.most
    for floors in ([column.least for column in columns], [1 for _ in columns]):
        _narrow(columns, floors, _total([column.width for column in columns]) - page.width)
    for column in columns:
        if column.width < column.widest:
            column.texts = [
                text.with_text(page.middle(text.plain, column.width)) for text in column.texts
            ]
        column.heading = [page.middle(line, column.width) for line in column.heading]


def _narrow(columns: Sequence[_Printed], floors: Sequence[int], excess: int) -> None:
    """Take as many characters from the widest columns as there are too many, down to the floor of each."""
    while excess > 0:
        wide = [
            column for column, floor in zip(columns, floors, strict=True) if column.width > floor
        ]
        if not wide:
            return
        max(wide, key=lambda column: column.width).width -= 1
        excess -= 1


def _add_headings(page: Page, columns: Sequence[_Printed]) -> None:
    """The headings in as many lines as the longest takes; shorter ones stand in the last."""
    line_count = max(len(column.heading) for column in columns)
    lines = [[""] * (line_count - len(column.heading)) + column.heading for column in columns]
    for line in zip(*lines, strict=True):
        _add_row(page, columns, [page.styled(text, "dim") for text in line])


def _add_row(page: Page, columns: Sequence[_Printed], row: Sequence[Text]) -> None:
    parts: list[Text | str] = []
    blank = ""
    for column, text in zip(columns, row, strict=True):
        room = " " * (column.width - text.width)
        parts += (blank + room if column.column.is_numeric else blank, text)
        blank = " " * GAP if column.column.is_numeric else room + " " * GAP
    page.line(*parts)


# Strips: what each device did when, one character per slice of time, readable without colour


NARROWEST_STRIP: Final = 20
"""Fewer characters than this show nothing worth the line."""

_WIDEST_NAME: Final = 28
_MOSTLY_BUSY: Final = 0.5
"""From this share of a slice on its character is the full one."""

_THIN: Final = "less than half busy"
"""Meaning of the second character."""

_CHARACTERS: Final = {
    "compute": ("█", "▂"),
    "collective": ("▒", "░"),
    "copies": ("≡", "─"),
    "idle": ("·", "·"),
}
"""By what the busy part of a slice mostly is: the character of one that is busy for half of it or more, and of another one."""


def strip_lines(page: Page, block: Strips) -> None:
    """Add a strip per device below an axis, and the legend; nothing where a page is too narrow."""
    by_device = {strip.device: strip for strip in block.strips.devices}
    drawn = [by_device[device] for device in block.devices if device in by_device]
    widest = min(_WIDEST_NAME, page.width - NARROWEST_STRIP - GAP)
    names = [page.middle(strip.device, widest) for strip in drawn]
    name_width = max(map(cell_len, names), default=0)
    length = _fitting_length(block.strips.slice_count, page.width - name_width - GAP)
    if not drawn or not length:
        return
    lengths = {strip.end_ps - strip.start_ps for strip in drawn}
    window_ps = lengths.pop() if len(lengths) == 1 else None
    if window_ps is not None:
        axis = f"0{sanitize(numbers.time(window_ps)).rjust(length - 1)}"
        page.line(" " * (name_width + GAP), page.styled(axis, "dim"))
    used: set[str] = set()
    for name, strip in zip(names, drawn, strict=True):
        line = _strip(strip, length)
        used |= set(line.plain)
        blank = " " * (name_width - cell_len(name) + GAP)
        page.line(Text.of(name, "bold"), blank, line)
    page.facts(_strip_legend(page, used, window_ps // length if window_ps else None), between="   ")


def _fitting_length(slice_count: int, width: int) -> int:
    """The most characters within `width` that stand for equally many slices each; 0 if hardly any."""
    lengths = [n for n in range(NARROWEST_STRIP, width + 1) if slice_count and slice_count % n == 0]
    return max(lengths, default=0)


def _strip(strip: UtilizationStrip, length: int) -> Text:
    per = len(strip.idle_ps) // length
    parts = []
    for begin in range(0, per * length, per):
        part, share = _busiest(strip, slice(begin, begin + per))
        parts.append((_CHARACTERS[part][share < _MOSTLY_BUSY], PARTS[part].ink))
    return Text(tuple(parts))


def _busiest(strip: UtilizationStrip, slices: slice) -> tuple[str, float]:
    parts = {
        "compute": sum(strip.compute_ps[slices]),
        "collective": sum(strip.collective_ps[slices]),
        "copies": sum(strip.copy_ps[slices]),
    }
    busy = sum(parts.values())
    if busy == 0:
        return "idle", 1.0
    return max(parts, key=parts.__getitem__), busy / (busy + sum(strip.idle_ps[slices]))


def _strip_legend(page: Page, used: set[str], character_ps: int | None) -> list[Text]:
    """The legend of the characters in `used`, and how long one of them is."""
    facts = []
    for part, (full, thin) in _CHARACTERS.items():
        look = PARTS[part]
        if full in used:
            facts.append(legend_entry(full, look.ink, look.words))
            if thin in used and thin != full:
                facts[-1] = joined([facts[-1], legend_entry(thin, look.ink, _THIN)], ", ")
        elif thin in used:
            facts.append(legend_entry(thin, look.ink, f"{look.words}, {_THIN}"))
    if character_ps is not None:
        facts.append(page.styled(f"one character is {numbers.time(character_ps)}"))
    return facts
