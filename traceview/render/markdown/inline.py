r"""How does recorded text stand in Markdown without being Markdown?

Names become code, in which nothing is markup, a link, a mention or an emoji; in sentences all that is more than words
does too (`code_in_prose`). Everything goes through `sanitize` first, so that there are no line breaks, control or
reordering characters, and nothing is endless.
"""

from __future__ import annotations

import re
from typing import Final

from traceview.document.code_in_prose import LONGEST_CALL, Piece, pieces
from traceview.document.sanitize import sanitize
from traceview.render import numbers

MOST: Final = 120
"""Characters of one name; the middle of a longer one is left out."""

LONGEST_PROSE: Final = 1200
"""Characters of one paragraph."""

_MARKUP: Final = re.compile(r"[\\`*_\[\]<>#|~$&]")
_HTML: Final = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_BLOCK_START: Final = re.compile(r"^(?=[-+])|^(\d+)(?=[.)](?: |$))")


def code(text: str, most: int = MOST) -> str:
    """A name as code, also in the cell of a table."""
    shown = _shortened(sanitize(text), most)
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
    """A sentence that may hold recorded names."""
    whole = _shortened(sanitize(text.strip()), LONGEST_PROSE)
    shown = "".join(map(_piece, pieces(whole)))
    return _BLOCK_START.sub(lambda m: f"{m[1] or ''}\\", shown, count=1)


def _piece(piece: Piece) -> str:
    if not piece.is_code:
        return plain(piece.text)
    return code(piece.text, LONGEST_CALL if piece.is_whole else MOST)


def _shortened(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[head - most + 1 :]}"
