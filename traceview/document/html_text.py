"""Writes text into HTML: on one line, without characters that hide or reorder, and never endless."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup, escape

from traceview.document import numbers
from traceview.document.phrase import Sentence, pieces
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


_TWO_LINES_FROM: Final = 36
"""Characters of a name from which on it takes two lines: its last part below the rest."""


def name(text: str) -> Markup:
    """A recorded name for a cell: broken after its separators, a long one on two lines; what is copied stays the same."""
    written = cut(text, LONGEST_NAME)
    if len(written) < _TWO_LINES_FROM:
        return _breakable(written)
    middle = max(written.rfind(separator, 0, -8) + len(separator) for separator in _SEPARATORS)
    middle = middle if middle > len(written) // 5 else len(written) // 2
    return Markup('<span class="lines" title="{}"><span>{}</span><span>{}</span></span>').format(
        written, written[:middle], written[middle:]
    )


def _breakable(text: str) -> Markup:
    written = escape(text)
    for separator in _SEPARATORS:
        written = written.replace(separator, Markup(f"{separator}<wbr>"))
    return written


def prose(sentence: Sentence) -> Markup:
    """A sentence; its code and the recorded names in it are set as code."""
    code = Markup("<code>{}</code>")
    return Markup().join(
        code.format(cut(piece.text, LONGEST_TEXT))
        if piece.kind in ("code", "name")
        else escape(cut(piece.text, LONGEST_TEXT))
        for piece in pieces(sentence)
    )
