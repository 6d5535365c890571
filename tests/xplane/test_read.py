"""The reader handles odd but complete files, files of another kind, and cut files."""

from __future__ import annotations

import os
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.xspace import XSpace
from tests.xplane import spaces, wire
from tests.xplane.spaces import event_count
from traceview.base.errors import TraceFormatError, TraceNotFoundError
from traceview.xplane.columns import Fault, LineHeader, Plane, Space, Stat
from traceview.xplane.planes import PlaneKind
from traceview.xplane.read import read_file, read_summary
from traceview.xplane.table import PlaneTable, build_table

SALVAGE_HINT = "what is readable of it: traceview analyze {} --salvage"
PAST_END = "a field reaches past the end of what holds it"


def stored(tmp_path: Path, content: bytes | Any) -> Path:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    return path


def read(tmp_path: Path, content: bytes | Any, *, salvage: bool = False) -> Space:
    return read_file(stored(tmp_path, content), salvage=salvage)


def table_of(space: Space, plane: Plane, origin_ns: int = 0) -> PlaneTable:
    return build_table(plane, list(plane.lines), origin_ns)


# Other kinds of file

MANGLED = b"\x0a\xff\x90\x8f\xfe" + bytes(range(128, 180))
NO_PLANES = "the file has no planes"
IMPOSTORS = {
    "the file is empty": (b"",),
    "gzip data": (b"\x1f\x8b\x08\x00rest",),
    "a ZIP archive": (b"PK\x03\x04rest",),
    "xz data": (b"\xfd7zXZ\x00rest",),
    "a tar archive": (bytes(257) + b"ustar",),
    "an SQLite database": (b"SQLite format 3\x00",),
    "a TensorBoard event file": (bytes(23) + b"brain.Event:2",),
    "a Git LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",),
    "an HTML page": (b"<!DOCTYPE html><p>404", b"\n  <HTML>"),
    "mangled by a conversion to UTF-8": (MANGLED.decode("utf-8", "replace").encode(),),
    NO_PLANES: (b"\x22\x02ab",),
    "an ELF program": (b"\x7fELF\x02\x01",),
    "zero bytes": (bytes(64),),
    "a text file": (b"hello\nworld", b"\nline one\n", "größer\n".encode() * 1000),
    "it begins with the byte 0xff": (b"\xff\xfeh\x00",),
}


@pytest.mark.parametrize("salvage", [False, True])
@pytest.mark.parametrize(("reason", "contents"), IMPOSTORS.items())
def test_other_files_are_named(
    tmp_path: Path, reason: str, contents: tuple[bytes, ...], salvage: bool
) -> None:
    for content in contents:
        path = stored(tmp_path, content)
        for call in (read_file, traceview.load):
            with pytest.raises(TraceFormatError, match=re.escape(reason)) as caught:
                call(path, salvage=salvage)
            assert (caught.value.offset, caught.value.path) == (None, path)
        if reason != NO_PLANES:
            with pytest.raises(TraceFormatError, match=re.escape(reason)):
                read_summary(path)


def test_a_huge_file_of_another_kind_is_refused_by_its_first_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.xplane.pb"
    with path.open("wb") as file:
        file.truncate(1 << 33)
    for call in (read_file, read_summary, traceview.load):
        with pytest.raises(TraceFormatError, match="not a trace: zero bytes"):
            call(path)


