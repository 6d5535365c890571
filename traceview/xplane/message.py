"""Reads small messages of protobuf: the fields by their numbers, of several that hold one value the last."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from types import ModuleType
from typing import Final

from traceview.base.sweeping import compiled_or_reference
from traceview.xplane.columns import Buffer, Fields
from traceview.xplane.decode_reference import DamageError, read_varint

DECODER: Final[ModuleType] = compiled_or_reference("traceview.xplane.decode")
"""The decoder in use."""

_VARINT, _CONTENT = 0, 2
_MOST: Final = 1 << 20
"""Numbers of a field that are looked at."""


class Message:
    """The fields of the message at `data[begin:end]`; one with another wire type than it is asked for is not there.

    Raises `DamageError` where they stop being any.
    """

    __slots__ = ("_data", "_fields")

    def __init__(self, data: Buffer, begin: int, end: int) -> None:
        fields: Fields = DECODER.scan_fields(data, begin, end)
        if fields.fault is not None:
            raise DamageError(fields.fault)
        self._data = data
        self._fields: dict[int, list[tuple[int, int, int]]] = {}
        rows = zip(
            fields.wire_type.tolist(), fields.begin.tolist(), fields.end.tolist(), strict=True
        )
        for number, row in zip(fields.number.tolist(), rows, strict=True):
            self._fields.setdefault(number, []).append(row)

    def __iter__(self) -> Iterator[int]:
        return iter(self._fields)

    def __contains__(self, number: int) -> bool:
        return number in self._fields

    def number(self, number: int, default: int = 0) -> int:
        """The whole number in a field."""
        for wire_type, begin, end in reversed(self._fields.get(number, ())):
            if wire_type == _VARINT:
                return read_varint(self._data, begin, end)[0]
        return default

    def numbers(self, number: int, most: int = _MOST) -> list[int]:
        """The whole numbers in a field, packed or one by one; at most `most`."""
        return list(islice(self._every_number(number), most))

    def _every_number(self, number: int) -> Iterator[int]:
        for wire_type, at, end in self._fields.get(number, ()):
            while wire_type in (_VARINT, _CONTENT) and at < end:
                value, at = read_varint(self._data, at, end)
                yield value

    def places(self, number: int) -> list[tuple[int, int]]:
        """Where the contents of a field that may be repeated begin and end."""
        known = self._fields.get(number, ())
        return [(begin, end) for wire_type, begin, end in known if wire_type == _CONTENT]

    def place(self, number: int) -> tuple[int, int]:
        """Where the content of a field begins and ends; empty without one."""
        return next(reversed(self.places(number)), (0, 0))

    def content(self, number: int) -> bytes:
        """The bytes of a field."""
        return bytes(self._data[slice(*self.place(number))])

    def text(self, number: int) -> str:
        """The text of a field."""
        return self.content(number).decode("utf-8", "replace")

    def texts(self, number: int) -> list[str]:
        """The texts of a repeated field."""
        places = self.places(number)
        return [bytes(self._data[slice(*at)]).decode("utf-8", "replace") for at in places]

    def message(self, number: int) -> Message:
        """The message in a field, without fields where there is none."""
        return Message(self._data, *self.place(number))

    def messages(self, number: int) -> Iterator[Message]:
        """The messages of a repeated field."""
        return (Message(self._data, *place) for place in self.places(number))
