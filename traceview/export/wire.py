"""Writes a million protobuf messages of the same kind at once.

The bytes of all messages stand side by side in a matrix, one row each, with a mask of those that are used; taking
the used ones row by row gives the messages one after another (protobuf.dev, "Encoding").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from traceview.base.intervals import BoolArray, Int64Array

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2


@dataclass(frozen=True, eq=False)
class Rows:
    """Bytes of n messages, in parts that stand beside each other: uint8 data and which of them is used, both `[n, width]`."""

    parts: tuple[tuple[npt.NDArray[np.uint8], BoolArray], ...]
    lengths: Int64Array
    """Bytes of each row, int64 `[n]`; kept, because counting what is used takes longer than all else."""

    def where(self, wanted: BoolArray) -> Rows:
        """The same for the `wanted` rows, nothing for others."""
        column = wanted[:, np.newaxis]
        parts = tuple((data, used & column) for data, used in self.parts)
        return Rows(parts, np.where(wanted, self.lengths, 0))

    def content(self) -> bytes:
        """The bytes of all rows, one after another."""
        data = np.concatenate([data for data, _ in self.parts], axis=1)
        used = np.concatenate([used for _, used in self.parts], axis=1)
        content: bytes = data[used].tobytes()
        return content


def constant(count: int, content: bytes) -> Rows:
    """The same bytes in every row."""
    shape = (count, len(content))
    data = np.broadcast_to(np.frombuffer(content, dtype=np.uint8), shape)
    used = np.broadcast_to(np.True_, shape)
    return Rows(((data, used),), np.full(count, len(content), dtype=np.int64))


def varints(values: npt.NDArray[np.integer]) -> Rows:
    """One varint in every row; negative values as their two's complement in 64 bits, as `int64` fields have them."""
    rest = values.astype(np.int64).view(np.uint64)
    widest = max(1, -(-int(rest.max(initial=0)).bit_length() // 7))
    data = np.empty((rest.size, widest), dtype=np.uint8)
    used = np.ones((rest.size, widest), dtype=np.bool_)
    lengths = np.ones(rest.size, dtype=np.int64)
    for place in range(widest):
        if place:
            goes_on = rest > 0
            used[:, place] = goes_on
            lengths += goes_on
        low = rest.astype(np.uint8) & np.uint8(0x7F)
        rest = rest >> np.uint64(7)
        low[rest > 0] |= np.uint8(0x80)
        data[:, place] = low
    return Rows(((data, used),), lengths)


def joined(*rows: Rows) -> Rows:
    """The bytes of each row one after another."""
    lengths = rows[0].lengths.copy()
    for beside in rows[1:]:
        lengths += beside.lengths
    return Rows(tuple(part for of in rows for part in of.parts), lengths)


def numbers(field: int, values: npt.NDArray[np.integer]) -> Rows:
    """A field that holds one varint."""
    return joined(constant(values.size, tag(field, VARINT)), varints(values))


def fixed64(field: int, values: npt.NDArray[np.integer]) -> Rows:
    """A field that holds eight bytes."""
    data = values.astype("<i8").view(np.uint8).reshape(values.size, 8)
    used = np.broadcast_to(np.True_, data.shape)
    value = Rows(((data, used),), np.full(values.size, 8, dtype=np.int64))
    return joined(constant(values.size, tag(field, FIXED64)), value)


def messages(field: int, inside: Rows) -> Rows:
    """A field that holds a message, one of `inside` per row."""
    head = constant(inside.lengths.size, tag(field, LENGTH))
    return joined(head, varints(inside.lengths), inside)


def tag(field: int, kind: int) -> bytes:
    """What stands before the value of a field."""
    return varint(field << 3 | kind)


def varint(value: int) -> bytes:
    """One varint; `value` from 0 on."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def number(field: int, value: int) -> bytes:
    """A field with one varint, negative values as in `varints`."""
    return tag(field, VARINT) + varint(value & (1 << 64) - 1)


def text(field: int, value: str | bytes) -> bytes:
    """A field with text, or with an encoded message."""
    content = value.encode() if isinstance(value, str) else value
    return tag(field, LENGTH) + varint(len(content)) + content


def message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """Fields by their numbers: an integer as a varint, all else as text."""
    return b"".join(
        number(field, value) if isinstance(value, int) else text(field, value)
        for field, value in fields
    )
