"""Bytes on the wire as a writer may lay them out, and as no writer would: input for the tests of the decoders."""

from __future__ import annotations

from typing import Any

from scripts.fuzzed_kernels import SLOTS, WANTED
from scripts.xspace import varint
from traceview.xplane import decode_reference
from traceview.xplane.message import DECODER

__all__ = ("SLOTS", "WANTED", "varint")

VARINT, FIXED64, CONTENT, FIXED32 = 0, 1, 2, 5
# Both decoders where there are two.
DECODERS: list[Any] = list(dict.fromkeys((decode_reference, DECODER)))


def content(number: int, payload: bytes, padding: int = 0) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | CONTENT) + varint(len(payload), padding) + payload


def number(field: int, value: int, padding: int = 0) -> bytes:
    """A varint field."""
    return varint(field << 3 | VARINT) + varint(value, padding)
