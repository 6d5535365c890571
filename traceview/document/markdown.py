"""Prints documents as Markdown for a ticket: the answer first, the rest folded, all within the size of a comment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from traceview.document import cells, numbers
from traceview.document import model as doc
from traceview.document.code_in_prose import LONGEST_CALL, Piece, pieces
from traceview.document.page import Page
from traceview.document.sanitize import sanitize, shortened
from traceview.document.strip import strip_lines

MOST_BYTES: Final = 60_000
"""A comment on GitHub holds 65,536 characters; something has to be left for what is written around a report."""

LONGEST_NAME: Final = 120
"""Characters of one name; the middle of a longer one is left out."""

LONGEST_CELL: Final = 80
LONGEST_PROSE: Final = 1200
"""Characters of one paragraph."""

_STRIP_WIDTH: Final = 100
_ROOM_FOR_CUT: Final = 1000
_CUT: Final = "**Cut at {size} kB**, left out: {titles}. The JSON report holds everything."
_INVISIBLE: Final = ("bar", "span", "links")
_MARKUP: Final = re.compile(r"[\\`*_\[\]<>#|~$&]")
_HTML: Final = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_BLOCK_START: Final = re.compile(r"^(?=[-+])|^(\d+)(?=[.)](?: |$))")
_FENCE: Final = re.compile(r"^`{3,}", re.MULTILINE)


def render(document: doc.Document, most_bytes: int = MOST_BYTES) -> str:
    """The page in at most `most_bytes` bytes of UTF-8; sections that do not fit are named at its end.

    What comes first is always there, and is some kilobytes at most.
    """
    blocks = [block for block in _summary(document.summary) if block]
    room = most_bytes - _ROOM_FOR_CUT - sum(map(_size, blocks))
    left_out = []
    for section in (*doc.with_remarks_once(document.sections), *_definitions(document)):
        block = _section(section)
        if not block:
            continue
        if _size(block) > room:
            left_out.append(section.title)
            continue
        room -= _size(block)
        blocks.append(block)
    if left_out:
        blocks.append(_CUT.format(size=most_bytes // 1000, titles=", ".join(left_out)))
    return "\n\n".join(blocks) + "\n"


def _size(block: str) -> int:
    """Bytes of a block and of the empty line after it."""
    return len(block.encode()) + 2


# The first screen


def _summary(summary: doc.Summary) -> list[str]:
    return [
        f"# traceview: run {code(summary.run, 60)}",
        " · ".join(prose(fact) for fact in (*summary.captured, *summary.job)),
        f"**{prose(summary.answer)}**",
        prose(summary.headline),
        _tiles(summary),
        f"**The capture is {plain(summary.quality.words)}.**" if summary.quality else "",
        *map(prose, summary.remarks),
        *_first_findings(summary),
        fenced([summary.command], "sh") if summary.command else "",
    ]


def _tiles(summary: doc.Summary) -> str:
    headings = [
        prose(f"{tile.label}: {tile.note}" if tile.note else tile.label) for tile in summary.tiles
    ]
    values = [
        plain(tile.value)
        + (f" ({prose(tile.source.text)}{prose(tile.rest)})" if tile.source else "")
        for tile in summary.tiles
    ]
    return "\n".join((_row(headings), _row("---:" for _ in headings), _row(values)))


def _first_findings(summary: doc.Summary) -> Iterable[str]:
    if summary.findings:
        yield "\n".join(map(_first_finding, summary.findings))
    if summary.hidden_count:
        yield f"{numbers.plural(summary.hidden_count, 'more finding')} below."


def _first_finding(finding: doc.Finding) -> str:
    facts = (
        [f"costs {plain(finding.cost)}"] if finding.cost and not finding.is_cost_in_title else []
    )
    facts.append(f"confidence {finding.confidence}")
    return (
        f"{finding.number}. **{finding.severity.words}** `{finding.code}`: {prose(finding.title)}  \n"
        f"   {', '.join(facts)}. {prose(finding.advice)}"
    )


# Sections


def render_section(section: doc.Section) -> str:
    """One section alone."""
    return f"{_section(section)}\n"


def _section(section: doc.Section) -> str:
    """The section; nothing for one that holds what text cannot show."""
    body = "\n\n".join(text for text in (prose(section.lead), *map(_block, section.blocks)) if text)
    if not body:
        return ""
    if not section.is_folded:
        return f"## {plain(section.title)}\n\n{body}"
    return f"<details>\n<summary><b>{plain(section.title)}</b></summary>\n\n{body}\n\n</details>"


def _block(block: doc.Block) -> str:
    if isinstance(block, doc.Table):
        return _table(block)
    if isinstance(block, doc.Facts):
        return " · ".join(map(prose, block.items))
    if isinstance(block, doc.Notes):
        return "\n".join(f"- {prose(item)}" for item in block.items)
    if isinstance(block, doc.Remark):
        command = f" {code(block.command, LONGEST_CALL)}" if block.command else ""
        return f"{prose(block.text)}{command}"
    if isinstance(block, doc.Subheading):
        remark = f": {prose(block.remark)}" if block.remark else ""
        return f"**{prose(block.text)}**{remark}"
    if isinstance(block, doc.Strips):
        page = Page(_STRIP_WIDTH)
        strip_lines(page, block)
        text = page.render().strip("\n")
        return fenced(text.split("\n")) if text else ""
    if isinstance(block, doc.Findings):
        more = f"{numbers.plural(block.hidden_count, 'more finding')}: the JSON report."
        return "\n\n".join(
            (*map(_finding, block.findings), *([more] if block.hidden_count else []))
        )
    if isinstance(block, doc.GRAPHIC):
        return ""
    raise TypeError(block)


def _finding(finding: doc.Finding) -> str:
    bullets = [
        f"Cost: {prose(finding.cost)}." if finding.cost and not finding.is_cost_in_title else "",
        f"Evidence: {prose(finding.evidence)}.",
        f"Confidence {finding.confidence}: {prose(finding.confidence_reason)}.",
        f"Advice: {prose(finding.advice)}" if finding.advice else "",
        f"More: `traceview explain {finding.code}`",
    ]
    title = f"**{finding.severity.words}** `{finding.code}`: {prose(finding.title)}"
    listed = "\n".join(f"- {bullet}" for bullet in bullets if bullet)
    return f"{title}\n\n{prose(finding.explanation)}\n\n{listed}"


def _definitions(document: doc.Document) -> Iterable[doc.Section]:
    if document.definitions:
        lines = tuple(
            f"{term}: {meaning}" for _, terms in document.definitions for term, meaning in terms
        )
        yield doc.Section("definitions", "Definitions", (doc.Notes(lines),))


def _table(table: doc.Table) -> str:
    columns = [column for column in table.columns if column.kind not in _INVISIBLE]
    rows = zip(*(_cells(column) for column in columns), strict=True)
    lines = [
        _row(prose(column.heading) for column in columns),
        _row("---:" if column.is_numeric else "---" for column in columns),
        *map(_row, rows),
    ]
    if table.hidden_count:
        is_command = table.rest.startswith("traceview ")
        where = code(table.rest, LONGEST_CALL) if is_command else prose(table.rest)
        rest = f"; all of them: {where}" if table.rest else ""
        lines.append(f"\n{table.shown_count:,} of {numbers.plural(table.row_count, 'row')}{rest}.")
    return "\n".join(lines)


def _cells(column: doc.Column) -> list[str]:
    texts = cells.texts(column)
    if column.kind in ("name", "device"):
        return [text if cells.is_absent(text) else code(text, LONGEST_CELL) for text in texts]
    return [prose(text) if column.kind == "words" else plain(text) for text in texts]


def _row(row: Iterable[str]) -> str:
    return f"| {' | '.join(row)} |"


# Text that is not markup


def code(text: str, most: int = LONGEST_NAME) -> str:
    """A name as code, also in the cell of a table."""
    shown = shortened(sanitize(text), most)
    if not shown.strip():
        return numbers.ABSENT
    if "`" in shown or "|" in shown:
        # A delimiter of backticks or an escaped pipe is read differently here and there; entities are not.
        spelled = "".join(c if c.isalnum() or c == " " else f"&#{ord(c)};" for c in shown)
        return f"<code>{spelled}</code>"
    return f"`{shown}`"


def plain(text: str) -> str:
    """Words and numbers of our own, for a heading or a cell: nothing in them is markup."""
    return _MARKUP.sub(lambda match: _HTML.get(match[0], f"\\{match[0]}"), sanitize(text))


def prose(text: str) -> str:
    """A sentence that may hold recorded names; calls, commands and names in it become code."""
    whole = shortened(sanitize(text.strip()), LONGEST_PROSE)
    shown = "".join(map(_piece, pieces(whole)))
    return _BLOCK_START.sub(lambda match: f"{match[1] or ''}\\", shown, count=1)


def fenced(lines: Sequence[str], language: str = "") -> str:
    """Lines as they are, in a block of code."""
    text = "\n".join(sanitize(line) for line in lines)
    longest = max((len(fence) for fence in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language or 'text'}\n{text}\n{fence}"


def _piece(piece: Piece) -> str:
    if not piece.is_code:
        return plain(piece.text)
    return code(piece.text, LONGEST_CALL if piece.is_whole else LONGEST_NAME)
