"""Writes records and plain data as the text of a JSON file."""

from __future__ import annotations

from typing import Any

import msgspec

from traceview.base.text import encodable


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
