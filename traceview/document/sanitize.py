r"""Makes recorded text safe to show, whatever someone called an op.

Escape sequences, line breaks, and characters that hide or reorder text become visible escapes such as
`\x1b` or `\u202e`; everything else stays as it is.
"""

from __future__ import annotations

from typing import Final

MOST: Final = 2000
"""Characters of one text that are looked at; the middle of a longer one is left out."""


def sanitize(text: str) -> str:
    """`text` on one line, without control, bidirectional or invisible characters."""
    if len(text) > MOST:
        text = f"{text[: MOST // 2]}…{text[-MOST // 2 :]}"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def shortened(text: str, most: int, *, part: int = 2) -> str:
    """At most `most` characters; the middle of a longer text is left out. `part`: the beginning is one of so many parts."""
    if len(text) <= most:
        return text
    head = most // part
    return f"{text[:head]}…{text[head - most + 1 :]}"
