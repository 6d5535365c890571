"""Decodes the events of an XLine slowly and obviously, in plain Python, with the same result as `decode`.

It replaces the compiled decoder where the installation had no compiler, and the tests compare the two. It follows
the rules of the protobuf runtime: of several fields of a kind the last one counts, and a known number with another
wire type is an unknown field.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from traceview.xplane.columns import (
    FAULT_REASONS,
    UNWANTED,
    Buffer,
    Fault,
    Fields,
    LineColumns,
    StatColumns,
    StatsBySlot,
    ValueKind,
    WantedStats,
    joined,
)

_MASK = (1 << 64) - 1
_MAX_FIELD_NUMBER = 0x1FFFFFFF
_BAD_NUMBER, _PAST_END, _BAD_FIELD = 1, 2, 3
_VARINT, _FIXED64, _CONTENT, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZE = {_FIXED64: 8, _FIXED32: 4}

# number, wire type, offset of the tag, begin and end of the payload, value of a varint
_Field = tuple[int, int, int, int, int, int]


class _DamageError(Exception):
    def __init__(self, offset: int, code: int) -> None:
        super().__init__(offset, code)
        self.fault = Fault(offset, FAULT_REASONS[code])


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _read_varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    if at < end and data[at] < 0x80:
        return data[at], at + 1
    result = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise _DamageError(at, _BAD_NUMBER)
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & _MASK, at
    raise _DamageError(at, _BAD_NUMBER)


def _read_field(data: Buffer, start: int, end: int) -> _Field:
    tag, at = _read_varint(data, start, end)
    number, wire_type = tag >> 3, tag & 7
    if not 0 < number <= _MAX_FIELD_NUMBER:
        raise _DamageError(at, _BAD_FIELD)
    if wire_type == _VARINT:
        value, after = _read_varint(data, at, end)
        return number, wire_type, start, at, after, value
    if wire_type == _CONTENT:
        size, at = _read_varint(data, at, end)
    elif wire_type in _FIXED_SIZE:
        size = _FIXED_SIZE[wire_type]
    else:
        raise _DamageError(at, _BAD_FIELD)
    if size > end - at:
        raise _DamageError(at, _PAST_END)
    return number, wire_type, start, at, at + size, 0


def _fields(data: Buffer, at: int, end: int) -> list[_Field]:
    fields = []
    while at < end:
        field = _read_field(data, at, end)
        fields.append(field)
        at = field[4]
    return fields


def scan_fields(data: Buffer, begin: int, end: int, most: int | None = None) -> Fields:
    """The fields of the message at `data[begin:end]`, only the first `most` if that is given."""
    _check_bounds(data, begin, end)
    rows: list[tuple[int, int, int, int, int]] = []
    fault = None
    at = begin
    while at < end and len(rows) != most:
        try:
            field = _read_field(data, at, end)
        except _DamageError as stop:
            fault = Fault(at, stop.fault.reason)
            break
        rows.append(field[:5])
        at = field[4]
    table = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    return Fields(table[0], table[1], table[2], table[3], table[4], fault)


def _check_bounds(data: Buffer, begin: int, end: int) -> None:
    if not 0 <= begin <= end <= len(data):
        raise ValueError(f"[{begin}, {end}) does not lie in a buffer of {len(data)} bytes")


def read_stat(data: Buffer, begin: int, end: int) -> tuple[int, ValueKind, int]:
    """Stat id, kind and value of the XStat at `data[begin:end]`; the value is encoded as in `LineColumns`."""
    stat_id, kind, value = 0, ValueKind.NONE, 0
    for number, wire_type, tag, at, _, raw in _fields(data, begin, end):
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


def read_stats_of_event(data: Buffer, position: int) -> list[tuple[int, ValueKind, int]]:
    """All stats of the event whose tag is at `position`, as `read_stat` returns them."""
    _, _, _, begin, end, _ = _read_field(data, position, len(data))
    return [
        read_stat(data, at, after)
        for number, wire_type, _, at, after, _ in _fields(data, begin, end)
        if number == 4 and wire_type == _CONTENT
    ]


def read_content(data: Buffer, offset: int) -> bytes:
    """The content of the length-delimited field whose tag is at `offset`; `ValueError` if there is none."""
    with suppress(_DamageError):
        # A negative index would count from the end of the data.
        start = offset if offset >= 0 else len(data)
        _, wire_type, _, begin, end, _ = _read_field(data, start, len(data))
        if wire_type == _CONTENT:
            return bytes(data[begin:end])
    raise ValueError(f"no length-delimited field at byte {offset}")


class CutField(NamedTuple):
    """A length-delimited field whose content reaches past the end of the message around it."""

    number: int
    begin: int
    size: int


def read_cut_field(data: Buffer, offset: int, end: int) -> CutField | None:
    """The field at `offset` if `end` cuts off only its content; None if it is damaged in another way."""
    try:
        tag, at = _read_varint(data, offset, end)
        size, begin = _read_varint(data, at, end)
    except _DamageError:
        return None
    return CutField(tag >> 3, begin, size) if tag & 7 == _CONTENT else None


def _slot_of(wanted: WantedStats, stat_id: int) -> int:
    if 0 <= stat_id < wanted.dense.size:
        return int(wanted.dense[stat_id])
    place = np.flatnonzero(wanted.sparse_id == stat_id)
    return int(wanted.sparse_slot[place[0]]) if place.size else UNWANTED


def decode_line(data: Buffer, begin: int, end: int, wanted: WantedStats) -> LineColumns:
    """The events of the XLine at `data[begin:end]`, up to the first unreadable one."""
    _check_bounds(data, begin, end)
    events: list[tuple[int, int, int, int, int]] = []
    stats: list[tuple[int, int, int, int]] = []
    headers: list[tuple[int, int]] = []
    fault = None
    at = begin
    while at < end:
        try:
            number, wire_type, tag, first, at, _ = _read_field(data, at, end)
            if number == 4 and wire_type == _CONTENT:
                event, its_stats = _decode_event(data, tag, first, at, wanted)
                stats += [(len(events), *stat) for stat in its_stats]
                events.append(event)
            else:
                headers.append((tag, at))
        except _DamageError as stop:
            fault = stop.fault
            break
    event_rows = np.array(events, dtype=np.int64).reshape(-1, 5).T
    stat_rows = np.array(stats, dtype=np.int64).reshape(-1, 4).T
    return LineColumns(
        metadata_id=event_rows[0],
        time=event_rows[1],
        duration_ps=event_rows[2],
        position=event_rows[3],
        aggregated=event_rows[4].astype(np.uint8),
        stat_event=stat_rows[0].astype(np.int32),
        stat_slot=stat_rows[1].astype(np.int16),
        stat_kind=stat_rows[2].astype(np.uint8),
        stat_value=stat_rows[3],
        header=np.array(headers, dtype=np.int64).reshape(-1, 2),
        fault=fault,
    )


def _decode_event(
    data: Buffer, tag: int, begin: int, end: int, wanted: WantedStats
) -> tuple[tuple[int, int, int, int, int], list[tuple[int, int, int]]]:
    metadata_id = time = duration = aggregated = 0
    stats = []
    at = begin
    while at < end:
        number, wire_type, _, first, at, raw = _read_field(data, at, end)
        if wire_type == _VARINT:
            if number == 1:
                metadata_id = _signed(raw)
            elif number == 3:
                duration = _signed(raw)
            elif number in (2, 5):
                time, aggregated = _signed(raw), int(number == 5)
        elif number == 4 and wire_type == _CONTENT:
            stat_id, kind, value = read_stat(data, first, at)
            slot = _slot_of(wanted, stat_id)
            if slot != UNWANTED:
                stats.append((slot, int(kind), value))
    return (metadata_id, time, duration, tag, aggregated), stats


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
