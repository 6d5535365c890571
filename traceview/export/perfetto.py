"""Writes a scene as a protobuf trace of Perfetto, which keeps nanoseconds, and each text once.

Field numbers are those of Perfetto's `perfetto_trace.proto` (release 59). Every event is a packet of one sequence: a
slice begins with one and ends with another. Packets are written track by track; Perfetto sorts them by time and keeps
the order of those of equal times, so that an end comes before a beginning, unless the slice has no length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.intervals import BoolArray, Int64Array
from traceview.document.sanitize import sanitize
from traceview.export.draw import Scene, Slices
from traceview.trace.columns import NONE
from traceview.trace.device.table import Column

# Messages: the bytes of many stand side by side in a matrix, one row each, with a mask of those that are used; taking the used
# ones row by row gives the messages one after another (protobuf.dev, "Encoding").

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2


@dataclass(frozen=True, eq=False)
class Rows:
    """Bytes of n messages, in parts that stand beside each other: each uint8 `[n, width]`, with which of them are written.

    None, or what is broadcast to that shape: all of them, or whole rows. `lengths`: bytes of each row, int64 `[n]`; kept,
    because counting what is written takes longer than all else.
    """

    parts: tuple[tuple[npt.NDArray[np.uint8], BoolArray | None], ...]
    lengths: Int64Array

    def where(self, wanted: BoolArray) -> Rows:
        """The same for the `wanted` rows, nothing for others."""
        column = wanted[:, np.newaxis]
        parts = ((data, column if used is None else used & column) for data, used in self.parts)
        return Rows(tuple(parts), np.where(wanted, self.lengths, 0))

    def content(self) -> bytes:
        """The bytes of all rows, one after another."""
        shape = self.lengths.size, sum(data.shape[1] for data, _ in self.parts)
        every, is_written = np.empty(shape, dtype=np.uint8), np.empty(shape, dtype=np.bool_)
        end = 0
        for data, used in self.parts:
            begin, end = end, end + data.shape[1]
            every[:, begin:end] = data
            is_written[:, begin:end] = True if used is None else used
        return every[is_written].tobytes()


def constant(count: int, content: bytes) -> Rows:
    """The same bytes in every row."""
    data = np.broadcast_to(np.frombuffer(content, dtype=np.uint8), (count, len(content)))
    return Rows(((data, None),), np.full(count, len(content), dtype=np.int64))


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
    return Rows(((data, used if widest > 1 else None),), lengths)


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
    value = Rows(((data, None),), np.full(values.size, 8, dtype=np.int64))
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


# Fields by message, and values of some

_PACKET: Final = 1
# TracePacket
_TIMESTAMP, _SEQUENCE_ID, _TRACK_EVENT = 8, 10, 11
_INTERNED_DATA, _SEQUENCE_FLAGS, _TRACK_DESCRIPTOR = 12, 13, 60
# TrackEvent
_CATEGORY_IIDS, _DEBUG_ANNOTATIONS, _TYPE = 3, 4, 9
_NAME_IID, _TRACK_UUID, _FLOW_IDS = 10, 11, 47
# DebugAnnotation
_ANNOTATION_NAME_IID, _INT_VALUE, _STRING_VALUE_IID = 1, 4, 17
# InternedData, and its entries
_EVENT_CATEGORIES, _EVENT_NAMES, _ANNOTATION_NAMES, _ANNOTATION_STRINGS = 1, 2, 3, 29
_IID, _INTERNED = 1, 2
# TrackDescriptor; ProcessDescriptor and ThreadDescriptor
_UUID, _TRACK_NAME, _PROCESS, _THREAD = 1, 2, 3, 4
_PARENT_UUID, _CHILD_ORDERING, _SIBLING_ORDER_RANK = 5, 11, 12
_PID, _TID, _SORT_INDEX, _THREAD_NAME, _PROCESS_NAME = 1, 2, 3, 5, 6

_SLICE_BEGIN, _SLICE_END = 1, 2
_STATE_CLEARED, _NEEDS_STATE = 1, 2
_EXPLICIT: Final = 3

_SEQUENCE: Final = number(_SEQUENCE_ID, 1)
_EVENT_HEAD: Final = _SEQUENCE + number(_SEQUENCE_FLAGS, _NEEDS_STATE)
_ROWS_AT_ONCE: Final = 1 << 15


def written(scene: Scene) -> Iterator[bytes]:
    """The trace in parts, to be written one after another."""
    yield _packet(_SEQUENCE + number(_SEQUENCE_FLAGS, _STATE_CLEARED | _NEEDS_STATE))
    interned = _Interned()
    uuid = 0
    tid = len(scene.processes)
    for pid, process in enumerate(scene.processes, start=1):
        uuid += 1
        parent = uuid
        info = (_PID, pid), (_SORT_INDEX, pid), (_PROCESS_NAME, sanitize(process.name))
        yield _descriptor(uuid, (_PROCESS, message(*info)), (_CHILD_ORDERING, _EXPLICIT))
        for rank, track in enumerate(process.tracks):
            uuid += 1
            name = sanitize(track.name)
            if track.is_thread:
                tid += 1
                thread = (_PID, pid), (_TID, tid), (_SORT_INDEX, rank), (_THREAD_NAME, name)
                yield _descriptor(uuid, (_THREAD, message(*thread)))
            else:
                own = (_TRACK_NAME, name), (_PARENT_UUID, parent), (_SIBLING_ORDER_RANK, rank)
                yield _descriptor(uuid, *own)
            yield from _slices(scene, uuid, track.slices, interned)


def _packet(content: bytes) -> bytes:
    return text(_PACKET, content)


def _descriptor(uuid: int, *fields: tuple[int, int | str | bytes]) -> bytes:
    return _packet(_SEQUENCE + text(_TRACK_DESCRIPTOR, message((_UUID, uuid), *fields)))


def _events(time_ns: Int64Array, event: Rows) -> bytes:
    packet = joined(
        constant(time_ns.size, _EVENT_HEAD),
        numbers(_TIMESTAMP, time_ns),
        messages(_TRACK_EVENT, event),
    )
    return messages(_PACKET, packet).content()


class _Interned:
    """Which texts Perfetto knows already: names of events, categories, names of arguments and texts in them."""

    def __init__(self) -> None:
        self._known: dict[int, dict[str, int]] = defaultdict(dict)
        self._fresh: list[bytes] = []

    def iid(self, field: int, content: str) -> int:
        """The number of a text, from 1 on."""
        known = self._known[field]
        if content not in known:
            known[content] = len(known) + 1
            entry = message((_IID, known[content]), (_INTERNED, sanitize(content)))
            self._fresh.append(_packet(_EVENT_HEAD + text(_INTERNED_DATA, text(field, entry))))
        return known[content]

    def iids(self, field: int, column: Column) -> Int64Array:
        """The numbers of the texts of a category, 0 where there is none."""
        every = [*(self.iid(field, label) for label in column.labels), 0]
        iids: Int64Array = np.array(every, dtype=np.int64)[column.values]
        return iids

    def fresh(self) -> bytes:
        """Packets that declare what was asked for since the last call and not before."""
        packets = b"".join(self._fresh)
        self._fresh.clear()
        return packets


class _Argument(Struct, frozen=True, eq=False):
    """A property of slices: the number of its name, the field of its values, and which slices have it."""

    iid: int
    field: int
    values: Int64Array
    known: BoolArray


def _slices(scene: Scene, uuid: int, slices: Slices, interned: _Interned) -> Iterator[bytes]:
    name = interned.iids(_EVENT_NAMES, slices.name)
    category = interned.iids(_EVENT_CATEGORIES, slices.category)
    arguments = []
    for column in (*slices.arguments, *slices.exact):
        field, values = _INT_VALUE, column.values.astype(np.int64)
        known = np.ones(values.size, np.bool_) if column.missing is None else ~column.missing
        if column.kind == "category":
            field, values = _STRING_VALUE_IID, interned.iids(_ANNOTATION_STRINGS, column)
            known = values > 0
        if known.any():
            iid = interned.iid(_ANNOTATION_NAMES, column.name)
            arguments.append(_Argument(iid, field, values, known))
    yield interned.fresh()
    start, end = scene.nanoseconds(slices.start_ps), scene.nanoseconds(slices.end_ps)
    index, is_begin = begins_and_ends(start, end)
    time = np.where(is_begin, start[index], end[index])

    for at in range(0, index.size, _ROWS_AT_ONCE):
        rows = slice(at, at + _ROWS_AT_ONCE)
        chosen, begins = index[rows], is_begin[rows]
        parts = [
            numbers(_TYPE, np.where(begins, _SLICE_BEGIN, _SLICE_END)),
            constant(chosen.size, number(_TRACK_UUID, uuid)),
            numbers(_NAME_IID, name[chosen]).where(begins),
            numbers(_CATEGORY_IIDS, category[chosen]).where(begins),
            *(_annotation(argument, chosen, begins) for argument in arguments),
        ]
        if slices.launch is not None:
            # An arrow leads from each slice of a flow to the next one; 0 is no flow.
            flow = slices.launch[chosen]
            parts.append(fixed64(_FLOW_IDS, flow + 1).where(begins & (flow != NONE)))
        yield _events(time[rows], joined(*parts))


def begins_and_ends(start: Int64Array, end: Int64Array) -> tuple[Int64Array, BoolArray]:
    """The order in which nested slices begin and end, those in drawing order: index of the slice, and whether it begins.

    Both `[2n]`. What follows a slice without being in it begins no earlier than that ends.
    """
    count = start.size
    index = np.arange(count, dtype=np.int64)
    follower = np.maximum(np.searchsorted(start, end, side="left"), index + 1)
    # Of those that end before the same beginning, the innermost was begun last.
    ending = np.lexsort((-index, follower))
    ended_before = np.searchsorted(follower[ending], index, side="right")
    order = np.empty(2 * count, dtype=np.int64)
    is_begin = np.zeros(2 * count, dtype=np.bool_)
    begins_at = index + ended_before
    order[begins_at] = index
    is_begin[begins_at] = True
    order[follower[ending] + index] = ending
    return order, is_begin


def _annotation(argument: _Argument, chosen: Int64Array, begins: BoolArray) -> Rows:
    known = argument.known[chosen]
    value = numbers(argument.field, np.where(known, argument.values[chosen], 0))
    name = constant(begins.size, number(_ANNOTATION_NAME_IID, argument.iid))
    return messages(_DEBUG_ANNOTATIONS, joined(name, value)).where(begins & known)
