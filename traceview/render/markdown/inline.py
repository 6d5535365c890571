r"""How does recorded text stand in Markdown without being Markdown?

Names become code, in which nothing is markup, a link, a mention or an emoji. In sentences every word that is
more than a word becomes code too: `model/dense`, `tf.data.AUTOTUNE`, `@someone`, `#1`. Everything goes through
`harmless` first, so that there are no line breaks, control or reordering characters, and nothing is endless.
"""

from __future__ import annotations

import re
from typing import Final

from traceview.render import numbers
from traceview.render.harmless import harmless

MOST: Final = 120
"""Characters of one name; the middle of a longer one is left out."""

LONGEST_PROSE: Final = 1200
"""Characters of one paragraph."""

_MARKUP: Final = re.compile(r"[\\`*_\[\]<>#|~$&]")
_MORE_THAN_A_WORD: Final = re.compile(r"[\\`*_{}\[\]<>#|!~@&$^/=:]")
_HTML: Final = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_DEVICE: Final = re.compile(r"(?:CPU|GPU|TPU|replica):\d+")
_BLOCK_START: Final = re.compile(r"^(?=[-+])|^(\d+)(?=[.)](?: |$))")
_BEFORE: Final = "(\"'"
_AFTER: Final = ".,;:)\"'?!"


def code(text: str, most: int = MOST) -> str:
    """A name as code, also in the cell of a table."""
    shown = _shortened(harmless(text), most)
    if not shown.strip():
        return numbers.ABSENT
    if "`" in shown or "|" in shown:
        # A delimiter of backticks or an escaped pipe is read differently here and there; entities are not.
        spelled = "".join(c if c.isalnum() or c == " " else f"&#{ord(c)};" for c in shown)
        return f"<code>{spelled}</code>"
    return f"`{shown}`"


def plain(text: str) -> str:
    """Words and numbers of our own, for a heading or a cell: nothing in them is markup."""
    return _MARKUP.sub(lambda match: _HTML.get(match[0], f"\\{match[0]}"), harmless(text))


def prose(text: str) -> str:
    """A sentence that may hold recorded names."""
    words = _shortened(harmless(text.strip()), LONGEST_PROSE).split(" ")
    return _BLOCK_START.sub(lambda m: f"{m[1] or ''}\\", " ".join(map(_word, words)), count=1)


def _word(word: str) -> str:
    core = word.lstrip(_BEFORE)
    before = word[: len(word) - len(core)]
    after = ""
    while core and core[-1] in _AFTER and not (core[-1] == ")" and _is_balanced(core)):
        core, after = core[:-1], core[-1] + after
    is_name = any(c.isalnum() for c in core) and (
        _MORE_THAN_A_WORD.search(core) is not None or core.lower().startswith("www.")
    )
    is_plain = not is_name or _DEVICE.fullmatch(core)
    return before + (plain(core) if is_plain else code(core)) + after


def _is_balanced(text: str) -> bool:
    return text.count("(") >= text.count(")")


def _shortened(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[head - most + 1 :]}"
