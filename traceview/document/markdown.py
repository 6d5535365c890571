"""Prints documents as Markdown for a ticket: the answer first, the rest folded, all within the size of a comment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from traceview.document import cells, numbers
from traceview.document import model as doc
from traceview.document.page import Page
from traceview.document.phrase import Sentence, Token, pieces
from traceview.document.sanitize import sanitize, shortened
from traceview.document.strip import strip_lines

MOST_BYTES: Final = 60_000
"""A comment on GitHub holds 65,536 characters; something has to be left for what is written around a report."""

LONGEST_NAME: Final = 120
"""Characters of one name; the middle of a longer one is left out."""

LONGEST_CELL: Final = 80
LONGEST_PROSE: Final = 1200
"""Characters of one paragraph."""

LONGEST_CALL: Final = 300
"""Characters of a call or a command."""

_STRIP_WIDTH: Final = 100
_ROOM_FOR_CUT: Final = 1000
_CUT: Final = "**Cut at {size} kB**, left out: {titles}. The JSON report holds everything."
_INVISIBLE: Final = ("bar", "span", "links")
_MARKUP: Final = re.compile(r"[\\`*_\[\]<>#|~$&]")
_HTML: Final = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_LINKED: Final = re.compile(
    r"(?<!\S)\S*(?:@\w|://|\bwww\.|(?<!\w)#\d|(?<!\w):[a-z]\w*:)\S*", re.IGNORECASE
)
"""Words that GitHub makes links, mentions or pictures of; as code they stay what they are."""

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
        _headline(summary),
        prose(summary.action),
        f"**The capture is {plain(summary.quality.words)}.**" if summary.quality else "",
        *map(prose, summary.remarks),
        *_first_findings(summary),
        fenced([summary.command], "sh") if summary.command else "",
    ]


def _headline(summary: doc.Summary) -> str:
    label = f"{summary.label.words.upper()} " if summary.label else ""
    return f"**{label}{prose(summary.answer)}**"


def _first_findings(summary: doc.Summary) -> Iterable[str]:
    if summary.findings:
        yield "\n".join(map(_first_finding, summary.findings))
    if summary.hidden_count:
        yield f"{numbers.plural(summary.hidden_count, 'more finding')} below."


def _first_finding(finding: doc.Finding) -> str:
    facts = [plain(finding.cost)] if finding.cost else []
    facts.append(f"confidence {finding.confidence}")
    return (
        f"{finding.number}. **{finding.severity.words}** `{finding.code}`: {prose(finding.title)}  \n"
        f"   {', '.join(facts)}. {prose(finding.action or finding.advice)}".rstrip()
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
        f"Cost: {prose(finding.cost)}." if finding.cost else "",
        f"Evidence: {prose(finding.evidence)}." if finding.evidence else "",
        f"Confidence {finding.confidence}: {prose(finding.confidence_reason)}.",
        f"Advice: {prose(finding.whole_advice)}" if finding.whole_advice else "",
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
    if column.kind != "words":
        return [plain(text) for text in texts]
    return [
        prose(doc.sentence_of(value, text))
        for value, text in zip(column.values, texts, strict=True)
    ]


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
    """Words and numbers, for a heading or a cell: nothing in them is markup."""
    return _MARKUP.sub(lambda match: _HTML.get(match[0], f"\\{match[0]}"), sanitize(text))


def prose(sentence: Sentence) -> str:
    """A sentence; its code and the recorded names in it become code."""
    shown = "".join(map(_piece, pieces(sentence))).strip()
    return _BLOCK_START.sub(lambda match: f"{match[1] or ''}\\", shown, count=1)


def _piece(piece: Token) -> str:
    if piece.kind == "code":
        return code(piece.text, LONGEST_CALL)
    if piece.kind == "name":
        return code(piece.text)
    text = shortened(sanitize(piece.text), LONGEST_PROSE)
    shown, end = "", 0
    for match in _LINKED.finditer(text):
        shown += plain(text[end : match.start()]) + code(match[0])
        end = match.end()
    return shown + plain(text[end:])


def fenced(lines: Sequence[str], language: str = "") -> str:
    """Lines as they are, in a block of code."""
    text = "\n".join(sanitize(line) for line in lines)
    longest = max((len(fence) for fence in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language or 'text'}\n{text}\n{fence}"
