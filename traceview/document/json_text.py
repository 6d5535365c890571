"""Writes records and plain data as the text of a JSON file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from traceview.base.text import encodable

_ROWS_AT_ONCE: Final = 1 << 12


def dumped(value: object) -> bytes:
    """Records, and lists and dictionaries of them: two spaces of indent, a line break at the end, UTF-8 kept as it is."""
    return msgspec.json.format(encoded(value), indent=2) + b"\n"


def dumped_with_rows(value: dict[str, Any], rows: Iterable[object]) -> Iterator[bytes]:
    """`dumped` of the value, whose `rows` are empty, with these rows, in parts that are made one after another."""
    # No text holds a line break as such.
    head, end = dumped(value).split(b'\n  "rows": []', 1)
    left = iter(rows)
    before = head + b'\n  "rows": ['
    while some := list(islice(left, _ROWS_AT_ONCE)):
        # Without the brackets, and two spaces further in.
        lines = dumped(some)[1:-3].replace(b"\n", b"\n  ")
        yield before + lines
        before = b","
    yield (head + b'\n  "rows": []' if before != b"," else b"\n  ]") + end


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
