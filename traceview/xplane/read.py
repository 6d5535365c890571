"""Reads one XPlane file: its planes, their metadata, and every event as columns.

The decoder parses the metadata of a plane and the events of a line. The reader walks the structure around them, so
that every fault has a byte offset and a damaged part leaves the others readable.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from io import SEEK_END, BufferedReader
from threading import Lock
from typing import BinaryIO, Final, cast

import numpy as np
from msgspec.structs import asdict, replace

from traceview.base.errors import TraceFormatError, TraceNotFoundError
from traceview.base.intervals import BoolArray, Int64Array
from traceview.base.location import Location
from traceview.base.sweeping import make_calls
from traceview.base.text import shell_path
from traceview.base.units import PS_PER_S
from traceview.store.address import is_remote
from traceview.xplane.columns import (
    PAST_END,
    Fault,
    Fields,
    Line,
    LineColumns,
    Plane,
    PlaneHeader,
    Program,
    Space,
    ValueKind,
    WantedStats,
    joined,
)
from traceview.xplane.decode_reference import (
    CutField,
    DamageError,
    read_cut_field,
    read_stat,
)
from traceview.xplane.message import DECODER, Message
from traceview.xplane.planes import PlaneKind, plane_kind

NOT_A_TRACE: Final = "not a trace"
"""The start of the reason if a file is of another kind, rather than damaged."""

BLOCK_BYTES: Final = 1 << 16
"""How much is read at once of a file that is only read in parts."""

_HEAD_BYTES: Final = 4096
_SHORTER: Final = "the file became shorter while it was read"
_WIRE_TYPES: Final = (0, 1, 2, 5)
"""Wire types in use: varint, 64 bits, length-delimited, 32 bits (protobuf's encoding; groups are obsolete)."""

_TEXT_CONTROLS: Final = b"\t\n\f\r\x1b"


class FileBytes:
    """The bytes of a file, of which only the accessed parts are read; several threads may do so at the same time.

    A memory map would do the same faster, but reading a map of a file that another process shortens ends this process.
    Here it raises `TraceFormatError`.
    """

    def __init__(self, path: Location, file: BinaryIO) -> None:
        self._path = path
        # What `open` gives can fill a buffer, which its class does not say.
        self._file = cast("BufferedReader", file)
        self._size = file.seek(0, SEEK_END)
        self._block_begin = 0
        self._block = b""
        self._turn = Lock()

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: slice) -> bytes:
        begin, end, _ = key.indices(self._size)
        with self._turn:
            first = begin - self._block_begin
            if not 0 <= first <= first + end - begin <= len(self._block):
                self._file.seek(begin)
                block = self._file.read(max(end - begin, BLOCK_BYTES))
                if len(block) < end - begin:
                    raise TraceFormatError(self._path, _SHORTER)
                if len(block) > BLOCK_BYTES:
                    return block
                self._block, self._block_begin, first = block, begin, 0
            return self._block[first : first + end - begin]

    def read_into(self, buffer: memoryview, begin: int) -> None:
        """Fill a buffer with the bytes from `begin` on."""
        with self._turn:
            self._file.seek(begin)
            if self._file.readinto(buffer) < len(buffer):
                raise TraceFormatError(self._path, _SHORTER)


@contextmanager
def partly_read(path: Location) -> Iterator[FileBytes]:
    """The file, of which only the accessed parts are read; raises an error that says what the file is if it is not a trace."""
    try:
        # Opening a pipe would wait for a writer.
        if not (path.is_file() or path.is_dir()) and path.exists():
            raise TraceNotFoundError(f"{path}: not a regular file")
        with path.open("rb") as file:
            impostor = _impostor(file.read(_HEAD_BYTES))
            if impostor:
                reason, hint = impostor
                raise TraceFormatError(path, reason, hint=hint)
            yield FileBytes(path, file)
    except FileNotFoundError as error:
        raise TraceNotFoundError(f"{path}: no such file") from error
    except OSError as error:
        raise TraceNotFoundError(f"{path}: {error.strerror or error}") from error


