"""Reads one XPlane file: its planes, their metadata, and every event as columns.

The decoder parses the metadata of a plane and the events of a line. The reader walks the structure around them, so
that every fault has a byte offset and a damaged part leaves the others readable.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from importlib import import_module
from threading import Event, Lock
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceview.base.errors import TraceFormatError
from traceview.base.intervals import Int64Array
from traceview.base.location import Location
from traceview.base.text import shell_path
from traceview.base.units import PS_PER_S
from traceview.store.address import is_remote
from traceview.xplane import decode_reference
from traceview.xplane.columns import (
    Buffer,
    Fault,
    Fields,
    LineColumns,
    LineHeader,
    ValueKind,
    WantedStats,
    joined,
)
from traceview.xplane.decode_reference import DamageError
from traceview.xplane.message import Message
from traceview.xplane.planes import DEVICE_STATS, HOST_STATS, PlaneKind, plane_kind
from traceview.xplane.source import BLOCK_BYTES, FileBytes, partly_read
from traceview.xplane.space import (
    Line,
    Plane,
    PlaneHeader,
    PlaneSummary,
    Program,
    Space,
    SpaceSummary,
)

try:
    _compiled: ModuleType | None = import_module("traceview.xplane.decode")
except ImportError:
    _compiled = None

DECODER: Final[ModuleType] = decode_reference if _compiled is None else _compiled
"""The decoder in use: the compiled one, or the reference if the installation had no compiler."""

SPACE_PLANES: Final = 1
SPACE_ERRORS: Final = 2
SPACE_WARNINGS: Final = 3
SPACE_HOSTNAMES: Final = 4
PLANE_NAME: Final = 2
PLANE_LINES: Final = 3
PLANE_EVENT_METADATA: Final = 4
ENTRY_VALUE: Final = 2
METADATA_NAME: Final = 2
METADATA_STATS: Final = 5
HLO_MODULE: Final = 1
BUFFER_ASSIGNMENT: Final = 3
"""Fields by which the reader finds its way through an XSpace (openxla/xla `tsl/profiler/protobuf/xplane.proto`), and to
the programs in it."""

_HLO_PROTO: Final = b"Hlo Proto"

_CONTENT: Final = 2
_BLOCK_BYTES: Final = 1 << 20
_MOST_THREADS: Final = 8
_THREADED_BYTES: Final = 1 << 24
"""A smaller file is read whole, and decoded in less time than threads lose by taking turns at Python's lock."""

MAX_PS: Final = 1 << 57
"""The longest time within a profile; far below int64, so that sums of dozens of such times still fit."""

MAX_HOURS: Final = MAX_PS // (PS_PER_S * 3600)
MAX_SUM_PS: Final = 1 << 60
"""The most that all events of a file may last together, so that no sum of durations leaves int64."""


def read_summary(path: Location) -> SpaceSummary:
    """The planes of a file without their events; only the needed parts of the file are read.

    Damage outside of the events is collected in `faults`; only a file that is not a trace raises.
    """
    with partly_read(path) as data:
        reader = _Reader(path, data, salvage=True)
        planes = tuple(reader.summary(begin, end) for begin, end in reader.plane_bounds())
        return SpaceSummary(planes, tuple(reader.faults))


def read_file(path: Location, *, salvage: bool = False, with_digest: bool = False) -> Space:
    """Read one `*.xplane.pb`. `with_digest`: its bytes are read once more, for their SHA-256.

    Raises `TraceNotFoundError` if it cannot be opened, `TraceFormatError` with the byte offset if it is not a trace or
    damaged. With `salvage` damage is collected in `faults`, and the readable part is returned.
    """
    with partly_read(path) as data:
        try:
            if len(data) < _THREADED_BYTES:
                return _Reader(path, data[:], salvage=salvage).space_with(partial, with_digest)
            # A store gives a whole file in several ranges at the same time, but parts of it one after another.
            reader = _Reader(path, data[:] if is_remote(path) else data, salvage=salvage)
            # Each thread holds the bytes of one line.
            with started_threads() as start:
                return reader.space_with(start, with_digest)
        except MemoryError:
            raise TraceFormatError(
                path,
                f"{len(data):,} bytes do not fit into memory",
                hint="record fewer steps",
            ) from None


