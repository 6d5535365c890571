"""Decodes lines and the metadata of planes slowly and obviously, in plain Python, with the same result as `decode`.

It replaces the compiled decoder where the installation had no compiler, and the tests compare the two. It follows
the rules of the protobuf runtime: of several fields of a kind the last one counts, of several entries of a map with
one key the last one, messages that occur twice where one may stand add up, and a known number with another wire
type is an unknown field.

It differs from the runtime in two ways, in metadata as in events. A group is damage, also one that is closed: no writer
of traces has ever used groups, so one shows that the bytes are something else. A tag or a length may be padded to ten
bytes, as any number may; the runtime takes five.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.xplane.columns import (
    FAULT_REASONS,
    UNWANTED,
    Buffer,
    EventMetadata,
    Fault,
    Fields,
    LineColumns,
    LineHeader,
    PlaneHeader,
    Stat,
    StatColumns,
    StatsBySlot,
    StatValue,
    ValueKind,
    WantedStats,
    joined,
)

_T = TypeVar("_T")

_MASK = (1 << 64) - 1
_MAX_FIELD_NUMBER = 0x1FFFFFFF
_BAD_NUMBER, _PAST_END, _BAD_FIELD = 1, 2, 3
_VARINT, _FIXED64, _CONTENT, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZE = {_FIXED64: 8, _FIXED32: 4}


class Field(NamedTuple):
    """A field of a message: `tag`, offset of its tag; `begin`, `end` of its payload; `value` of a varint."""

    number: int
    wire_type: int
    tag: int
    begin: int
    end: int
    value: int


class DamageError(Exception):
    """Bytes that are no message; `fault` says where and why."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault

    def moved(self, offset: int) -> DamageError:
        """The same, of bytes that begin at `offset` of the file."""
        return DamageError(Fault(self.fault.offset + offset, self.fault.reason))


def _damage(offset: int, code: int) -> DamageError:
    return DamageError(Fault(offset, FAULT_REASONS[code]))


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def read_varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    """The number at `data[at:end]`, and where it ends."""
    if at < end and data[at] < 0x80:
        return data[at], at + 1
    result = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise _damage(at, _BAD_NUMBER)
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & _MASK, at
    raise _damage(at, _BAD_NUMBER)


def _read_field(data: Buffer, start: int, end: int) -> Field:
    tag, at = read_varint(data, start, end)
    number, wire_type = tag >> 3, tag & 7
    if not 0 < number <= _MAX_FIELD_NUMBER:
        raise _damage(at, _BAD_FIELD)
    if wire_type == _VARINT:
        value, after = read_varint(data, at, end)
        return Field(number, wire_type, start, at, after, value)
    if wire_type == _CONTENT:
        size, at = read_varint(data, at, end)
    elif wire_type in _FIXED_SIZE:
        size = _FIXED_SIZE[wire_type]
    else:
        raise _damage(at, _BAD_FIELD)
    if size > end - at:
        raise _damage(at, _PAST_END)
    return Field(number, wire_type, start, at, at + size, 0)


def read_fields(data: Buffer, at: int, end: int) -> Iterator[Field]:
    """The fields of the message at `data[at:end]`, one by one; raises `DamageError` where they stop being any."""
    while at < end:
        field = _read_field(data, at, end)
        yield field
        at = field.end


def scan_fields(data: Buffer, begin: int, end: int) -> Fields:
    """The fields of the message at `data[begin:end]`."""
    _check_bounds(data, begin, end)
    rows: list[tuple[int, int, int, int, int]] = []
    fault = None
    try:
        rows.extend(field[:5] for field in read_fields(data, begin, end))
    except DamageError as stop:
        fault = Fault(rows[-1][4] if rows else begin, stop.fault.reason)
    table = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    return Fields(table[0], table[1], table[2], table[3], table[4], fault)


def _check_bounds(data: Buffer, begin: int, end: int) -> None:
    if not 0 <= begin <= end <= len(data):
        raise ValueError(f"[{begin}, {end}) does not lie in a buffer of {len(data)} bytes")


def read_stat(data: Buffer, begin: int, end: int) -> tuple[int, ValueKind, int]:
    """Stat id, kind and value of the XStat at `data[begin:end]`; the value is encoded as in `LineColumns`."""
    stat_id, kind, value = 0, ValueKind.NONE, 0
    for number, wire_type, tag, at, _, raw in read_fields(data, begin, end):
        if wire_type == _VARINT and number == 1:
            stat_id = _signed(raw)
        elif wire_type == _VARINT and number in (3, 4, 7):
            kind, value = ValueKind(number), _signed(raw)
        elif wire_type == _FIXED64 and number == 2:
            bits = int.from_bytes(data[at : at + 8], "little")
            kind, value = ValueKind.DOUBLE, _signed(bits)
        elif wire_type == _CONTENT and number in (5, 6):
            kind, value = ValueKind(number), tag
    return stat_id, kind, value