_UNPACK: Final = "unpack it first"
_KINDS: Final = (
    (0, b"\x1f\x8b", "gzip data", "unpack it: gunzip"),
    (0, b"PK\x03\x04", "a ZIP archive", _UNPACK),
    (0, b"\xfd7zXZ\x00", "xz data", _UNPACK),
    (0, b"BZh", "bzip2 data", _UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "Zstandard data", _UNPACK),
    (257, b"ustar", "a tar archive", _UNPACK),
    (0, b"SQLite format 3", "an SQLite database", "record the run with `traceview capture`"),
    (23, b"brain.Event", "a TensorBoard event file", "give the log directory"),
    (0, b"\x7fELF", "an ELF program", None),
)
"""Where a file of another kind has which bytes, and what to do."""
_KINDS_OF_TEXT: Final = (
    (0, b"version https://git-lfs", "a Git LFS pointer", "fetch the real file: git lfs pull"),
    (0, (b"<!doctype", b"<html", b"<?xml"), "an HTML page", "was it saved from a download page?"),
)


def _impostor(head: bytes) -> tuple[str, str | None] | None:
    """Why a file that begins so is no trace, and a hint; None if it may be one."""
    if not head:
        return (
            "the file is empty (0 bytes)",
            "check that the profiler was stopped and the disk was not full",
        )
    if head.count(b"\xef\xbf\xbd") >= 8 and head.startswith(b"\x0a\xef\xbf\xbd"):
        return (
            "binary data mangled by a conversion to UTF-8 text; the numbers in it are lost",
            "copy the original file in binary mode",
        )
    text = head[:512].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for begin, kinds in ((head, _KINDS), (text, _KINDS_OF_TEXT)):
        for offset, mark, kind, hint in kinds:
            if begin.startswith(mark, offset):
                return f"{NOT_A_TRACE}: {kind}", hint
    number, wire_type = head[0] >> 3, head[0] & 7
    if not any(head):
        kind = "zero bytes"
    elif _is_text(head):
        kind = "a text file" if len(head) > 1 else "a single byte"
    elif number == 0 or wire_type not in _WIRE_TYPES:
        kind = f"it begins with the byte 0x{head[0]:02x}"
    else:
        return None
    return f"{NOT_A_TRACE}: {kind}", None


def _is_text(head: bytes) -> bool:
    """Whether all bytes are text; a trace has control bytes between its names."""
    if any((byte < 0x20 or byte == 0x7F) and byte not in _TEXT_CONTROLS for byte in head):
        return False
    try:
        head[: head.rfind(b"\n") + 1 or None].decode()
    except UnicodeDecodeError:
        return False
    return True


SPACE_PLANES: Final = 1
SPACE_ERRORS: Final = 2
SPACE_WARNINGS: Final = 3
PLANE_NAME: Final = 2
PLANE_LINES: Final = 3
PLANE_EVENT_METADATA: Final = 4
LINE_EVENTS: Final = 4
ENTRY_VALUE: Final = 2
METADATA_NAME: Final = 2
METADATA_STATS: Final = 5
HLO_MODULE: Final = 1
BUFFER_ASSIGNMENT: Final = 3
"""Fields by which the reader finds its way through an XSpace (openxla/xla `tsl/profiler/protobuf/xplane.proto`), and to
the programs in it."""

_HLO_PROTO: Final = b"Hlo Proto"

_CONTENT: Final = 2
_LONGEST_HEAD: Final = 20
"""Bytes of a tag and a length."""
_MOST_THREADS: Final = 7
"""Beside the one that reads."""
_THREADED_BYTES: Final = 1 << 24
"""A smaller file is read whole, and decoded in less time than threads lose by taking turns at Python's lock."""
_HASHED_AT_ONCE: Final = 1 << 20

