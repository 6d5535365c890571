"""Bytes on the wire as a writer may lay them out, and as no writer would: input for the tests of the decoders."""

from __future__ import annotations

import math
import struct
from typing import Any

from hypothesis import strategies as st

from scripts.fuzzed_kernels import SLOTS, WANTED, varint
from traceview.xplane import decode_reference
from traceview.xplane.message import DECODER

__all__ = ("SLOTS", "WANTED", "varint")

VARINT, FIXED64, CONTENT, FIXED32 = 0, 1, 2, 5
# Both decoders where there are two.
DECODERS: list[Any] = list(dict.fromkeys((decode_reference, DECODER)))
HUGE_STAT_ID = 2**40


def content(number: int, payload: bytes, padding: int = 0) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | CONTENT) + varint(len(payload), padding) + payload


def number(field: int, value: int, padding: int = 0) -> bytes:
    """A varint field."""
    return varint(field << 3 | VARINT) + varint(value, padding)


_int64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)])
_uint64 = st.integers(0, 2**64 - 1) | st.sampled_from([2**63, 2**64 - 1])
_padding = st.sampled_from([0, 0, 0, 1, 4, 9])
_text = st.binary(max_size=6) | st.sampled_from([b"\xff\xfe", "ü".encode(), b"x" * 200])
_fixed64 = st.binary(min_size=8, max_size=8) | st.sampled_from(
    [struct.pack("<d", value) for value in (0.0, -0.0, 1.5, math.inf, -math.inf, math.nan)]
)


def _tagged(number_: int, wire_type: int, value: bytes) -> st.SearchStrategy[bytes]:
    # The protobuf runtime takes tags of five bytes at most.
    return st.sampled_from([0, 0, 0, 1, 2]).map(
        lambda padding: _short_tag(number_ << 3 | wire_type, padding) + value
    )


def _short_tag(tag: int, padding: int) -> bytes:
    plain = varint(tag)
    return varint(tag, min(padding, 5 - len(plain)))


def field_of(number_: int, wire_type: int) -> st.SearchStrategy[bytes]:
    """A field with any value of its wire type."""
    if wire_type == VARINT:
        values = st.builds(varint, _int64 | _uint64, _padding)
    elif wire_type == CONTENT:
        values = st.builds(
            lambda payload, padding: varint(len(payload), min(padding, 3)) + payload,
            _text,
            _padding,
        )
    else:
        values = _fixed64 if wire_type == FIXED64 else st.binary(min_size=4, max_size=4)
    return values.flatmap(lambda value: _tagged(number_, wire_type, value))


_WIRE_TYPES = (VARINT, FIXED64, CONTENT, FIXED32)


def _other_fields(known: dict[int, int], messages: tuple[int, ...]) -> st.SearchStrategy[bytes]:
    """Unknown numbers with every wire type, and known ones with a wrong one."""
    unknown = st.tuples(
        st.sampled_from([8, 15, 16, 2047, 2048, 2**29 - 1]), st.sampled_from(_WIRE_TYPES)
    )
    wrong = st.tuples(st.sampled_from([*known, *messages]), st.sampled_from(_WIRE_TYPES)).filter(
        lambda pair: pair[1] != known.get(pair[0], CONTENT)
    )
    return st.one_of(unknown, wrong).flatmap(lambda pair: field_of(*pair))


def _message(
    known: dict[int, int], parts: dict[int, st.SearchStrategy[bytes]], max_size: int
) -> st.SearchStrategy[bytes]:
    """Fields in any order and number: `known` by wire type, `parts` by what their content is."""
    fields = [field_of(number_, wire_type) for number_, wire_type in known.items()]
    fields += [
        st.builds(
            lambda payload, padding, n=number_: content(n, payload, min(padding, 3)), part, _padding
        )
        for number_, part in parts.items()
    ]
    fields.append(_other_fields(known, tuple(parts)))
    return st.lists(st.one_of(fields), max_size=max_size).map(b"".join)


_stat_id = st.sampled_from([*SLOTS, 4, 299, -6, HUGE_STAT_ID + 1]).map(
    lambda stat_id: number(1, stat_id)
)
_STAT_FIELDS = {1: VARINT, 2: FIXED64, 3: VARINT, 4: VARINT, 5: CONTENT, 6: CONTENT, 7: VARINT}
stats = st.builds(
    lambda head, rest, tail: head + rest + tail,
    _stat_id | st.just(b""),
    _message(_STAT_FIELDS, {}, max_size=4),
    _stat_id | st.just(b""),
)
_named_stats = stats | st.builds(
    lambda stat, name: stat + number(7, name), stats, st.sampled_from([*SLOTS])
)
events = _message({1: VARINT, 2: VARINT, 3: VARINT, 5: VARINT}, {4: stats}, max_size=7)
lines = _message(
    {1: VARINT, 2: CONTENT, 3: VARINT, 9: VARINT, 10: VARINT, 11: CONTENT},
    {4: events},
    max_size=8,
)


def _entries(metadata: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.builds(
        lambda key, rest: key + rest,
        _stat_id | st.just(b""),
        _message({1: VARINT}, {2: metadata}, max_size=2),
    )


planes = _message(
    {1: VARINT, 2: CONTENT},
    {
        4: _entries(
            _message(
                {1: VARINT, 2: CONTENT, 3: CONTENT, 4: CONTENT, 6: VARINT}, {5: _named_stats}, 4
            )
        ),
        5: _entries(_message({1: VARINT, 2: CONTENT, 3: CONTENT}, {}, 3)),
        6: _named_stats,
    },
    max_size=10,
)
"""Planes without lines."""
