"""Texts with styles, each of words such as `bold red`: what a line of a terminal is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

_ATTRIBUTES: Final = {"bold": 1, "dim": 2, "italic": 3}
_NAMES: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_COLOURS: Final = {
    f"{light}{name}": first + place
    for light, first in (("", 30), ("bright_", 90))
    for place, name in enumerate(_NAMES)
}


class Text:
    """Text in pieces with a style each, in addition to that of the whole."""

    def __init__(self, text: str = "", style: str = "") -> None:
        self.style = style
        self._pieces: list[tuple[str, str]] = []
        self.append(text)

    @classmethod
    def assemble(cls, *parts: Text | tuple[str, str] | str) -> Text:
        """Texts, with or without a style, one after another."""
        made = (
            p if isinstance(p, Text) else cls(p) if isinstance(p, str) else cls(*p) for p in parts
        )
        return cls().join(made)

    @property
    def plain(self) -> str:
        """The text without styles."""
        return "".join([text for text, _ in self._pieces])

    def append(self, text: str, style: str = "") -> None:
        """Add a piece; those without a style are one."""
        if not style and self._pieces and not self._pieces[-1][1]:
            text = self._pieces.pop()[0] + text
        if text:
            self._pieces.append((text, style))

    def append_text(self, other: Text) -> None:
        """Add the pieces of another text, with their styles and that of its whole."""
        for text, style in other._pieces:
            self.append(text, f"{other.style} {style}".strip())

    def join(self, texts: Iterable[Text]) -> Text:
        """These texts with this one between them."""
        result = Text()
        for place, text in enumerate(texts):
            if place:
                result.append_text(self)
            result.append_text(text)
        return result

    def divide(self, breaks: Iterable[int]) -> Iterator[Text]:
        """The parts between places in it, which rise."""
        rest = self._pieces
        begin = 0
        for end in (*breaks, len(self.plain)):
            part, room, left = Text(style=self.style), end - begin, []
            for text, style in rest:
                part.append(text[:room], style)
                if text[room:]:
                    left.append((text[room:], style))
                room = max(room - len(text), 0)
            yield part
            rest, begin = left, end

    def rstrip(self) -> None:
        """Leave out the blanks at its end."""
        self._pieces = next(self.divide([len(self.plain.rstrip())]))._pieces

    def printed(self) -> str:
        """The text with escape sequences."""
        return "".join([_escaped(text, f"{self.style} {style}") for text, style in self._pieces])


def _escaped(text: str, style: str) -> str:
    codes = _codes(style)
    return f"\x1b[{codes}m{text}\x1b[0m" if codes else text


@cache
def _codes(style: str) -> str:
    """What stands for a style in an escape sequence; of several colours the last counts."""
    words = style.split()
    colours = [_COLOURS[word] for word in words if word not in _ATTRIBUTES]
    attributes = sorted({_ATTRIBUTES[word] for word in words if word in _ATTRIBUTES})
    return ";".join(map(str, (*attributes, *colours[-1:])))