MAX_PS: Final = 1 << 57
"""The longest time within a profile; far below int64, so that sums of dozens of such times still fit."""

MAX_HOURS: Final = MAX_PS // (PS_PER_S * 3600)
MAX_SUM_PS: Final = 1 << 60
"""The most that all events of a file may last together, so that no sum of durations leaves int64."""


def read_summary(path: Location) -> tuple[list[Plane], list[Fault]]:
    """The planes of a file without their lines, and its damage outside of events; only the needed parts are read.

    Only a file that is not a trace raises.
    """
    with partly_read(path) as data:
        reader = _Reader(path, data, salvage=True)
        return [
            reader.plane(*bounds, with_events=False) for bounds in reader.planes()
        ], reader.faults


def salvage_hint(path: Location) -> str:
    """What reads the rest of a damaged file."""
    return f"what is readable of it: traceview analyze {shell_path(path)} --salvage"


def read_file(path: Location, *, salvage: bool = False, with_digest: bool = False) -> Space:
    """Read one `*.xplane.pb`. `with_digest`: its bytes are read once more, for their SHA-256.

    Raises `TraceNotFoundError` if it cannot be opened, `TraceFormatError` with the byte offset if it is not a trace or
    damaged. With `salvage` damage is collected in `faults`, and the readable part is returned.
    """
    with partly_read(path) as file:
        try:
            is_small = len(file) < _THREADED_BYTES
            # A store gives a whole file in several ranges at the same time, but parts of it one after another.
            data = memoryview(file[:]) if is_small or is_remote(path) else file
            threads = 0 if is_small else min(_MOST_THREADS, os.cpu_count() or 1)
            return _Reader(path, data, salvage=salvage).space(threads, with_digest)
        except MemoryError:
            raise TraceFormatError(
                path,
                f"{len(file):,} bytes do not fit into memory",
                hint="record fewer steps",
            ) from None