Start: TypeAlias = Callable[..., Callable[[], Any]]
"""Starts a call with its arguments, and returns what waits for its result."""


class _SpaceHeader(NamedTuple):
    hostnames: list[bytes]
    errors: list[bytes]
    warnings: list[bytes]


class _PlaneParts(Struct, frozen=True, eq=False):
    header: PlaneHeader
    line_bounds: list[tuple[int, int]]
    spellings: dict[str, tuple[bytes, ...]]
    wanted: WantedStats
    programs: tuple[Program, ...]


class _Reader:
    def __init__(self, path: Location, data: Buffer, *, salvage: bool) -> None:
        self.path = path
        self.data = data
        self.salvage = salvage
        self.faults: list[Fault] = []
        # Ends of parts that were reported as cut off; a cut at the same end inside such a part is the same damage.
        self.cut_ends: set[int] = set()

    def space_with(self, start: Start, with_digest: bool) -> Space:
        decoding = [
            (part, self.start_lines(start, part))
            for part in (self.parts(begin, end) for begin, end in self.plane_bounds())
        ]
        planes = tuple(
            self.plane(part, [decoded() for decoded in lines]) for part, lines in decoding
        )
        self.check_sum([line for plane in planes for line in plane.lines])
        repeated = self.repeated(planes)
        header = self.space_header
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
            begin_digest(self.data, start) if with_digest else str,
            planes,
            tuple(program for part, _ in decoding for program in part.programs),
            tuple(header.hostnames),
            tuple(dict.fromkeys(header.errors)),
            tuple(dict.fromkeys(header.warnings)),
            repeated,
            tuple(self.faults),
        )

    def part(self, begin: int, end: int) -> bytes | memoryview:
        """The bytes from `begin` to `end`; called on threads too."""
        if isinstance(self.data, FileBytes):
            part = np.empty(end - begin, dtype=np.uint8)
            self.data.read_into(part.data, begin)
            return part.data
        return memoryview(self.data)[begin:end]

    def repeated(self, planes: Iterable[Plane]) -> frozenset[tuple[int, int]]:
        """The payloads of lines that are exact copies of lines in an earlier plane of the same name."""
        first: dict[tuple[bytes, int, int], tuple[int, int]] = {}
        contents: dict[tuple[bytes, int, int], set[bytes]] = {}
        repeated = set()
        for plane in planes:
            for line in plane.lines:
                begin, end = line.payload
                key = (plane.name, line.id, end - begin)
                if key not in first:
                    # Almost every line: it is not read for this.
                    first[key] = line.payload
                    continue
                known = contents.setdefault(key, {self.content_digest(*first[key])})
                content = self.content_digest(begin, end)
                if content in known:
                    repeated.add(line.payload)
                known.add(content)
        return frozenset(repeated)

    def content_digest(self, begin: int, end: int) -> bytes:
        from hashlib import sha256

        return sha256(self.part(begin, end)).digest()

    def fault(self, offset: int, reason: str) -> None:
        """Raise for damage at `offset`, or note it when salvaging."""
        if not self.salvage:
            raise TraceFormatError(
                self.path,
                reason,
                offset=offset,
                hint=f"what is readable of it: traceview analyze {shell_path(self.path)} --salvage",
            )
        self.faults.append(Fault(offset, reason))

    def scan(self, begin: int, end: int) -> Fields:
        if isinstance(self.data, FileBytes):
            return _scan_parts(self.data, begin, end)
        fields: Fields = DECODER.scan_fields(self.data, begin, end)
        return fields

    def plane_bounds(self) -> list[tuple[int, int]]:
        fields = self.scan(0, len(self.data))
        self.space_header = _SpaceHeader(
            self.contents(fields, SPACE_HOSTNAMES),
            self.contents(fields, SPACE_ERRORS),
            self.contents(fields, SPACE_WARNINGS),
        )
        bounds = fields.places(SPACE_PLANES)
        if fields.fault:
            bounds += self.cut_plane(fields.fault)
        return bounds

    def cut_plane(self, fault: Fault) -> list[tuple[int, int]]:
        """The bounds of a plane that the end of the file cuts off, after reporting the fault."""
        cut = decode_reference.read_cut_field(self.data, fault.offset, len(self.data))
        if cut is None or cut.number != SPACE_PLANES:
            self.fault(fault.offset, f"damaged: {fault.reason}")
            return []
        inner = self.scan(cut.begin, len(self.data))
        name = self.plane_name(inner)
        self.fault(
            fault.offset,
            f"cut off: the plane {name.decode(errors='replace')!r} needs "
            f"{cut.begin + cut.size - fault.offset} bytes, "
            f"the file ends after {len(self.data) - fault.offset} of them",
        )
        self.cut_ends.add(len(self.data))
        return [(cut.begin, len(self.data))]

    def contents(self, fields: Fields, number: int) -> list[bytes]:
        """The contents of all fields of a number."""
        return [bytes(self.data[begin:end]) for begin, end in fields.places(number)]

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

    def split(
        self, begin: int, end: int, *, with_events: bool = True
    ) -> tuple[PlaneHeader, list[tuple[int, int]]]:
        """A plane's header and the bounds of its lines."""
        fields = self.scan(begin, end)
        in_header = (fields.number != PLANE_LINES) | (fields.wire_type != _CONTENT)
        if not with_events or self.kind(fields) is PlaneKind.METADATA:
            # In that plane the metadata of an event is a whole compiled program.
            in_header &= fields.number != PLANE_EVENT_METADATA
        header = self.plane_header(fields.tag[in_header], fields.end[in_header])
        bounds = fields.places(PLANE_LINES)
        if fields.fault:
            cut = decode_reference.read_cut_field(self.data, fields.fault.offset, end)
            name = header.name.decode(errors="replace")
            if end not in self.cut_ends:
                self.fault(fields.fault.offset, f"damaged plane {name!r}: {fields.fault.reason}")
            self.cut_ends.add(end)
            if cut is not None and cut.number == PLANE_LINES:
                bounds.append((cut.begin, end))
        return header, bounds

    def programs(self, begin: int, end: int, stat_names: dict[int, bytes]) -> Iterator[Program]:
        """The compiled programs in the plane that holds them."""
        fields = self.scan(begin, end)
        for place in fields.places(PLANE_EVENT_METADATA):
            try:
                yield from self.programs_of(Message(self.data, *place), stat_names)
            except DamageError as error:
                self.fault(error.fault.offset, f"damaged program: {error.fault.reason}")

    def programs_of(self, entry: Message, stat_names: dict[int, bytes]) -> Iterator[Program]:
        """The programs of one entry of event metadata, of which there is one."""
        for value in entry.messages(ENTRY_VALUE):
            name = b"".join(bytes(self.part(*at)) for at in value.places(METADATA_NAME))
            for stat in value.places(METADATA_STATS):
                stat_id, kind, _ = decode_reference.read_stat(self.data, *stat)
                if kind is ValueKind.BYTES and stat_names.get(stat_id) == _HLO_PROTO:
                    for proto in Message(self.data, *stat).messages(ValueKind.BYTES):
                        assigned, *_ = [*proto.places(BUFFER_ASSIGNMENT), (0, 0)]
                        buffers = bytes(self.part(*assigned))
                        for at, to in proto.places(HLO_MODULE):
                            module = bytes(self.part(at, to))
                            yield Program(name, module, at, buffers, assigned[0])

    def kind(self, fields: Fields) -> PlaneKind:
        """The kind of the plane with these fields."""
        return plane_kind(self.plane_name(fields))[0]

    def plane_name(self, fields: Fields) -> bytes:
        """The name among the fields of a plane; empty without one."""
        names = self.contents(fields, PLANE_NAME)
        return names[-1] if names else b""

    def parts(self, begin: int, end: int) -> _PlaneParts:
        header, line_bounds = self.split(begin, end)
        kind, _ = plane_kind(header.name)
        has_programs = kind is PlaneKind.METADATA
        programs = self.programs(begin, end, header.stat_names) if has_programs else ()
        spellings = HOST_STATS if kind is PlaneKind.HOST else DEVICE_STATS
        slot_of = {name: slot for slot, names in enumerate(spellings.values()) for name in names}
        wanted = {key: slot_of[name] for key, name in header.stat_names.items() if name in slot_of}
        return _PlaneParts(header, line_bounds, spellings, WantedStats.of(wanted), tuple(programs))

    def start_lines(self, start: Start, part: _PlaneParts) -> list[Callable[[], LineColumns]]:
        """Start decoding the lines of a plane, the longest first; what waits for each, in the order of the file."""
        by_size = sorted(part.line_bounds, key=lambda bounds: bounds[0] - bounds[1])
        started = {bounds: start(self.decode_line, *bounds, part.wanted) for bounds in by_size}
        return [started[bounds] for bounds in part.line_bounds]

    def decode_line(self, begin: int, end: int, wanted: WantedStats) -> LineColumns:
        """The columns of a line, with its offsets in the file and its texts; runs on a thread."""
        data = self.part(begin, end)
        columns: LineColumns = DECODER.decode_line(data, 0, len(data), wanted)
        is_text = (columns.stat_kind == ValueKind.STR) | (columns.stat_kind == ValueKind.BYTES)
        texts, index = DECODER.intern_contents(data, columns.stat_value[is_text])
        columns.stat_value[is_text] = index
        columns.position[:] += begin
        fault = columns.fault and Fault(columns.fault.offset + begin, columns.fault.reason)
        return replace(columns, fault=fault, contents=tuple(texts))

    def plane(self, parts: _PlaneParts, columns: list[LineColumns]) -> Plane:
        header = parts.header
        kind, ordinal = plane_kind(header.name)
        lines = [
            self.line(header.name, bounds, columns_)
            for bounds, columns_ in zip(parts.line_bounds, columns, strict=True)
        ]
        return Plane(
            header.id,
            header.name,
            kind,
            ordinal,
            header.event_metadata,
            header.stat_names,
            header.stats,
            parts.spellings,
            lines,
        )

    def line(self, plane_name: bytes, bounds: tuple[int, int], columns: LineColumns) -> Line:
        header = columns.header
        if columns.fault and bounds[1] not in self.cut_ends:
            line, plane = (name.decode(errors="replace") for name in (header.name, plane_name))
            where = f"line {line!r} of {plane!r}"
            self.fault(columns.fault.offset, f"damaged {where}: {columns.fault.reason}")
        self.check_times(header, columns)
        return Line(
            header.id, header.name, header.display_name, header.timestamp_ns, columns, bounds
        )

    def check_times(self, header: LineHeader, columns: LineColumns) -> None:
        """Report times that do not fit into int64 picoseconds as damage, and leave their events out."""
        timed = columns.aggregated == 0
        bad = timed & (
            (columns.time > MAX_PS)
            | (columns.time < -MAX_PS)
            | (columns.duration_ps > MAX_PS)
            | (columns.duration_ps < -MAX_PS)
        )
        if bad.any():
            first = int(columns.position[np.flatnonzero(bad)[0]])
            name = header.name.decode(errors="replace")
            self.fault(
                first,
                f"an event of {name!r} begins more than {MAX_HOURS} hours away or lasts longer",
            )
            columns.aggregated[bad] = 1

    def check_sum(self, lines: Sequence[Line]) -> None:
        """Report events that last longer together than a sum can hold as damage, and leave out the longest ones."""
        timed = [line for line in lines if line.columns.duration_ps.size]
        count = sum(line.columns.duration_ps.size for line in timed)
        most_ps = sum(
            line.columns.duration_ps.size * int(line.columns.duration_ps.max()) for line in timed
        )
        if most_ps <= MAX_SUM_PS:
            return
        kept = [np.where(line.columns.aggregated, 0, line.columns.duration_ps) for line in timed]
        if sum(float(duration.sum(dtype=np.float64)) for duration in kept) <= MAX_SUM_PS:
            return
        longest_ps = MAX_SUM_PS // count
        for line, duration in zip(timed, kept, strict=True):
            bad = duration > longest_ps
            if bad.any():
                first = int(line.columns.position[np.flatnonzero(bad)[0]])
                name = line.name.decode(errors="replace")
                seconds = longest_ps / PS_PER_S
                self.fault(
                    first,
                    f"the events of the file last {MAX_SUM_PS // PS_PER_S // 86400} days together or more; those of "
                    f"{name!r} that are longer than {seconds:.3g} s were left out",
                )
                line.columns.aggregated[bad] = 1

    def summary(self, begin: int, end: int) -> PlaneSummary:
        header, line_bounds = self.split(begin, end, with_events=False)
        kind, ordinal = plane_kind(header.name)
        return PlaneSummary(header.name, kind, ordinal, len(line_bounds), header.stats)