def _stat(data: Buffer, begin: int, end: int, stat_names: dict[int, bytes]) -> Stat:
    stat_id, kind, encoded = read_stat(data, begin, end)
    value: StatValue = encoded
    if kind is ValueKind.DOUBLE:
        value = float(struct.unpack("<d", struct.pack("<q", encoded))[0])
    elif kind is ValueKind.UINT64:
        value = encoded & _MASK
    elif kind in (ValueKind.STR, ValueKind.BYTES):
        value = read_content(data, encoded)
    elif kind is ValueKind.REF:
        value = stat_names.get(encoded, b"")
    return Stat(stat_names.get(stat_id, b""), value)


def read_plane(data: Buffer) -> PlaneHeader:
    """The plane with the fields in `data`, its lines aside. A field that is damaged inside is left out as a whole.

    A ref and the stat id that it names compare modulo 2**64.
    """
    fields = scan_fields(data, 0, len(data))
    name, is_damaged = b"", fields.fault is not None
    bounds: dict[int, list[tuple[int, int]]] = {4: [], 5: [], 6: []}
    columns = (fields.number, fields.wire_type, fields.begin, fields.end)
    for number, wire_type, begin, end in zip(*(column.tolist() for column in columns), strict=True):
        if wire_type == _CONTENT and number == 2:
            name = bytes(data[begin:end])
        elif wire_type == _CONTENT and number in bounds:
            bounds[number].append((begin, end))

    def readable(number: int, read: Callable[[int, int], _T]) -> Iterator[_T]:
        nonlocal is_damaged
        for begin, end in bounds[number]:
            try:
                yield read(begin, end)
            except DamageError:
                is_damaged = True

    # Stats are named by the entries of this map, wherever it stands.
    stat_names = {
        key: metadata.name
        for key, metadata in readable(5, lambda begin, end: _entry(data, begin, end, None))
    }
    event_metadata = dict(readable(4, lambda begin, end: _entry(data, begin, end, stat_names)))
    stats = tuple(readable(6, lambda begin, end: _stat(data, begin, end, stat_names)))
    return PlaneHeader(name, event_metadata, stat_names, stats, is_damaged)


def _entry(
    data: Buffer, begin: int, end: int, stat_names: dict[int, bytes] | None
) -> tuple[int, EventMetadata]:
    """Key and value of an entry of a map of metadata; without `stat_names` the value has only a name."""
    key, name, display_name = 0, b"", b""
    stats: list[Stat] = []
    for number, wire_type, _, at, after, raw in read_fields(data, begin, end):
        if wire_type == _VARINT and number == 1:
            key = _signed(raw)
        if wire_type != _CONTENT or number != 2:
            continue
        for inner, its_type, _, first, last, _ in read_fields(data, at, after):
            if its_type != _CONTENT:
                continue
            if inner == 2:
                name = bytes(data[first:last])
            elif inner == 4 and stat_names is not None:
                display_name = bytes(data[first:last])
            elif inner == 5 and stat_names is not None:
                stats.append(_stat(data, first, last, stat_names))
    return key, EventMetadata(name, display_name, tuple(stats))


def read_content(data: Buffer, offset: int) -> bytes:
    """The content of the length-delimited field whose tag is at `offset`; `ValueError` if there is none."""
    with suppress(DamageError):
        # A negative index would count from the end of the data.
        start = offset if offset >= 0 else len(data)
        _, wire_type, _, begin, end, _ = _read_field(data, start, len(data))
        if wire_type == _CONTENT:
            return bytes(data[begin:end])
    raise ValueError(f"no length-delimited field at byte {offset}")


class CutField(Struct, frozen=True):
    """A length-delimited field, of which only the beginning is there: where its content begins, and the size of that."""

    number: int
    begin: int
    size: int


def read_cut_field(head: bytes) -> CutField | None:
    """The field that begins so, if only its content is cut off; None if it is damaged in another way."""
    with suppress(DamageError):
        tag, at = read_varint(head, 0, len(head))
        size, begin = read_varint(head, at, len(head))
        if tag & 7 == _CONTENT:
            return CutField(tag >> 3, begin, size)
    return None


