"""Writes text into HTML: on one line, without characters that hide or reorder, and never endless."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup, escape

from traceview.document import numbers
from traceview.document.code_in_prose import pieces
from traceview.document.sanitize import encodable, sanitize

LONGEST_NAME: Final = 160
"""Characters of a name in a table; the middle of a longer one is left out."""

LONGEST_TEXT: Final = 1200
"""Characters of anything else."""

_SEPARATORS: Final = ("/", "::", "_")


def shown(value: object) -> object:
    """What a template writes for a value: text is sanitized and cut; markup of our own stays as it is."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return cut(value, LONGEST_TEXT)


def cut(text: str, most: int) -> str:
    """At most `most` characters of `text`, from both ends, with the length of the whole stated."""
    if len(text) <= most:
        return sanitize(encodable(text))
    head = most * 2 // 3
    left = sanitize(encodable(text[:head]))
    right = sanitize(encodable(text[head - most :]))
    return f"{left}…{right} ({numbers.plural(len(text), 'character')})"


def name(text: str) -> Markup:
    """A recorded name for a cell, which may be broken after its separators; what is copied stays the same."""
    written = escape(cut(text, LONGEST_NAME))
    for separator in _SEPARATORS:
        written = written.replace(separator, Markup(f"{separator}<wbr>"))
    return written


def prose(text: str) -> Markup:
    """A sentence in which calls, command lines and names are set as code."""
    code = Markup("<code>{}</code>")
    return Markup().join(
        code.format(piece.text) if piece.is_code else escape(piece.text)
        for piece in pieces(cut(text, LONGEST_TEXT))
    )


def unbroken(text: str) -> Markup:
    """`finding 12`: a word and its number, which stay on one line."""
    return Markup("&nbsp;").join(cut(text, LONGEST_TEXT).split(" ", 1))
