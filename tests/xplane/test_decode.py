"""Both decoders read the same from any well-formed line as the protobuf runtime."""

from __future__ import annotations

import math
import struct
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import asdict, astuple, fields

from scripts import fuzzed_kernels
from scripts.xspace import XLine
from tests.xplane import wire
from traceview.xplane import decode_reference
from traceview.xplane.columns import Fields, LineColumns, StatColumns, ValueKind

DTYPES = {
    "aggregated": np.uint8,
    "stat_event": np.int32,
    "stat_slot": np.int16,
    "stat_kind": np.uint8,
}
MEMBERS = {
    None: ValueKind.NONE,
    "double_value": ValueKind.DOUBLE,
    "uint64_value": ValueKind.UINT64,
    "int64_value": ValueKind.INT64,
    "str_value": ValueKind.STR,
    "bytes_value": ValueKind.BYTES,
    "ref_value": ValueKind.REF,
}


def same_columns(found: LineColumns | Fields, expected: LineColumns | Fields) -> None:
    for one in fields(expected):
        left, right = getattr(found, one.name), getattr(expected, one.name)
        if one.name in ("fault", "contents", "header"):
            assert left == right
            continue
        assert left.dtype == right.dtype == DTYPES.get(one.name, np.int64), one.name
        assert left.shape == right.shape, one.name
        assert (left == right).all(), one.name


def same_number(found: Any, expected: Any) -> bool:
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(found, float) and math.isnan(found)
    return bool(found == expected)


def stat_value(message: Any) -> Any:
    """What the runtime says the value is, with text by its content and numbers modulo 2**64."""
    member = message.WhichOneof("value")
    value = 0 if member is None else getattr(message, member)
    return value - (1 << 64) if isinstance(value, int) and value >= 1 << 63 else value


def column_value(data: bytes, kind: int, value: int) -> Any:
    if kind == ValueKind.DOUBLE:
        return struct.unpack("<d", struct.pack("<q", value))[0]
    if kind in (ValueKind.STR, ValueKind.BYTES):
        return decode_reference.read_content(data, value)
    return value


def check_against_runtime(columns: LineColumns, data: bytes, message: Any) -> None:
    assert columns.fault is None
    assert columns.metadata_id.tolist() == [event.metadata_id for event in message.events]
    assert columns.duration_ps.tolist() == [event.duration_ps for event in message.events]
    members = [event.WhichOneof("data") for event in message.events]
    assert columns.aggregated.tolist() == [member == "num_occurrences" for member in members]
    assert columns.time.tolist() == [
        0 if member is None else getattr(event, member)
        for event, member in zip(message.events, members, strict=True)
    ]
    wanted = [
        (index, wire.SLOTS[stat.metadata_id], MEMBERS[stat.WhichOneof("value")], stat)
        for index, event in enumerate(message.events)
        for stat in event.stats
        if stat.metadata_id in wire.SLOTS
    ]
    assert columns.stat_event.tolist() == [event for event, _, _, _ in wanted]
    assert columns.stat_slot.tolist() == [slot for _, slot, _, _ in wanted]
    assert columns.stat_kind.tolist() == [kind for _, _, kind, _ in wanted]
    for kind, value, (_, _, _, stat) in zip(
        columns.stat_kind.tolist(), columns.stat_value.tolist(), wanted, strict=True
    ):
        assert same_number(column_value(data, kind, value), stat_value(stat))
    for name, value in asdict(columns.header).items():
        assert value == getattr(message, name), name


def test_lines_are_read_as_the_runtime_reads_them() -> None:
    """But for those that it finds damaged, such as with a length of more than five bytes."""
    read = 0
    for seed in range(1500):
        choice = Random(seed)
        line = fuzzed_kernels.message(choice, fuzzed_kernels.LINE)
        with suppress(DecodeError):
            message = XLine.FromString(line)
            before, after = choice.randbytes(seed % 3), choice.randbytes(seed % 4)
            data = before + line + after
            begin, end = len(before), len(before) + len(line)
            columns = [of.decode_line(data, begin, end, wire.WANTED) for of in wire.DECODERS]
            same_columns(columns[0], columns[-1])
            check_against_runtime(columns[0], data, message)
            read += 1
    assert read > 500


@given(st.integers(0, 9999) | st.binary(max_size=24), st.data())
@example(wire.number(2**29 - 1, 1), None)
@example(wire.varint(2**29 << 3), None)  # one number too far
@example(b"\x08" + b"\xff" * 10, None)
@example(b"\x08" + b"\x80" * 9 + b"\x01", None)
@example(b"\x0a" + b"\xff" * 9 + b"\x01", None)  # a length of 2**64 - 1
@example(b"\x0b", None)
@example(b"\x09" + bytes(7), None)
@example(b"\x0d" + bytes(3), None)
@example(b"\x88\x00\x00", None)  # a padded tag
def test_scanned_fields_cover_the_message(seed: int | bytes, data: st.DataObject | None) -> None:
    message = seed
    if isinstance(message, int):
        message = fuzzed_kernels.message(Random(message), fuzzed_kernels.LINE)
    begin, end = 0, len(message)
    if data is not None:
        end = data.draw(st.integers(0, len(message)))
        begin = data.draw(st.integers(0, end))
    scans = [decoder.scan_fields(message, begin, end) for decoder in wire.DECODERS]
    for other in scans[1:]:
        same_columns(other, scans[0])
    found = scans[0]
    reached = found.fault.offset if found.fault else end
    assert [begin, *found.end.tolist()] == [*found.tag.tolist(), reached]
    for index, (number, wire_type) in enumerate(
        zip(found.number.tolist(), found.wire_type.tolist(), strict=True)
    ):
        tag, first, last = found.tag[index], found.begin[index], found.end[index]
        # The low bits of the tag, whose continuation bit may be set by padding alone.
        assert message[tag] & 0x7F == (number << 3 | wire_type) & 0x7F
        assert first > tag
        if wire_type in (wire.FIXED64, wire.FIXED32):
            assert last - first == (8 if wire_type == wire.FIXED64 else 4)