def test_a_file_larger_than_memory_is_refused_with_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Large(BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if size is None or not 0 <= size <= 4096:
                raise MemoryError
            return super().read(size)

    content = b"\x0a\x02\x12\x00" * 1000
    path = stored(tmp_path, content)
    monkeypatch.setattr(Path, "open", lambda *_: Large(content))
    for call in (read_file, traceview.load):
        with pytest.raises(TraceFormatError, match=r": 4,000 bytes do not fit into memory"):
            call(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are none here")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "a.xplane.pb"
    os.mkfifo(pipe)
    for call in (read_file, read_summary):
        with pytest.raises(TraceNotFoundError, match="not a regular file"):
            call(pipe)


def test_what_is_no_file_is_not_found(tmp_path: Path) -> None:
    missing = tmp_path / "a.xplane.pb"
    with pytest.raises(TraceNotFoundError, match=re.escape(f"{missing}: no such file")):
        read_file(missing)
    with pytest.raises(TraceNotFoundError, match=r": Is a directory$|: Permission denied$"):
        read_file(tmp_path)


# Odd but whole files (docs/xplane.md, "Damaged files")


def test_a_small_file_is_read_whole(tmp_path: Path) -> None:
    message = spaces.small_space()
    space = read(tmp_path, message)
    assert (space.errors, space.warnings) == ((b"e",), (b"w",))
    host, gpu, environment = space.planes
    assert [p.kind for p in space.planes] == [PlaneKind.HOST, PlaneKind.GPU, PlaneKind.ENVIRONMENT]
    assert (host.ordinal, gpu.ordinal, environment.lines) == (-1, 0, [])
    assert environment.stats[0] == Stat(b"profile_start_time", spaces.START_NS)
    assert gpu.event_metadata[1].stats == (Stat(b"kernel_details", b"regs:8 grid:1,1,1"),)
    assert host.lines[0].header == LineHeader(-7, b"python", 5)
    table = table_of(space, gpu)
    assert [table.names[i] for i in table.name.tolist()] == [b"k", b"k", b"MemcpyH2D"]
    assert table.start_ps.tolist() == [5200, 14200, 9300]
    assert table.ints("correlation_id").value.tolist() == [1, 2]
    details = table.texts("memcpy_details")
    assert (details.event.tolist(), details.texts[details.index[0]]) == (
        [2],
        b"size:112 dest:0 async:0",
    )
    # What stands in the metadata holds for every event of that id.
    assert table.texts("kernel_details").event.tolist() == [0, 1]


@pytest.mark.parametrize("in_metadata", [False, True])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"uint64_value": 2**64 - 1}, [-1]),
        ({"uint64_value": 2**63}, [-(2**63)]),
        ({"int64_value": -(2**63)}, [-(2**63)]),
        ({"double_value": 2.0}, []),
        ({"str_value": b"7"}, []),
    ],
)
def test_any_kind_of_whole_number_is_taken(
    tmp_path: Path, value: dict[str, Any], expected: list[int], in_metadata: bool
) -> None:
    message = spaces.small_space()
    host = message.planes[0]
    holder = host.event_metadata[1] if in_metadata else host.lines[0].events[0]
    del host.lines[0].events[2:]
    holder.stats.add(metadata_id=4, **value)
    space = read(tmp_path, message)
    found = table_of(space, space.planes[0]).ints("id")
    of_first = found.value[found.event == 0].tolist()
    assert of_first == expected


def test_text_need_not_be_utf8_and_may_hold_anything(tmp_path: Path) -> None:
    names = (b"\xff\xfe\x80", b"a/b:c#d[e]<f>\n", b"k" * 4096)
    message = XSpace(errors=[b"\xfe"], warnings=[b"w", b"\xfd", b"w"])
    plane = spaces.add_plane(message, b"/device:GPU:0", names, (b"\xff",))
    line = plane.lines.add(name=b"Stream #0(\xff)", display_name=b"\xfe")
    for number in (1, 2, 3):
        line.events.add(metadata_id=number)
    space = read(tmp_path, message)
    assert table_of(space, space.planes[0]).names == names
    assert space.planes[0].lines[0].header.name == b"Stream #0(\xff)"
    assert space.errors == (b"\xfe",)
    assert space.warnings == (b"w", b"\xfd")  # two stages may add the same text
    trace = traceview.load(stored(tmp_path, message))
    assert trace.hosts[0].errors == ("\ufffd",)