def _slot_of(wanted: WantedStats, stat_id: int) -> int:
    if 0 <= stat_id < wanted.dense.size:
        return int(wanted.dense[stat_id])
    place = np.flatnonzero(wanted.sparse_id == stat_id)
    return int(wanted.sparse_slot[place[0]]) if place.size else UNWANTED


def decode_line(data: Buffer, begin: int, end: int, wanted: WantedStats) -> LineColumns:
    """The events of the XLine at `data[begin:end]`, up to the first unreadable one."""
    _check_bounds(data, begin, end)
    events: list[tuple[int, int, int, int]] = []
    stats: list[tuple[int, int, int, int]] = []
    line_id, name, timestamp_ns = 0, b"", 0
    fault = None
    try:
        for number, wire_type, _, first, last, raw in read_fields(data, begin, end):
            if wire_type == _CONTENT and number == 4:
                event, its_stats = _decode_event(data, first, last, wanted)
                stats += [(len(events), *stat) for stat in its_stats]
                events.append(event)
            elif wire_type == _CONTENT and number == 2:
                name = bytes(data[first:last])
            elif wire_type == _VARINT and number == 1:
                line_id = _signed(raw)
            elif wire_type == _VARINT and number == 3:
                timestamp_ns = _signed(raw)
    except DamageError as stop:
        fault = stop.fault
    event_rows = np.array(events, dtype=np.int64).reshape(-1, 4).T
    stat_rows = np.array(stats, dtype=np.int64).reshape(-1, 4).T
    return LineColumns(
        metadata_id=event_rows[0],
        time=event_rows[1],
        duration_ps=event_rows[2],
        aggregated=event_rows[3].astype(np.uint8),
        stat_event=stat_rows[0].astype(np.int32),
        stat_slot=stat_rows[1].astype(np.int16),
        stat_kind=stat_rows[2].astype(np.uint8),
        stat_value=stat_rows[3],
        header=LineHeader(line_id, name, timestamp_ns),
        fault=fault,
    )


def _decode_event(
    data: Buffer, begin: int, end: int, wanted: WantedStats
) -> tuple[tuple[int, int, int, int], list[tuple[int, int, int]]]:
    metadata_id = time = duration = aggregated = 0
    stats = []
    for number, wire_type, _, first, last, raw in read_fields(data, begin, end):
        if wire_type == _VARINT and number == 1:
            metadata_id = _signed(raw)
        elif wire_type == _VARINT and number == 3:
            duration = _signed(raw)
        elif wire_type == _VARINT and number in (2, 5):
            time, aggregated = _signed(raw), int(number == 5)
        elif wire_type == _CONTENT and number == 4:
            stat_id, kind, value = read_stat(data, first, last)
            slot = _slot_of(wanted, stat_id)
            if slot != UNWANTED:
                stats.append((slot, int(kind), value))
    return (metadata_id, time, duration, aggregated), stats


def intern_contents(
    data: Buffer, offsets: npt.NDArray[np.int64]
) -> tuple[list[bytes], npt.NDArray[np.int32]]:
    """The distinct length-delimited contents at `offsets`: their bytes, and the index into them for each."""
    seen: dict[bytes, int] = {}
    indices = np.array(
        [seen.setdefault(read_content(data, int(offset)), len(seen)) for offset in offsets],
        dtype=np.int32,
    )
    return list(seen), indices


def stats_by_slot(
    lines: Sequence[StatColumns],
    first_event: Sequence[int],
    first_text: Sequence[int],
    slots: int,
) -> StatsBySlot:
    """The stats of several lines by slot, those of a slot in the order of the file.

    `lines`: of each line `stat_event`, `stat_slot`, `stat_kind` and `stat_value`. `first_event`, `first_text`: what is added
    to the events and to the texts of each. Raises `ValueError` for a slot that is none of `slots`.
    """
    event = joined(
        [line[0].astype(np.int64) + first for line, first in zip(lines, first_event, strict=True)],
        np.int64,
    )
    slot = joined([line[1] for line in lines], np.int16)
    kind = joined([line[2] for line in lines], np.uint8)
    value = joined(
        [
            line[3] + first * ((line[2] == ValueKind.STR) | (line[2] == ValueKind.BYTES))
            for line, first in zip(lines, first_text, strict=True)
        ],
        np.int64,
    )
    if slot.size and not 0 <= slot.min() <= slot.max() < slots:
        raise ValueError(f"a slot is not one of {slots}")
    order = np.argsort(slot, kind="stable")
    bounds = np.searchsorted(slot[order], np.arange(slots + 1)).astype(np.int64, copy=False)
    return StatsBySlot(event[order], kind[order], value[order], bounds)