def _scan_parts(data: FileBytes, begin: int, end: int) -> Fields:
    """The fields of the message at `data[begin:end]`; the content of long ones is not read."""
    parts: list[tuple[Int64Array, ...]] = []
    fault, at = None, begin
    while at < end and fault is None:
        block = data[at : min(at + BLOCK_BYTES, end)]
        inside: Fields = DECODER.scan_fields(block, 0, len(block))
        places = (inside.tag + at, inside.begin + at, inside.end + at)
        parts.append((inside.number, inside.wire_type, *places))
        if inside.fault is None:
            at += len(block)
            continue
        # The end of the block cuts this field, unless it is damaged.
        next_ = decode_reference.scan_fields(data, at + inside.fault.offset, end, most=1)
        parts.append((next_.number, next_.wire_type, next_.tag, next_.begin, next_.end))
        fault = next_.fault
        at = int(next_.end[-1]) if fault is None else end
    columns = [joined([part[column] for part in parts], np.int64) for column in range(5)]
    return Fields(columns[0], columns[1], columns[2], columns[3], columns[4], fault)


@contextmanager
def started_threads() -> Iterator[Start]:
    """What starts a call on one of some threads. Calls that are under way at the end go on, after an error none begins.

    All threads start before the first call needs memory: one that finds none left ends before it can say that it has
    started, and Python waits for ever (CPython 3.10 to 3.13, `Thread.start`).
    """
    from concurrent.futures import Future, ThreadPoolExecutor

    count = min(_MOST_THREADS, 1 + (os.cpu_count() or 1))
    pool = ThreadPoolExecutor(count)
    all_started = Event()

    def start(call: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
        made: Future[Any] = Future()
        turn = Lock()

        def make() -> None:
            if turn.acquire(blocking=False):
                try:
                    made.set_result(call(*arguments))
                except BaseException as error:
                    made.set_exception(error)

        try:
            # Threads allocate memory as this one does.
            pool.submit(copy_context().run, make)
        except RuntimeError:
            # No further thread may be started, in a container for instance. One that is there may have the call all the same.
            make()
        return made.result

    # A thread that waits takes no other call, so each of these starts one.
    with suppress(RuntimeError):
        for _ in range(count):
            pool.submit(all_started.wait)
    all_started.set()
    try:
        yield start
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown(wait=False)


def begin_digest(data: Buffer, start: Start) -> Callable[[], str]:
    """Begin to compute the digest; what is given waits for it, also after the file is closed.

    It raises `TraceFormatError` if the file became shorter.
    """
    copy = data.duplicate() if isinstance(data, FileBytes) else None
    if copy is None:
        found = digest_of(data)
        return lambda: found

    def compute() -> str:
        try:
            return digest_of(copy)
        finally:
            copy.close()

    return start(compute)


def digest_of(data: Buffer) -> str:
    """The SHA-256 of the bytes in hexadecimal digits."""
    # The library of it takes longer to load than a small trace.
    from hashlib import sha256

    if not isinstance(data, FileBytes):
        return sha256(data).hexdigest()
    digest = sha256()
    block = memoryview(bytearray(_BLOCK_BYTES))
    size = len(data)
    for begin in range(0, size, _BLOCK_BYTES):
        part = block[: min(_BLOCK_BYTES, size - begin)]
        data.read_into(part, begin)
        digest.update(part)
    return digest.hexdigest()
