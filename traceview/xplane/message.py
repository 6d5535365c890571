"""Reads small messages of protobuf: the fields by their numbers, of several that hold one value the last."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import Final

from traceview.xplane.columns import Buffer
from traceview.xplane.decode_reference import Field, read_fields, read_varint

_VARINT, _CONTENT = 0, 2
_MOST: Final = 1 << 20
"""Numbers of a field that are looked at."""


class Message:
    """The fields of the message at `data[begin:end]`; one with another wire type than it is asked for is not there.

    Raises `DamageError` where they stop being any.
    """

    __slots__ = ("_data", "_fields")

    def __init__(self, data: Buffer, begin: int, end: int) -> None:
        self._data = data
        self._fields: dict[int, list[Field]] = defaultdict(list)
        for field in read_fields(data, begin, end):
            self._fields[field.number].append(field)

    def __iter__(self) -> Iterator[int]:
        return iter(self._fields)

    def __contains__(self, number: int) -> bool:
        return number in self._fields

    def number(self, number: int, default: int = 0) -> int:
        """The whole number in a field."""
        for field in reversed(self._fields.get(number, ())):
            if field.wire_type == _VARINT:
                return field.value
        return default

    def numbers(self, number: int, most: int = _MOST) -> list[int]:
        """The whole numbers in a field, packed or one by one; at most `most`."""
        every = (value for field in self._fields.get(number, ()) for value in self._ids(field))
        return list(islice(every, most))

    def _ids(self, field: Field) -> Iterator[int]:
        if field.wire_type == _VARINT:
            yield field.value
        at = field.begin
        while field.wire_type == _CONTENT and at < field.end:
            value, at = read_varint(self._data, at, field.end)
            yield value

    def places(self, number: int) -> list[tuple[int, int]]:
        """Where the contents of a field that may be repeated begin and end."""
        known = self._fields.get(number, ())
        return [(field.begin, field.end) for field in known if field.wire_type == _CONTENT]

    def place(self, number: int) -> tuple[int, int]:
        """Where the content of a field begins and ends; empty without one."""
        for field in reversed(self._fields.get(number, ())):
            if field.wire_type == _CONTENT:
                return field.begin, field.end
        return 0, 0

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
