"""Defines sentences in typed pieces, so that a printer sets code as code and never interprets a recorded name.

A `str` in a document is a sentence of ours, in which backticks mark code. A sentence that holds recorded text is a
`Phrase`: recorded text is never searched for marks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from traceview.base.text import first_of

TokenKind: TypeAlias = Literal["text", "code", "device", "name", "number"]


class Token(Struct, frozen=True):
    """A piece of a sentence. `name` is recorded text, as hostile as a trace can be; `device` a device or several."""

    text: str
    kind: TokenKind = "text"


Phrase: TypeAlias = tuple[Token, ...]
"""A sentence, in pieces."""

Sentence: TypeAlias = str | Phrase
"""A sentence of ours as it is written, or one with recorded text in pieces."""


def name(text: str) -> Token:
    """Recorded text in a sentence."""
    return Token(text, "name")


def device(text: str) -> Token:
    """The key or the label of devices in a sentence."""
    return Token(text, "device")


def phrase(*parts: Sentence | Token | None) -> Phrase:
    """One sentence of the parts, of which a `str` is ours; None is left out."""
    tokens: list[Token] = []
    for part in parts:
        if isinstance(part, Token):
            tokens.append(part)
        elif part is not None:
            tokens += pieces(part)
    return tuple(tokens)


def names(texts: Sequence[str], most: int = 3) -> Phrase:
    """Recorded names as a list: `a, b and c`; of more than `most` how many more there are."""
    shown, hidden_count = first_of(texts, most)
    listed: list[Token] = []
    for place, text in enumerate(shown):
        is_last = place == len(shown) - 1 and not hidden_count
        listed += [Token(" and " if is_last else ", ")] if place else []
        listed.append(name(text))
    return (*listed, Token(f" and {hidden_count} more")) if hidden_count else tuple(listed)


def pieces(sentence: Sentence) -> Phrase:
    """The pieces of a sentence; in one of ours, what stands between backticks is code."""
    if not isinstance(sentence, str):
        return sentence
    # Every second part was between backticks; what an odd one opens is text.
    parts = sentence.split("`")
    if len(parts) % 2 == 0:
        parts[-2:] = ["`".join(parts[-2:])]
    return tuple(
        Token(part, "code" if place % 2 else "text") for place, part in enumerate(parts) if part
    )


def plain(sentence: Sentence) -> str:
    """The sentence without marks."""
    return "".join(token.text for token in pieces(sentence))


def ended(sentence: Phrase) -> Phrase:
    """The sentence with a full stop, unless it has an end."""
    text = plain(sentence)
    return sentence if not text or text.endswith((".", "!", "?", ":")) else (*sentence, Token("."))