class _Reader:
    def __init__(self, path: Location, data: memoryview | FileBytes, *, salvage: bool) -> None:
        self.path = path
        self.data = data
        self.salvage = salvage
        self.faults: list[Fault] = []
        # Ends of parts that were reported as cut off; a cut at the same end inside such a part is the same damage.
        self.cut_ends: set[int] = set()
        self.fields = self.scan(0, len(data))
        self.programs: list[Program] = []
        self.columns: dict[tuple[int, int], LineColumns] = {}
        # Lines are read into the same memory one after another: new memory takes as long as decoding.
        self.buffers: list[bytearray] = []
        self.digest = ""

    def space(self, threads: int, with_digest: bool) -> Space:
        planes = tuple(self.plane(*bounds) for bounds in self.planes())
        decoding = [
            (payload, partial(self.decode_line, payload, wanted))
            for plane in planes
            for wanted in (_wanted(plane),)
            for payload in plane.payloads
        ]
        # The longest first.
        decoding.sort(key=lambda turn: turn[0][0] - turn[0][1])
        calls: list[Callable[[], None]] = [self.compute_digest] if with_digest else []
        make_calls(calls + [decode for _, decode in decoding], threads)
        for plane in planes:
            plane.lines.extend(self.line(plane, payload) for payload in plane.payloads)
        self.check_sum([line for plane in planes for line in plane.lines])
        if not planes and self.faults:
            first = self.faults[0]
            raise TraceFormatError(self.path, first.reason, offset=first.offset)
        if not planes:
            raise TraceFormatError(
                self.path,
                "the file has no planes: the profiler was stopped before it recorded anything, "
                "or this is another kind of file",
            )
        return Space(
            self.path,
            len(self.data),
            self.digest,
            planes,
            tuple(self.programs),
            tuple(dict.fromkeys(self.contents(self.fields, SPACE_ERRORS))),
            tuple(dict.fromkeys(self.contents(self.fields, SPACE_WARNINGS))),
            self.repeated(planes),
            tuple(self.faults),
        )

    def repeated(self, planes: Iterable[Plane]) -> frozenset[tuple[int, int]]:
        """The payloads of lines that are exact copies of lines in an earlier plane of the same name."""
        first: dict[tuple[bytes, int, int], tuple[int, int]] = {}
        contents: dict[tuple[bytes, int, int], set[str]] = {}
        repeated = set()
        for plane in planes:
            for line in plane.lines:
                begin, end = line.payload
                key = (plane.name, line.header.id, end - begin)
                if key not in first:
                    # Almost every line: it is not read for this.
                    first[key] = line.payload
                    continue
                known = contents.setdefault(key, {self.sha256(*first[key])})
                content = self.sha256(begin, end)
                if content in known:
                    repeated.add(line.payload)
                known.add(content)
        return frozenset(repeated)

    def compute_digest(self) -> None:
        self.digest = self.sha256(0, len(self.data))

    def sha256(self, begin: int, end: int) -> str:
        # The library of it takes longer to load than a small trace.
        from hashlib import sha256

        digest = sha256()
        for at in range(begin, end, _HASHED_AT_ONCE):
            digest.update(self.data[at : min(at + _HASHED_AT_ONCE, end)])
        return digest.hexdigest()

    def fault(self, offset: int, reason: str) -> None:
        """Raise for damage at `offset`, or note it when salvaging."""
        if not self.salvage:
            raise TraceFormatError(
                self.path,
                reason,
                offset=offset,
                hint=salvage_hint(self.path),
            )
        self.faults.append(Fault(offset, reason))

    def scan(self, begin: int, end: int) -> Fields:
        """The fields of the message at `data[begin:end]`; of a file the content of long ones is not read."""
        fields: Fields
        if not isinstance(self.data, FileBytes):
            fields = DECODER.scan_fields(self.data, begin, end)
            return fields
        parts: list[tuple[Int64Array, ...]] = []
        fault, at = None, begin
        while at < end and fault is None:
            block = self.data[at : min(at + BLOCK_BYTES, end)]
            fields = DECODER.scan_fields(block, 0, len(block))
            bounds = (fields.tag + at, fields.begin + at, fields.end + at)
            parts.append((fields.number, fields.wire_type, *bounds))
            fault = fields.fault
            if fault is None:
                at += len(block)
                continue
            tag, is_last = at + fault.offset, at + len(block) == end
            cut = read_cut_field(block[fault.offset :]) if fault.reason == PAST_END else None
            if cut and tag + cut.begin + cut.size <= end:
                # The end of the block cuts this field.
                first, at = tag + cut.begin, tag + cut.begin + cut.size
                row = np.array((cut.number, _CONTENT, tag, first, at), dtype=np.int64)
                parts.append(tuple(row.reshape(5, 1)))
                fault = None
            elif fault.offset and not is_last:
                # It may be damaged or cut; the next block begins with it.
                fault, at = None, tag
            else:
                fault = Fault(tag, fault.reason)
        columns = [joined([part[column] for part in parts], np.int64) for column in range(5)]
        return Fields(columns[0], columns[1], columns[2], columns[3], columns[4], fault)

    def cut_field(self, offset: int, end: int) -> CutField | None:
        """The field at `offset` if `end` cuts off only its content."""
        return read_cut_field(bytes(self.data[offset : min(offset + _LONGEST_HEAD, end)]))

    def planes(self) -> list[tuple[int, int]]:
        """The bounds of the planes, also of one that the end of the file cuts off, after reporting the fault."""
        bounds, fault = self.fields.places(SPACE_PLANES), self.fields.fault
        if fault is None:
            return bounds
        size = len(self.data)
        cut = self.cut_field(fault.offset, size)
        if cut is None or cut.number != SPACE_PLANES:
            self.fault(fault.offset, f"damaged: {fault.reason}")
            return bounds
        begin = fault.offset + cut.begin
        name = self.plane_name(self.scan(begin, size))
        self.fault(
            fault.offset,
            f"cut off: the plane {name.decode(errors='replace')!r} needs {cut.begin + cut.size} bytes, "
            f"the file ends after {size - fault.offset} of them",
        )
        self.cut_ends.add(size)
        return [*bounds, (begin, size)]

    def contents(self, fields: Fields, number: int) -> list[bytes]:
        """The contents of all fields of a number."""
        return [bytes(self.data[begin:end]) for begin, end in fields.places(number)]

    def plane_name(self, fields: Fields) -> bytes:
        """The name among the fields of a plane; empty without one."""
        return next(reversed(self.contents(fields, PLANE_NAME)), b"")

    def plane_header(self, tag: Int64Array, end: Int64Array) -> PlaneHeader:
        """What the fields from each `tag` to its `end` say of a plane."""
        # Fields mostly follow each other: only where a run of them begins the one before has ended.
        breaks = np.flatnonzero(tag[1:] != end[:-1])
        begins = [*tag[:1].tolist(), *tag[breaks + 1].tolist()]
        runs = zip(begins, [*end[breaks].tolist(), *end[-1:].tolist()], strict=True)
        header: PlaneHeader = DECODER.read_plane(b"".join(self.data[at:to] for at, to in runs))
        if header.is_damaged:
            self.fault(int(tag[0]), "damaged: metadata from here on cannot be parsed")
        return header

    def plane(self, begin: int, end: int, *, with_events: bool = True) -> Plane:
        """A plane without its lines, after adding the compiled programs in it; without what events are called on request."""
        fields = self.scan(begin, end)
        kind, ordinal = plane_kind(self.plane_name(fields))
        in_header = (fields.number != PLANE_LINES) | (fields.wire_type != _CONTENT)
        if not with_events or kind is PlaneKind.METADATA:
            # In that plane the metadata of an event is a whole compiled program.
            in_header &= fields.number != PLANE_EVENT_METADATA
        header = self.plane_header(fields.tag[in_header], fields.end[in_header])
        payloads = fields.places(PLANE_LINES)
        if fields.fault:
            cut = self.cut_field(fields.fault.offset, end)
            name = header.name.decode(errors="replace")
            if end not in self.cut_ends:
                self.fault(fields.fault.offset, f"damaged plane {name!r}: {fields.fault.reason}")
            self.cut_ends.add(end)
            if cut is not None and cut.number == PLANE_LINES:
                payloads.append((fields.fault.offset + cut.begin, end))
        if with_events and kind is PlaneKind.METADATA:
            for place in fields.places(PLANE_EVENT_METADATA):
                self.add_programs(*place, header.stat_names)
        return Plane(
            **asdict(header), kind=kind, ordinal=ordinal, payloads=tuple(payloads), lines=[]
        )

    def add_programs(self, begin: int, end: int, stat_names: dict[int, bytes]) -> None:
        """Add the program in an entry of event metadata."""
        data = bytes(self.data[begin:end])
        try:
            self.programs += _programs_of(data, begin, stat_names)
        except DamageError as error:
            fault = error.moved(begin).fault
            self.fault(fault.offset, f"damaged program: {fault.reason}")

    def decode_line(self, payload: tuple[int, int], wanted: WantedStats) -> None:
        """Keep the columns of a line with its texts; runs on a thread."""
        begin, end = payload
        with self.content(begin, end) as data:
            columns: LineColumns = DECODER.decode_line(data, 0, len(data), wanted)
            is_text = (columns.stat_kind == ValueKind.STR) | (columns.stat_kind == ValueKind.BYTES)
            texts, index = DECODER.intern_contents(data, columns.stat_value[is_text])
        columns.stat_value[is_text] = index
        fault = columns.fault and Fault(columns.fault.offset + begin, columns.fault.reason)
        self.columns[payload] = replace(columns, fault=fault, contents=tuple(texts))

    @contextmanager
    def content(self, begin: int, end: int) -> Iterator[memoryview]:
        """The bytes of a line; those of a file are in a buffer that another line gets afterwards."""
        if not isinstance(self.data, FileBytes):
            yield self.data[begin:end]
            return
        buffer = self.buffers.pop() if self.buffers else bytearray()
        if len(buffer) < end - begin:
            buffer = bytearray(end - begin)
        with memoryview(buffer)[: end - begin] as data:
            self.data.read_into(data, begin)
            yield data
        self.buffers.append(buffer)

    def line(self, plane: Plane, payload: tuple[int, int]) -> Line:
        """The line that was decoded, after reporting its damage."""
        columns = self.columns.pop(payload)
        line = columns.header.name.decode(errors="replace")
        if columns.fault and payload[1] not in self.cut_ends:
            where = f"line {line!r} of {plane.name.decode(errors='replace')!r}"
            self.fault(columns.fault.offset, f"damaged {where}: {columns.fault.reason}")
        # Times that do not fit into int64 picoseconds are damage too.
        decoded = Line(columns.header, columns, payload)
        self.leave_out(
            decoded,
            (columns.aggregated == 0) & (_is_far(columns.time) | _is_far(columns.duration_ps)),
            f"an event of {line!r} begins more than {MAX_HOURS} hours away or lasts longer",
        )
        return decoded

    def leave_out(self, line: Line, bad: BoolArray, reason: str) -> None:
        """Report some events as damage, and leave them out as those without a time."""
        if bad.any():
            fields = self.scan(*line.payload)
            is_event = (fields.number == LINE_EVENTS) & (fields.wire_type == _CONTENT)
            self.fault(int(fields.tag[is_event][np.flatnonzero(bad)[0]]), reason)
            line.columns.aggregated[bad] = 1

    def check_sum(self, lines: Sequence[Line]) -> None:
        """Refuse events that last longer together than a sum can hold."""
        columns = [line.columns for line in lines if line.columns.duration_ps.size]
        if sum(of.duration_ps.size * int(of.duration_ps.max()) for of in columns) <= MAX_SUM_PS:
            return
        kept = (of.duration_ps[of.aggregated == 0] for of in columns)
        if sum(float(each.sum(dtype=np.float64)) for each in kept) > MAX_SUM_PS:
            days = MAX_SUM_PS // PS_PER_S // 86400
            raise TraceFormatError(
                self.path, f"the events of the file last {days} days or more in total"
            )


