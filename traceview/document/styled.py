"""Holds text of which each part has a style, and writes it with the escape sequences of a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Final

from msgspec import Struct
from rich.cells import cell_len

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
