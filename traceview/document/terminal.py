"""Prints documents on a terminal: lines of at most its width, with colour if it has any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from traceview.document import cells
from traceview.document.model import (
    Bar,
    Block,
    Column,
    Document,
    Facts,
    Finding,
    Findings,
    Notes,
    Remark,
    Section,
    Strips,
    Subheading,
    Summary,
    Table,
    Timeline,
)
from traceview.document.page import Page
from traceview.document.strip import strip_lines
from traceview.document.vocabulary import Look

GAP: Final = 2
BAR_WIDTH: Final = 40
NARROWEST_BAR: Final = 10
NARROWEST_NAME: Final = 12
"""A column of text is not made narrower than this; before, columns of less priority go."""

WIDEST_FIRST: Final = 28
"""The names of the rows, in the first column."""

_INVISIBLE: Final = ("span", "links")
_INDENT: Final = 11


def render(document: Document, *, width: int, color: bool, unicode: bool = True) -> str:
    """The whole document in lines of at most `width` columns.

    `color`: with escape sequences of the 16 colours. `unicode`: False for a terminal that shows ASCII only.
    """
    page = Page(width, color, unicode)
    _add_summary(page, document.summary)
    for section in document.sections:
        add_section(page, section)
    return page.render()


def render_section(section: Section, *, width: int, color: bool, unicode: bool = True) -> str:
    """One section alone, as the commands for single tables print it."""
    page = Page(width, color, unicode)
    add_section(page, section)
    return page.render()


def add_section(page: Page, section: Section) -> None:
    """A section below its title, with its lead beside or below it."""
    page.heading(section.title, section.lead)
    for block in section.blocks:
        _add_block(page, block)


def _add_block(page: Page, block: Block) -> None:
    if isinstance(block, Table):
        add_table(page, block)
    elif isinstance(block, Facts):
        page.facts(block.items)
    elif isinstance(block, Notes):
        for note in block.items:
            page.prose(note, indent=4, label=Text("  - "))
    elif isinstance(block, Remark):
        page.remark(block.text)
    elif isinstance(block, Subheading):
        page.gap()
        remark = f"  {block.remark}" if block.remark else ""
        page.prose(Text().join([page.styled(block.text, "bold"), page.styled(remark, "dim")]))
    elif isinstance(block, Strips):
        strip_lines(page, block)
    elif isinstance(block, Findings):
        for place, finding in enumerate(block.findings):
            if place:
                page.gap()
            _add_finding(page, finding)
    elif not isinstance(block, Timeline):  # in text the strips stand in its place
        raise TypeError(block)


# Summary and findings


def _add_summary(page: Page, summary: Summary) -> None:
    page.facts([Text.assemble("run ", (page.text(summary.run), "bold")), *summary.captured])
    if summary.job:
        page.facts(summary.job)
    for remark in summary.remarks:
        page.prose(page.styled(remark, "dim"))
    page.gap()
    page.prose(page.styled(summary.answer, "bold"))
    if summary.headline:
        page.prose(summary.headline)
    width = max((cell_len(tile.value) for tile in summary.tiles), default=0) + 2
    for tile in summary.tiles:
        note = f"{tile.label[:1].lower()}{tile.label[1:]}" + (f", {tile.note}" if tile.note else "")
        source = f" ({tile.source.text})" if tile.source else ""
        value = page.styled(tile.value.rjust(width), "bold")
        page.prose(f"{note}{source}", indent=width + 2, label=value)
    if summary.quality is not None:
        page.prose(Text.assemble("Capture ", (summary.quality.words, summary.quality.ink)))


def _add_finding(page: Page, finding: Finding) -> None:
    severity = page.styled(finding.severity.words.upper(), finding.severity.ink)
    page.prose(page.styled(finding.title, "bold"), indent=_INDENT, label=severity)
    if finding.cost:
        _add_labelled(page, "cost", finding.cost)
    page.prose(finding.explanation, indent=_INDENT)
    sure = f"Confidence {finding.confidence}: {finding.confidence_reason}."
    _add_labelled(page, "evidence", f"{finding.evidence}. {sure}")
    _add_labelled(page, "advice", finding.advice)
    _add_labelled(page, "more", f"traceview explain {finding.code}")


def _add_labelled(page: Page, label: str, text: str) -> None:
    if text:
        page.prose(text, indent=_INDENT, label=Text(f"  {label}", "dim"))


# Tables


@dataclass
class _Printed:
    """A column as it is printed: its cells, the widest of them, and how narrow it may become."""

    column: Column
    heading: str
    texts: list[Text]
    width: int
    least_width: int
    head: float = 0.5


def add_table(page: Page, table: Table) -> None:
    """The columns that fit beside each other; below, what could not be shown."""
    printed = [
        _printed(page, column, is_first=place == 0)
        for place, column in enumerate(table.columns)
        if column.kind not in _INVISIBLE
    ]
    kept = _fitting(page, printed)
    _shrink(page, kept)
    if any(column.heading for column in kept):
        _add_row(page, kept, [page.styled(column.heading, "dim") for column in kept])
    for row in zip(*(column.texts for column in kept), strict=True):
        _add_row(page, kept, row)
    _add_legend(page, [column.column for column in kept])
    left = [column.heading for column in printed if column not in kept and column.heading]
    if left:
        needed = sum(column.least_width for column in printed) + GAP * (len(printed) - 1)
        page.remark(
            f"Not shown at {page.width} columns: {', '.join(left)}; --width {needed} shows all."
        )
    if table.hidden_count:
        page.remark(
            f"{table.hidden_count:,} of {table.row_count:,} rows are not shown; {_rest(table)}"
        )


def _rest(table: Table) -> str:
    return f"all of them: {table.rest}" if table.rest else "--top N shows more"


def _printed(page: Page, column: Column, *, is_first: bool) -> _Printed:
    heading = page.text(column.heading)
    if column.kind == "bar":
        bars = [
            _bar(value, BAR_WIDTH) if isinstance(value, Bar) else Text() for value in column.values
        ]
        return _Printed(column, heading, bars, BAR_WIDTH, NARROWEST_BAR)
    style = "bold" if is_first else ""
    looks = [value.ink if isinstance(value, Look) else style for value in column.values]
    texts = [page.styled(text, ink) for text, ink in zip(cells.texts(column), looks, strict=True)]
    width = max([cell_len(heading), *(cell_len(text.plain) for text in texts)])
    least = width
    if column.kind in ("name", "device", "words"):
        least = max(cell_len(heading), min(width, WIDEST_FIRST if is_first else NARROWEST_NAME))
    # The end of a path tells names apart that begin alike.
    return _Printed(column, heading, texts, width, least, head=0.5 if is_first else 0.35)


def _fitting(page: Page, columns: Sequence[_Printed]) -> list[_Printed]:
    """The columns that fit beside each other, without those that have to go."""
    kept = list(columns)
    while _total([column.least_width for column in kept]) > page.width:
        droppable = [column for column in kept if column.column.priority]
        if not droppable:
            break
        kept.remove(max(droppable, key=lambda column: column.column.priority))
    return kept


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _shrink(page: Page, columns: Sequence[_Printed]) -> None:
    """Shorten names and bars until the columns fit; the widest one gives way first."""
    excess = _total([column.width for column in columns]) - page.width
    shrinkable = [column for column in columns if column.width > column.least_width]
    while excess > 0 and shrinkable:
        widest = max(shrinkable, key=lambda column: column.width)
        others = [column.width for column in shrinkable if column is not widest]
        floor = max([widest.least_width, *(width for width in others if width < widest.width)])
        cut = min(excess, max(widest.width - floor, 1))
        widest.width -= cut
        excess -= cut
        shrinkable = [column for column in shrinkable if column.width > column.least_width]
    if excess > 0 and columns:
        # Narrower than anything is meant for: the names of the rows give way as well.
        columns[0].width = max(columns[0].width - excess, NARROWEST_NAME)
    for column in columns:
        if column.column.kind == "bar":
            column.texts = [
                _bar(value, column.width) if isinstance(value, Bar) else Text()
                for value in column.column.values
            ]
        else:
            column.texts = [
                Text(page.middle(text.plain, column.width, head=column.head), text.style)
                for text in column.texts
            ]


def _add_row(page: Page, columns: Sequence[_Printed], row: Sequence[Text]) -> None:
    pieces: list[Text] = []
    for column, text in zip(columns, row, strict=True):
        blank = Text(" " * max(column.width - cell_len(text.plain), 0))
        pieces += [blank, text] if column.column.is_numeric else [text, blank]
        pieces.append(Text(" " * GAP))
    page.line(*pieces)


def _bar(bar: Bar, width: int) -> Text:
    """Letters shared out by largest remainder, so that there are as many as the bar is long."""
    filled = round(width * bar.ratio)
    whole = sum(part.ratio for part in bar.parts) or 1.0
    exact = [part.ratio / whole * filled for part in bar.parts]
    counts = [int(length) for length in exact]
    by_rest = sorted(range(len(exact)), key=lambda place: counts[place] - exact[place])
    for place in by_rest[: filled - sum(counts)]:
        counts[place] += 1
    text = Text()
    for part, count in zip(bar.parts, counts, strict=True):
        text.append((part.look.letter or part.look.words[:1].upper()) * count, part.look.ink)
    return text


def _add_legend(page: Page, columns: Sequence[Column]) -> None:
    """What the letters of bars mean, the most frequent first."""
    totals: dict[Look, float] = {}
    for column in columns:
        for value in column.values if column.kind == "bar" else ():
            for part in value.parts if isinstance(value, Bar) else ():
                totals[part.look] = totals.get(part.look, 0.0) + part.ratio
    ranked = sorted(totals, key=lambda look: -totals[look])
    page.facts(
        [
            Text.assemble((look.letter or look.words[:1].upper(), look.ink), f" {look.words}")
            for look in ranked
        ],
        between="   ",
    )