def test_parts_may_be_empty(tmp_path: Path) -> None:
    message = XSpace()
    message.planes.add()
    message.planes.add(name=b"/device:GPU:1")
    plane = message.planes.add(name=b"/host:CPU")
    plane.lines.add()
    plane.lines.add(id=2**63 - 1, name=b"t").events.add()
    plane.lines.add(id=-(2**63))
    space = read(tmp_path, message)
    assert [(p.kind, p.ordinal, event_count(p)) for p in space.planes] == [
        (PlaneKind.UNKNOWN, -1, 0),
        (PlaneKind.GPU, 1, 0),
        (PlaneKind.HOST, -1, 1),
    ]
    assert [line.header.id for line in space.planes[2].lines] == [0, 2**63 - 1, -(2**63)]
    planes, _ = read_summary(stored(tmp_path, message))
    assert [(p.name, len(p.payloads)) for p in planes] == [
        (b"", 0),
        (b"/device:GPU:1", 0),
        (b"/host:CPU", 3),
    ]
    assert traceview.load(stored(tmp_path, message)).hosts[0].event_count == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("offset_ps", 2**61 + 1), ("offset_ps", -(2**63)), ("duration_ps", 2**63 - 1)],
)
@pytest.mark.parametrize("threaded_bytes", [0, 1 << 24])
def test_an_event_too_far_away_is_damage_at_its_place(
    tmp_path: Path, field: str, value: int, threaded_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("traceview.xplane.read._THREADED_BYTES", threaded_bytes)
    message = spaces.small_space()
    setattr(message.planes[0].lines[0].events[1], field, value)
    path = stored(tmp_path, message)
    with pytest.raises(TraceFormatError) as caught:
        read_file(path)
    offset = caught.value.offset
    reason = "an event of 'python' begins more than 40 hours away or lasts longer"
    assert str(caught.value) == f"{path}: byte {offset}: {reason}"
    event = message.planes[0].lines[0].events[1].SerializeToString()
    assert offset == path.read_bytes().index(wire.content(4, event))
    space = read_file(path, salvage=True)
    assert space.faults == (Fault(offset, reason),)
    assert table_of(space, space.planes[0]).count == 3


def with_program(proto: bytes) -> Any:
    """A message with one compiled program; what it holds beside the stat is of no plane with events."""
    message = spaces.small_space()
    programs = spaces.add_plane(message, b"/host:metadata", (b"jit_step(5)",), (b"Hlo Proto",))
    programs.event_metadata[1].stats.add(metadata_id=1, bytes_value=proto)
    return message


def test_compiled_programs_are_set_apart(tmp_path: Path) -> None:
    module = b"m" * 1000
    path = stored(tmp_path, with_program(wire.content(3, b"b" * 50) + wire.content(1, module)))
    space = read_file(path)
    plane = space.planes[-1]
    assert (plane.kind, plane.event_metadata) == (PlaneKind.METADATA, {})
    (program,) = space.programs
    assert (program.name, program.data) == (b"jit_step(5)", module)
    assert program.offset == path.read_bytes().index(module)


def test_a_program_that_is_none_is_damage_at_its_place(tmp_path: Path) -> None:
    path = stored(tmp_path, with_program(b"\xff" * 1000))
    with pytest.raises(TraceFormatError, match="damaged program") as caught:
        read_file(path)
    begin = path.read_bytes().index(b"\xff" * 1000)
    assert caught.value.offset is not None
    assert begin <= caught.value.offset <= begin + 1000
    space = read_file(path, salvage=True)
    assert [fault.offset for fault in space.faults] == [caught.value.offset]
    assert not space.programs
    assert table_of(space, space.planes[0]).count == 4


# Damaged files


def test_a_damaged_line_leaves_the_others_readable(tmp_path: Path) -> None:
    message = spaces.small_space()
    host = message.planes[0]
    line = host.lines[0].SerializeToString()
    # A second thread, whose second event is cut short by what holds it.
    event = wire.content(4, wire.number(1, 2) + wire.number(3, 9))
    bad = wire.content(2, b"bad") + event + wire.content(4, wire.number(1, 2) + b"\x22\x09")
    content = wire.content(
        1, host.SerializeToString() + wire.content(3, bad) + wire.content(3, line)
    )
    gpu = wire.content(1, message.planes[1].SerializeToString())
    path = stored(tmp_path, content + gpu)
    offset = content.index(bad) + len(bad)
    reason = f"damaged line 'bad' of '/host:CPU': {PAST_END}"
    with pytest.raises(TraceFormatError) as caught:
        read_file(path)
    assert str(caught.value) == f"{path}: byte {offset}: {reason}"
    assert caught.value.hint == SALVAGE_HINT.format(path)
    space = read_file(path, salvage=True)
    assert space.faults == (Fault(offset, reason),)
    assert [line.columns.metadata_id.size for line in space.planes[0].lines] == [4, 1, 4]
    assert event_count(space.planes[1]) == 4
    (problem,) = [
        p for p in traceview.load(path, salvage=True).problems if p.code == "damaged-file"
    ]
    assert problem.sentence == f"damaged at byte {offset}: {reason}"


CUT_OFF = "cut off: the plane '/host:CPU' needs 2216107 bytes, the file ends after 1500000 of them"


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("truncated-half", f"byte 0: {CUT_OFF}"),
        ("truncated-last-byte", f"byte 3039618: damaged: {PAST_END}"),
    ],
)
def test_what_a_user_reads_of_a_cut_file(shared_traces: Path, name: str, text: str) -> None:
    path = shared_traces / "broken" / name / "plugins" / "profile" / "run1" / "host.xplane.pb"
    with pytest.raises(TraceFormatError) as caught:
        traceview.load(shared_traces / "broken" / name)
    assert str(caught.value) == f"{path}: {text}"
    # Half of a file has no name of an event.
    assert (caught.value.hint == SALVAGE_HINT.format(path)) == (name == "truncated-last-byte")
