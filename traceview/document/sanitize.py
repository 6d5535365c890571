r"""Makes recorded text safe to show, whatever someone called an op.

Escape sequences, line breaks, and characters that hide or reorder text become visible escapes such as
`\x1b` or `\u202e`; everything else stays as it is.
"""

from __future__ import annotations

from typing import Final

MOST: Final = 2000
"""Characters of one text that are looked at; the middle of a longer one is left out."""

_PLAIN: Final = str.maketrans(
    {
        "–": "-",
        "—": "-",
        "…": "...",
        "·": "-",
        "×": "x",
        "µ": "u",
        "≥": ">=",
        "≤": "<=",
        "→": "->",
        "’": "'",
    }
)


def sanitize(text: str, *, unicode: bool = True) -> str:
    """`text` on one line, without control, bidirectional or invisible characters.

    Without `unicode` the result is ASCII: typography is simplified and the rest escaped.
    """
    if len(text) > MOST:
        ellipsis = "…" if unicode else "..."
        text = f"{text[: MOST // 2]}{ellipsis}{text[-MOST // 2 :]}"
    if not text.isprintable():
        text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    if unicode or text.isascii():
        return text
    return text.translate(_PLAIN).encode("ascii", "backslashreplace").decode("ascii")


def shortened(text: str, most: int, *, part: int = 2) -> str:
    """At most `most` characters; the middle of a longer text is left out. `part`: the beginning is one of so many parts."""
    if len(text) <= most:
        return text
    head = most // part
    return f"{text[:head]}…{text[head - most + 1 :]}"