def _is_far(time_ps: Int64Array) -> BoolArray:
    is_far: BoolArray = (time_ps > MAX_PS) | (time_ps < -MAX_PS)
    return is_far


def _wanted(plane: Plane) -> WantedStats:
    """The stats of events that become columns, by their slots."""
    columns = enumerate(plane.stat_columns.values())
    slot_of = {name: slot for slot, column in columns for name in column.spellings}
    return WantedStats.of(
        {key: slot_of[name] for key, name in plane.stat_names.items() if name in slot_of}
    )


def _programs_of(data: bytes, offset: int, stat_names: dict[int, bytes]) -> Iterator[Program]:
    """The programs of one entry of event metadata, of which there is one; the entry begins at `offset` of the file."""
    for value in Message(data, 0, len(data)).messages(ENTRY_VALUE):
        name = b"".join(data[begin:end] for begin, end in value.places(METADATA_NAME))
        for begin, end in value.places(METADATA_STATS):
            stat_id, kind, _ = read_stat(data, begin, end)
            if kind is ValueKind.BYTES and stat_names.get(stat_id) == _HLO_PROTO:
                for proto in Message(data, begin, end).messages(ValueKind.BYTES):
                    buffers, *_ = [*proto.places(BUFFER_ASSIGNMENT), (0, 0)]
                    for at, to in proto.places(HLO_MODULE):
                        assigned = data[slice(*buffers)]
                        yield Program(name, data[at:to], at + offset, assigned, buffers[0] + offset)
