r"""Makes recorded text safe to show, whatever someone called an op, and writes data as the text of a JSON file.

Escape sequences, line breaks, and characters that hide or reorder text become visible escapes such as
`\x1b` or `\u202e`; everything else stays as it is.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from traceview.base.text import encodable

MOST: Final = 2000
"""Characters of one text that are looked at; the middle of a longer one is left out."""


def sanitize(text: str) -> str:
    """`text` on one line, without control, bidirectional or invisible characters."""
    text = shortened(text, MOST)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def shortened(text: str, most: int, *, part: int = 2) -> str:
    """At most `most` characters; the middle of a longer text is left out. `part`: the beginning is one of so many parts."""
    if len(text) <= most:
        return text
    head = most // part
    return f"{text[:head]}…{text[head - most + 1 :]}"


def dumped(value: object) -> bytes:
    """Records, and lists and dictionaries of them: two spaces of indent, a line break at the end, UTF-8 kept as it is."""
    return msgspec.json.format(encoded(value), indent=2) + b"\n"


def encoded(value: object) -> bytes:
    """The JSON on one line. Characters of a path that UTF-8 cannot hold are replaced."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(msgspec.to_builtins(value)))


def _encodable(value: Any) -> Any:
    if isinstance(value, dict):
        return {encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encodable(item) for item in value]
    return encodable(value) if isinstance(value, str) else value
