"""How does text stand on the page? On one line, without characters that hide or reorder, and never endless."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup, escape

from traceview.document.code_in_prose import pieces
from traceview.document.sanitize import encodable, sanitize
from traceview.render import numbers

LONGEST_NAME: Final = 160
"""Characters of a name in a table; the middle of a longer one is left out."""

LONGEST_TEXT: Final = 1200
"""Characters of anything else."""


def shown(value: object) -> object:
    """What a template writes for a value: text is made sanitize and cut; markup of our own stays as it is."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return cut(value, LONGEST_TEXT)


def name(text: str | None) -> str:
    """A recorded name for a cell; a dash where there is none."""
    return cut(text, LONGEST_NAME) if text else numbers.ABSENT


def cut(text: str, most: int) -> str:
    """At most `most` characters of `text`, from both ends, with the length of the whole stated."""
    if len(text) <= most:
        return sanitize(encodable(text))
    head = most * 2 // 3
    left = sanitize(encodable(text[:head]))
    right = sanitize(encodable(text[head - most :]))
    return f"{left}…{right} ({numbers.plural(len(text), 'character')})"


def breakable(text: str) -> Markup:
    """A path or a dotted name that may be broken after its separators; what is copied stays the same."""
    safe = escape(text)
    for separator in ("/", "::", "_"):
        safe = safe.replace(separator, Markup(f"{separator}<wbr>"))
    return safe


def prose(text: str) -> Markup:
    """A sentence in which calls, command lines and names are set as code."""
    code = Markup("<code>{}</code>")
    return Markup().join(
        code.format(one.text) if one.is_code else escape(one.text)
        for one in pieces(cut(text, LONGEST_TEXT))
    )


def sentence(text: str) -> str:
    """`text` with a large first letter and a full stop; nothing stays nothing."""
    return text and f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
