"""Holds the lines of a text page: how wide it is, the style of each part of a line, and whether it has colour."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Final

from msgspec import Struct, field, structs
from rich.cells import cell_len

from traceview.base.text import lazy_pattern
from traceview.document.phrase import Sentence, pieces
from traceview.document.sanitize import sanitize

_COLOURS: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_CODES: Final = {
    "bold": 1,
    "dim": 2,
    "italic": 3,
    **{name: 30 + place for place, name in enumerate(_COLOURS)},
    **{f"bright_{name}": 90 + place for place, name in enumerate(_COLOURS)},
}
"""The words of a style; of several colours the last one holds."""

_FIRST_COLOUR: Final = 30


class Text(Struct, frozen=True):
    """Parts of a text, each with its style: words such as `bold red`, "" for none."""

    parts: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, text: str, style: str = "") -> Text:
        """A text of one style."""
        return cls(((text, style),))

    @property
    def plain(self) -> str:
        """The text without styles."""
        return "".join(part for part, _ in self.parts)

    @property
    def width(self) -> int:
        """Columns that it takes."""
        return cell_len(self.plain)

    def with_text(self, text: str) -> Text:
        """Another text in the style in which this one begins."""
        return Text.of(text, self.parts[0][1] if self.parts else "")

    def replaced(self, old: str, new: str) -> Text:
        """The text with other characters, each part in its style."""
        return Text(tuple((part.replace(old, new), style) for part, style in self.parts))

    def between(self, start: int, end: int) -> Text:
        """The characters from `start` to `end`, in their styles."""
        kept, begin = [], 0
        for part, style in self.parts:
            piece = part[max(start - begin, 0) : max(end - begin, 0)]
            if piece:
                kept.append((piece, style))
            begin += len(part)
        return Text(tuple(kept))

    def divided(self, breaks: Sequence[int]) -> Iterator[Text]:
        """The text in pieces that begin at the breaks, without blanks at their ends."""
        plain = self.plain
        for start, end in pairwise((0, *breaks, len(plain))):
            yield self.between(start, start + len(plain[start:end].rstrip()))

    def rendered(self, *, color: bool) -> str:
        """The text as it is written, without blanks at its end."""
        shown = self.plain.rstrip()
        if not color:
            return shown
        written = ""
        for style, parts in groupby(self.between(0, len(shown)).parts, itemgetter(1)):
            text, codes = "".join(part for part, _ in parts), _codes(style)
            written += f"\x1b[{codes}m{text}\x1b[0m" if codes else text
        return written


def joined(texts: Iterable[Text], between: str = "") -> Text:
    """The texts one after another, with a text without a style between them."""
    parts: list[tuple[str, str]] = []
    for text in texts:
        if between and parts:
            parts.append((between, ""))
        parts += text.parts
    return Text(tuple(parts))


def legend_entry(letter: str, style: str, words: str) -> Text:
    """A letter in its style, and what it stands for."""
    return Text(((letter, style), (f" {words}", "")))


@cache
def _codes(style: str) -> str:
    """The numbers of an escape sequence that begins this style; raises `KeyError` for a word that is no style."""
    codes = [_CODES[word] for word in style.split()]
    attributes = sorted({code for code in codes if code < _FIRST_COLOUR})
    colours = [code for code in codes if code >= _FIRST_COLOUR]
    return ";".join(map(str, (*attributes, *colours[-1:])))


NARROWEST: Final = 40
WIDEST_PROSE: Final = 110
"""Columns from which on a sentence is hard to follow; tables and timelines may be wider."""

BETWEEN: Final = " · "
"""The separator of facts."""

ELLIPSIS: Final = "…"
_WORD: Final = lazy_pattern(r"\s*(\S+)\s*")
_CODE_STYLE: Final = "cyan"
_BLANK: Final = "\ue000"
"""Stands for a blank inside a command until its line is printed. No text on a page has it: it is not printable."""


class Page(Struct):
    """Lines so far, and how to add more. Every text is sanitized, and none is markup."""

    width: int
    color: bool = False
    _lines: list[Text] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.width = max(self.width, NARROWEST)

    def copy(self) -> Page:
        """A page that begins with the lines of this one."""
        return structs.replace(self, _lines=list(self._lines))

    @property
    def line_count(self) -> int:
        """Lines so far, as a terminal shows them: one that is wider than the page takes several."""
        return sum(max(-(-line.width // self.width), 1) for line in self._lines)

    def styled(self, text: str, style: str = "") -> Text:
        """`text` as a page can show it, with a style."""
        return Text.of(sanitize(text), style)

    def phrase(self, sentence: Sentence, style: str = "") -> Text:
        """A sentence, its code in a colour of its own; a command is not broken, so that it can be copied."""
        parts = []
        for piece in pieces(sentence):
            written = sanitize(piece.text)
            if piece.kind == "code":
                is_command = written.startswith("traceview ")
                code = written.replace(" ", _BLANK) if is_command else written
                parts.append((code, f"{style} {_CODE_STYLE}"))
            else:
                parts.append((written, style))
        return Text(tuple(parts))

    def middle(self, text: str, width: int) -> str:
        """`text` in at most `width` columns, what is left out in the middle replaced by an ellipsis."""
        text = sanitize(text)
        if cell_len(text) <= width:
            return text
        room = max(width - len(ELLIPSIS), 0)
        front = room // 2
        return f"{_front(text, front)}{ELLIPSIS}{_front(text[::-1], room - front)[::-1]}"[
            : max(width, 1)
        ]

    def line(self, *parts: Text | str) -> None:
        """Add one line as it is; it has to fit."""
        line = joined(p if isinstance(p, Text) else self.styled(p) for p in parts)
        # Without colour the styles of a long table would only take memory.
        self._lines.append(line if self.color else Text.of(line.plain))

    def gap(self) -> None:
        """An empty line, unless the page begins or one is there already."""
        if self._lines and self._lines[-1].plain:
            self._lines.append(Text())

    def heading(self, title: Sentence, remark: Sentence = "", style: str = "") -> None:
        """Begin a section, or a part of one."""
        self.gap()
        beside = [self.phrase(remark, style)] if remark else []
        self.prose(joined([self.phrase(title, "bold"), *beside], "  "))

    def prose(
        self,
        text: Text | Sentence,
        *,
        indent: int = 0,
        label: Text | None = None,
        most_lines: int | None = None,
    ) -> None:
        """Add a paragraph, broken at words; `label` stands in the indent of its first line.

        Of more than `most_lines` lines the last one ends with an ellipsis.
        """
        content = text if isinstance(text, Text) else self.phrase(text)
        room = max(min(self.width, WIDEST_PROSE) - indent, 10)
        lines = list(_lines_of(content, room))
        if most_lines is not None and len(lines) > most_lines:
            lines = lines[:most_lines]
            kept = _front(lines[-1].plain, room - len(ELLIPSIS)).rstrip()
            lines[-1] = lines[-1].with_text(kept + ELLIPSIS)
        for place, line in enumerate(lines):
            lead = label if label is not None and place == 0 else Text()
            self.line(lead, " " * (indent - lead.width), line)

    def remark(self, text: Sentence, command: str = "") -> None:
        """Add a paragraph of minor weight."""
        if command:
            self.command(self.phrase(text, "dim"), self.styled(command, "dim"))
        else:
            self.prose(self.phrase(text, "dim"))

    def command(self, before: Text, command: Text) -> None:
        """Add a command, neither shortened nor broken, so that it can be copied; the terminal wraps a long one."""
        if before.width + 1 + command.width <= self.width:
            self.line(before, " ", command)
        else:
            self.prose(before)
            self.line(command)

    def facts(
        self,
        facts: Iterable[Text | Sentence],
        *,
        between: str = BETWEEN,
        most_lines: int | None = None,
    ) -> None:
        """Add short facts on as few lines as hold them; one too long for a line loses its middle.

        What `most_lines` do not hold is left out.
        """
        pieces = []
        for fact in facts:
            piece = fact if isinstance(fact, Text) else self.phrase(fact)
            if piece.width > self.width:
                whole = piece.plain.replace(_BLANK, " ")
                piece = piece.with_text(self.middle(whole, self.width))
            pieces.append(piece)
        self._lines += in_lines(pieces, self.width, between)[:most_lines]

    def render(self) -> str:
        """All lines, with colours if the page has any, and no blanks at their ends."""
        lines = (line.replaced(_BLANK, " ").rendered(color=self.color) for line in self._lines)
        return "".join(f"{line}\n" for line in lines)


def in_lines(pieces: Iterable[Text], width: int, between: str) -> list[Text]:
    """The pieces on as few lines as hold them, each whole."""
    lines: list[Text] = []
    for piece in pieces:
        longer = joined([*lines[-1:], piece], between)
        if lines and longer.width <= width:
            lines[-1] = longer
        else:
            lines.append(piece)
    return lines


def _lines_of(text: Text, width: int) -> Iterator[Text]:
    """The text broken at words; one that is wider than a line is broken too, but no command, so that it can be copied."""
    breaks, used = [], 0
    for word in _WORD.finditer(text.plain):
        start, end = word.start(), word.end(1)
        if cell_len(text.plain[start:end]) > width - used and start:
            breaks.append(start)
            used = 0
        while _BLANK not in word[1] and cell_len(text.plain[start:end]) > width:
            start += _broken(text.plain[start:end], width)
            breaks.append(start)
        used += cell_len(text.plain[start : word.end()])
    yield from text.divided(breaks)


def _broken(word: str, width: int) -> int:
    """Where a word is broken that is wider than a line: after a separator, and before the number of a line."""
    front = _front(word, width)
    after = max(front.rfind(mark) for mark in "/_-") + 1
    before = front.rfind(":") if word.rpartition(":")[2].rstrip(".,;)").isdigit() else 0
    return max(after or before, 0) or max(len(front), 1)


def _front(text: str, width: int) -> str:
    used, taken = 0, 0
    for character in text:
        used += cell_len(character)
        if used > width:
            break
        taken += 1
    return text[:taken]
