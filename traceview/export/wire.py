"""Writes a million protobuf messages of the same kind at once.

The bytes of all messages stand side by side in a matrix, one row each, with a mask of those that are used; taking
the used ones row by row gives the messages one after another (protobuf.dev, "Encoding").
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from traceview.base.intervals import BoolArray, Int64Array

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2


class Part(NamedTuple):
    """Bytes in every row, uint8 `[n, width]`, of which those are written that are `used`, `[n, width]`, in `wanted` rows, `[n]`.

    None: all of them.
    """

    data: npt.NDArray[np.uint8]
    used: BoolArray | None = None
    wanted: BoolArray | None = None

    def where(self, wanted: BoolArray) -> Part:
        """The same for the `wanted` rows."""
        return self._replace(wanted=wanted if self.wanted is None else self.wanted & wanted)

    @property
    def is_written(self) -> BoolArray | np.bool_:
        """Which bytes are written, in a shape that `data` has or is broadcast to."""
        if self.wanted is None:
            return np.True_ if self.used is None else self.used
        column = self.wanted[:, np.newaxis]
        return column if self.used is None else self.used & column


@dataclass(frozen=True, eq=False)
class Rows:
    """Bytes of n messages, in parts that stand beside each other."""

    parts: tuple[Part, ...]
    lengths: Int64Array
    """Bytes of each row, int64 `[n]`; kept, because counting what is used takes longer than all else."""

    def where(self, wanted: BoolArray) -> Rows:
        """The same for the `wanted` rows, nothing for others."""
        parts = tuple(part.where(wanted) for part in self.parts)
        return Rows(parts, np.where(wanted, self.lengths, 0))

    def content(self) -> bytes:
        """The bytes of all rows, one after another."""
        shape = self.lengths.size, sum(part.data.shape[1] for part in self.parts)
        data, is_written = np.empty(shape, dtype=np.uint8), np.empty(shape, dtype=np.bool_)
        end = 0
        for part in self.parts:
            begin, end = end, end + part.data.shape[1]
            data[:, begin:end] = part.data
            is_written[:, begin:end] = part.is_written
        return data[is_written].tobytes()


def constant(count: int, content: bytes) -> Rows:
    """The same bytes in every row."""
    data = np.broadcast_to(np.frombuffer(content, dtype=np.uint8), (count, len(content)))
    return Rows((Part(data),), np.full(count, len(content), dtype=np.int64))


def varints(values: npt.NDArray[np.integer]) -> Rows:
    """One varint in every row; negative values as their two's complement in 64 bits, as `int64` fields have them."""
    rest = values.astype(np.int64).view(np.uint64)
    widest = max(1, -(-int(rest.max(initial=0)).bit_length() // 7))
    data = np.empty((rest.size, widest), dtype=np.uint8)
    used = np.empty((rest.size, widest), dtype=np.bool_)
    lengths = np.ones(rest.size, dtype=np.int64)
    goes_on: BoolArray | np.bool_ = np.True_
    for place in range(widest):
        used[:, place] = goes_on
        low = rest.astype(np.uint8) & np.uint8(0x7F)
        rest >>= np.uint64(7)
        goes_on = rest > 0
        data[:, place] = low | goes_on.view(np.uint8) << np.uint8(7)
        lengths += goes_on
    return Rows((Part(data, used if widest > 1 else None),), lengths)


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
    value = Rows((Part(data),), np.full(values.size, 8, dtype=np.int64))
    return joined(constant(values.size, tag(field, FIXED64)), value)


def messages(field: int, inside: Rows) -> Rows:
    """A field that holds a message, one of `inside` per row."""
    head = constant(inside.lengths.size, tag(field, LENGTH))
    return joined(head, varints(inside.lengths), inside)


@cache
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