@given(st.lists(st.binary(max_size=5), max_size=6), st.data())
def test_contents_are_interned_in_order_of_appearance(
    texts: list[bytes], data: st.DataObject
) -> None:
    buffer, offsets = b"", []
    for text in texts:
        offsets.append(len(buffer))
        buffer += wire.content(5, text, data.draw(st.integers(0, 3)))
    order = data.draw(st.lists(st.sampled_from(offsets), max_size=9)) if offsets else []
    wanted = [texts[offsets.index(offset)] for offset in order]
    for decoder in wire.DECODERS:
        contents, index = decoder.intern_contents(buffer, np.array(order, dtype=np.int64))
        assert index.dtype == np.int32
        assert contents == list(dict.fromkeys(wanted))
        assert [contents[i] for i in index.tolist()] == wanted


@pytest.mark.parametrize("decoder", wire.DECODERS)
@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"", 0),
        (b"\x2a\x01a", -1),
        (b"\x2a\x01a", 3),
        (b"\x2a\x01a", 2**40),
        (b"\x2a\x02a", 0),  # cut off
        (b"\x2a", 0),
        (b"\x08\x01", 0),  # a number
        (b"\x2b\x01a", 0),
    ],
)
def test_what_is_no_content_is_refused(decoder: Any, data: bytes, offset: int) -> None:
    with pytest.raises(ValueError, match=f"no length-delimited field at byte {offset}"):
        decoder.intern_contents(data, np.array([offset], dtype=np.int64))


@pytest.mark.parametrize("decoder", wire.DECODERS)
@pytest.mark.parametrize(("begin", "end"), [(-1, 1), (2, 1), (0, 4), (4, 4), (2**40, 2**41)])
def test_bounds_outside_the_buffer_are_refused(decoder: Any, begin: int, end: int) -> None:
    reason = r"does not lie in a buffer of 3 bytes"
    with pytest.raises(ValueError, match=reason):
        decoder.scan_fields(b"abc", begin, end)
    with pytest.raises(ValueError, match=reason):
        decoder.decode_line(b"abc", begin, end, wire.WANTED)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"\x1a\x05ab", (3, 2, 5)),
        (b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", (3, 11, 2**64 - 1)),
        (b"\x1a", None),
        (b"\x1a\x85", None),
        (b"\x18\x05", None),
        (b"\x1a" + b"\x80" * 10 + b"\x01", None),
    ],
)
def test_a_cut_field_tells_what_it_was(head: bytes, expected: tuple[int, int, int] | None) -> None:
    cut = decode_reference.read_cut_field(head)
    assert (cut and astuple(cut)) == expected


_stats = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.integers(0, 3),
        st.sampled_from([int(kind) for kind in ValueKind]),
        st.integers(-(2**62), 2**62),
    ),
    max_size=9,
)


def _columns_of(stats: list[tuple[int, int, int, int]]) -> StatColumns:
    event, slot, kind, value = zip(*stats, strict=True) if stats else ((), (), (), ())
    return (
        np.array(event, dtype=np.int32),
        np.array(slot, dtype=np.int16),
        np.array(kind, dtype=np.uint8),
        np.array(value, dtype=np.int64),
    )


@pytest.mark.parametrize("decoder", wire.DECODERS)
@given(st.lists(st.tuples(_stats, st.integers(0, 99), st.integers(0, 99)), max_size=4))
@example([([(0, 2, 5, 7), (1, 0, 4, 9), (1, 2, 6, 8)], 3, 10), ([(0, 2, 7, 1)], 5, 20)])
@example([])
def test_stats_stand_by_slot_in_the_order_of_the_file(
    decoder: Any, lines: list[tuple[list[tuple[int, int, int, int]], int, int]]
) -> None:
    found = decoder.stats_by_slot(
        [_columns_of(stats) for stats, _, _ in lines],
        [first for _, first, _ in lines],
        [first for _, _, first in lines],
        4,
    )
    texts = (ValueKind.STR, ValueKind.BYTES)
    for slot in range(4):
        expected = [
            (event + first_event, kind, value + (first_text if kind in texts else 0))
            for stats, first_event, first_text in lines
            for event, of, kind, value in stats
            if of == slot
        ]
        columns = found.of_slot(slot)
        assert [column.dtype for column in columns] == [np.int64, np.uint8, np.int64]
        assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
    assert found.bounds[-1] == found.event.size


def test_stats_of_events_that_are_left_out_go_with_them() -> None:
    lines = [_columns_of([(0, 1, 4, 10), (1, 0, 4, 11), (2, 1, 4, 12), (2, 0, 4, 13)])]
    found = decode_reference.stats_by_slot(lines, [0], [0], 3)
    kept = found.of_events(np.array([False, True, True]))
    of_slots = [[column.tolist() for column in kept.of_slot(slot)] for slot in range(3)]
    assert of_slots == [[[0, 1], [4, 4], [11, 13]], [[1], [4], [12]], [[], [], []]]
