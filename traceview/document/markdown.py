"""Prints documents as Markdown for a ticket: the answer first, the rest folded, all within the size of a comment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from traceview.base.text import lazy_pattern
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import cell_texts, is_absent
from traceview.document.page import Page
from traceview.document.phrase import Sentence, Token, pieces
from traceview.document.sanitize import sanitize, shortened
from traceview.document.screen import add_anatomy
from traceview.document.terminal import strip_lines

MOST_BYTES: Final = 60_000
"""A comment on GitHub holds 65,536 characters; something has to be left for what is written around a report."""

LONGEST_NAME: Final = 120
"""Characters of one name; the middle of a longer one is left out."""

LONGEST_CELL: Final = 80
LONGEST_PROSE: Final = 1200
"""Characters of one paragraph."""

LONGEST_CALL: Final = 300
"""Characters of a call or a command."""

VISIBLE_FINDINGS: Final = 5
_STRIP_WIDTH: Final = 100
_ROOM_FOR_CUT: Final = 1000
_CUT: Final = "**Cut at {size} kB**, left out: {titles}. The JSON report holds everything."
_MARKUP: Final = lazy_pattern(r"[\\`*_\[\]<>#|~$&]")
_HTML: Final = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_LINKED: Final = lazy_pattern(
    r"(?<!\S)\S*(?:@\w|://|\bwww\.|(?<!\w)#\d|(?<!\w):[a-z]\w*:)\S*", re.IGNORECASE
)
"""Words that GitHub makes links, mentions or pictures of; as code they stay what they are."""

_BLOCK_START: Final = lazy_pattern(r"^(?=[-+])|^(\d+)(?=[.)](?: |$))")
_FENCE: Final = lazy_pattern(r"^`{3,}", re.MULTILINE)


def render(document: doc.Document, most_bytes: int = MOST_BYTES) -> str:
    """The page in at most `most_bytes` bytes of UTF-8; sections that do not fit are named at its end.

    The answer, the bars, the findings and how to reproduce them are visible, some kilobytes at most; all else is folded.
    """
    blocks = [block for block in _summary(document) if block]
    room = most_bytes - _ROOM_FOR_CUT - sum(map(_size, blocks))
    first: list[str] = []
    rest: list[str] = []
    left_out = []
    for section in document.sections:
        folded = _folded(section)
        if _size(folded) > room:
            left_out.append(section.title)
        elif folded:
            room -= _size(folded)
            (rest if section.is_folded else first).append(folded)
    if rest:
        first.append(_details("Everything else", "\n\n".join(rest)))
    if left_out:
        first.append(_CUT.format(size=most_bytes // 1000, titles=", ".join(left_out)))
    return "\n\n".join((*blocks, *first)) + "\n"


def _size(block: str) -> int:
    """Bytes of a block and of the empty line after it."""
    return len(block.encode()) + 2


# What is visible


def _summary(document: doc.Document) -> Iterator[str]:
    summary = document.summary
    label = f"{summary.label.words.upper()} " if summary.label else ""
    yield f"# {label}{prose(summary.answer)}"
    yield prose(summary.action)
    findings = document.block(doc.Findings) or doc.Findings(())
    others = [finding for finding in findings.findings if finding.number != summary.number]
    yield from (_cost(finding) for finding in findings.findings if finding not in others)
    yield f"**The capture is {plain(summary.quality.words)}.**" if summary.quality else ""
    yield from map(prose, summary.remarks)
    page = Page(_STRIP_WIDTH)
    add_anatomy(page, summary, number_lines=1)
    yield _printed(page)
    yield " · ".join(map(prose, summary.compute))
    yield "\n".join(map(_first_finding, others[:VISIBLE_FINDINGS]))
    hidden_count = len(others[VISIBLE_FINDINGS:]) + findings.hidden_count
    if hidden_count:
        yield f"{numbers.plural(hidden_count, 'more finding')} below."
    yield " · ".join(map(prose, summary.captured))
    yield fenced([summary.command], "sh") if summary.command else ""


def _printed(page: Page) -> str:
    text = page.render().strip("\n")
    return fenced(text.split("\n")) if text else ""


def _first_finding(finding: doc.Finding) -> str:
    return (
        f"{finding.number}. **{finding.severity.words}** `{finding.code}`: {prose(finding.title)}  \n"
        f"   {_cost(finding)} {prose(finding.action or finding.advice)}".rstrip()
    )


def _cost(finding: doc.Finding) -> str:
    cost = f"{plain(finding.cost)}, " if finding.cost else ""
    return f"{numbers.capitalized(cost + 'confidence')} {finding.confidence}."


# Sections


def render_section(section: doc.Section) -> str:
    """One section alone."""
    return f"{_section(section)}\n"


def _section(section: doc.Section) -> str:
    if section.is_folded:
        return _folded(section)
    body = _body(section)
    return f"## {plain(section.title)}\n\n{body}" if body else ""


def _folded(section: doc.Section) -> str:
    """The section; nothing for one that holds what text cannot show."""
    body = _body(section)
    return _details(plain(section.title), body) if body else ""


def _details(title: str, body: str) -> str:
    return f"<details>\n<summary><b>{title}</b></summary>\n\n{body}\n\n</details>"


def _body(section: doc.Section) -> str:
    parts = (prose(section.lead), *map(_block, section.blocks))
    return "\n\n".join(part for part in parts if part)


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
        return _printed(page)
    if isinstance(block, doc.Findings):
        more = f"{numbers.plural(block.hidden_count, 'more finding')}: the JSON report."
        return "\n\n".join(
            (*map(_finding, block.findings), *([more] if block.hidden_count else []))
        )
    if isinstance(block, doc.Timeline):
        return ""
    raise TypeError(block)


def _finding(finding: doc.Finding) -> str:
    title = f"**{finding.severity.words}** `{finding.code}`: {prose(finding.title)}"
    listed = "\n".join(f"- {label.capitalize()}: {prose(text)}" for label, text in finding.facts)
    return f"{title}\n\n{prose(finding.explanation)}\n\n{listed}"


def _table(table: doc.Table) -> str:
    columns = [column for column in table.columns if column.kind != "span"]
    rows = zip(*(_cells(column) for column in columns), strict=True)
    lines = [
        _row(prose(column.heading) for column in columns),
        _row("---:" if column.is_numeric else "---" for column in columns),
        *map(_row, rows),
    ]
    if table.cut:
        lines += ["", _block(table.cut)]
    return "\n".join(lines)


def _cells(column: doc.Column) -> list[str]:
    texts = cell_texts(column)
    if column.kind in ("name", "device"):
        return [text if is_absent(text) else code(text, LONGEST_CELL) for text in texts]
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
