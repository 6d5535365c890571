"""Both decoders read the names and metadata of a plane as the protobuf runtime does, also of a damaged one."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from scripts import fuzzed_kernels
from tests.xplane import runtime, wire
from traceview.xplane import decode_reference
from traceview.xplane.columns import EventMetadata, PlaneHeader

ROOT = Path(__file__).resolve().parents[2]
# A tag or a length of more than five bytes, which the runtime refuses, has five that go on.
MAY_BE_PADDED = re.compile(rb"[\x80-\xff]{5}")


def in_order(header: PlaneHeader) -> str:
    """The header as text, in which a number that is none equals itself, and 1 is not 1.0."""
    return repr(
        replace(
            header,
            event_metadata=dict(sorted(header.event_metadata.items())),
            stat_names=dict(sorted(header.stat_names.items())),
        )
    )


def read_by_all(data: bytes) -> PlaneHeader:
    first, *others = (decoder.read_plane(data) for decoder in wire.DECODERS)
    assert isinstance(first, PlaneHeader)
    for other in others:
        assert repr(other) == repr(first)
    return first


def check_against_runtime(data: bytes) -> None:
    """Each field is damaged to both or to none, but for the differences that the decoder names; what is left is equal."""
    found = read_by_all(data)
    fields = decode_reference.scan_fields(data, 0, len(data))
    kept = []
    for tag, end in zip(fields.tag.tolist(), fields.end.tolist(), strict=True):
        field = data[tag:end]
        is_damaged = read_by_all(field).is_damaged
        message = runtime.parsed(field)
        if message is not None:
            assert is_damaged == runtime.has_group(message)
        elif not is_damaged:
            assert MAY_BE_PADDED.search(field)
            return
        if not is_damaged:
            kept.append(field)
    is_damaged = len(kept) < fields.tag.size or fields.fault is not None
    message = runtime.parsed(b"".join(kept))
    assert in_order(found) == in_order(runtime.header_of(message, is_damaged=is_damaged))


def headers_of(path: Path) -> list[bytes]:
    """The planes of a recorded trace, without their lines."""
    data = path.read_bytes()
    fields = decode_reference.scan_fields(data, 0, len(data))
    planes = []
    for begin, end in zip(fields.begin.tolist(), fields.end.tolist(), strict=True):
        inner = decode_reference.scan_fields(data, begin, end)
        rows = zip(inner.number.tolist(), inner.tag.tolist(), inner.end.tolist(), strict=True)
        planes.append(b"".join(data[tag:last] for number, tag, last in rows if number != 3))
    return planes


(PATH,) = ROOT.glob("fixtures/plain-1/plugins/profile/*/*.xplane.pb")
HEADER = {number: kind for number, kind in fuzzed_kernels.PLANE.items() if number != 3}
RECORDED = [header for header in headers_of(PATH) if header]


@pytest.mark.parametrize("changes", [0, 1, 4])
def test_metadata_is_read_as_the_runtime_reads_it(changes: int) -> None:
    """As it is written, and damaged: the same is damaged to both."""
    whole = 0
    for seed in range(500):
        choice = Random(seed)
        data = bytearray(fuzzed_kernels.message(choice, HEADER))
        if changes and seed % 3 == 0:
            data = bytearray(choice.choice((choice.randbytes(40), *RECORDED)))
        for _ in range(changes):
            at = choice.randint(0, len(data))
            data[at : at + choice.randint(0, 3)] = choice.randbytes(choice.randint(0, 3))
        cut = choice.randint(0, len(data)) if changes and seed % 5 == 0 else len(data)
        check_against_runtime(bytes(data[:cut]))
        whole += not read_by_all(bytes(data[:cut])).is_damaged
    assert whole > 20


def metadata(content: bytes) -> bytes:
    return wire.content(2, content)


KEY, NAME = wire.number(1, 5), wire.content(2, b"a")


def test_the_metadata_of_a_stat_has_no_stats() -> None:
    # What its fields 4 and 5 hold need not be a message.
    unknown = wire.content(4, b"?") + wire.content(5, b"\x80")
    data = wire.content(5, KEY + metadata(unknown + NAME))
    check_against_runtime(data)
    assert read_by_all(data) == PlaneHeader(b"", {}, {5: b"a"}, (), is_damaged=False)


WHOLE = wire.content(4, KEY + metadata(NAME))


@pytest.mark.parametrize(
    ("content", "runtime_reads"),
    [
        (b"\x00\x01", False),  # number 0
        (b"\x0e", False),  # a wire type that there is not
        (b"\x08" + b"\xff" * 10 + b"\x01", False),
        (b"\x12\x05a", False),
        (b"\x09" + bytes(7), False),
        (b"\x08\x80", False),
        (wire.varint(2**32) + b"\x05", False),  # a tag of more than 32 bits
        (b"\x7b", False),  # a group that is not closed
        (b"\x7c", False),
        (b"\x7b\x08\x01\x7c", True),  # a closed group
    ],
)
@pytest.mark.parametrize("number", [4, 5, 6])
def test_a_damaged_field_is_left_out(number: int, content: bytes, runtime_reads: bool) -> None:
    bad = wire.content(number, wire.number(1, 8) + content)
    assert (runtime.parsed(bad) is not None) == runtime_reads
    data = wire.number(1, 3) + bad + WHOLE + wire.content(2, b"plane")
    check_against_runtime(data)
    found = PlaneHeader(b"plane", {5: EventMetadata(b"a", b"", ())}, {}, (), is_damaged=True)
    assert read_by_all(data) == found
    # Its own tag alone: what is behind cannot be found.
    cut = read_by_all(WHOLE + content)
    assert (list(cut.event_metadata), cut.is_damaged) == ([5], True)
