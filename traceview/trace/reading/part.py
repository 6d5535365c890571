"""Reads what one file says of its host: a part of a run, before the hosts are joined.

All that a host can tell by itself is computed here: its events with their launches and classes, its replicas, its
memory, its steps. Parts may be read in any order, on other machines too; `load` joins them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from traceview.base.errors import TraceFormatError, TraceNotFoundError
from traceview.base.ids import in_order, is_in
from traceview.base.location import Location
from traceview.base.sweeping import SWEEPS, made_ahead
from traceview.base.text import lazy_pattern
from traceview.base.timing import stage
from traceview.trace.columns import (
    NO_DEVICE_EVENTS,
    NO_HOST_EVENTS,
    NONE,
    DeviceColumns,
    HostColumns,
    HostStat,
    Names,
    concatenated,
)
from traceview.trace.device.classify import (
    InstructionNumbers,
    activity_of,
    program_buffers,
    with_buffered_instructions,
    with_final_classes,
)
from traceview.trace.device.correlation import find_launches
from traceview.trace.model import (
    MOST_DEVICES,
    TOO_MANY_DEVICES,
    Device,
    Host,
    HostSteps,
    LineInfo,
    Problem,
    Recording,
)
from traceview.trace.reading.locate import host_of, profile_times
from traceview.trace.sidecar.sidecar import Sidecar, SidecarError, read_sidecar
from traceview.trace.strategy.collectives import find_collective_calls
from traceview.trace.strategy.replicas import Replicas, find_replicas, find_xla_devices
from traceview.trace.strategy.steps import StoredStep, find_steps
from traceview.xplane.columns import Line, Plane, Space, Stat
from traceview.xplane.decode_reference import DamageError
from traceview.xplane.planes import STEPS_LINE, TEXT_STATS, PlaneKind
from traceview.xplane.read import MAX_HOURS, read_file, salvage_hint
from traceview.xplane.table import ABSOLUTE_STAMP_NS, PlaneTable, build_table, stat_of


def _host_part(table: PlaneTable, first_line: int, first_row: int, names: Names) -> HostColumns:
    """The events of one host plane, whose lines and rows begin at these of the file, as those of host 0."""
    name_of = names.add_all(table.names)
    stats = {}
    for key in table.keys:
        if key in TEXT_STATS:
            texts = table.texts(key)
            event, value = texts.event, names.add_all(texts.texts).astype(np.int64)[texts.index]
        else:
            ints = table.ints(key)
            # A part of the column of all stats would keep all of it.
            event, value = ints.event, ints.value.copy()
        stats[key] = HostStat(event + first_row, value)
    return HostColumns(
        host=np.zeros(table.count, dtype=np.int16),
        line=table.line + np.int32(first_line),
        start_ps=table.start_ps,
        duration_ps=table.duration_ps,
        name=name_of[table.name],
        stats=stats,
    )


def _joined_devices(
    parts: list[DeviceColumns], host_columns: HostColumns, names: Names
) -> DeviceColumns:
    """All device events by device and start, with their launches and final classes."""
    columns = concatenated(parts or [NO_DEVICE_EVENTS])
    launch = find_launches(columns.correlation_id, host_columns)
    columns = with_final_classes(replace(columns, launch=launch), host_columns.name, names)
    # Events that begin together have an order of their own, whatever that of the file is.
    keys = columns.device, columns.start_ps, -columns.end_ps, columns.class_
    if in_order(*keys):
        return columns
    order = np.lexsort(keys[::-1])
    return DeviceColumns(**{key: column[order] for key, column in asdict(columns).items()})


_DROPPED = lazy_pattern(rb"(?<!\d)(\d{1,18}) events? dropped")
_DROP_NOTICE: Final = b"Detected GPU events dropped"

_LARGE_BYTES: Final = 1 << 24
"""Of a file; asking the system takes as long as to arrange a small one."""

_DEVICE_KINDS: Final = {PlaneKind.GPU: "gpu", PlaneKind.TPU: "tpu"}


class Part(Struct, frozen=True, eq=False):
    """What one file gives of its host, which is the only host of `recording`, with times since its own profile start.

    `steps`: of the host. `problems`: of the file. `sha256`: of the whole file, empty if it was not asked for.
    """

    recording: Recording
    steps: HostSteps
    problems: tuple[Problem, ...]
    sha256: str


class HostFile(Struct, frozen=True, eq=False):
    """A file of `bytes` bytes that was read: its part, None if nothing is readable.

    `error`: why it could not be read as a whole; its part is then what was readable.
    """

    bytes: int
    part: Part | None
    error: TraceFormatError | TraceNotFoundError | None


def read_host(path: Location, *, salvage: bool = False, with_digest: bool = True) -> HostFile:
    """Read the file of one host. `salvage`: damage is accepted, and listed in the problems of the part.

    `with_digest`: as of `read_file`.

    What the file itself cannot give is in the result and raises nothing; raises `StoreError` if its store fails.
    """
    try:
        space = read_file(path, salvage=False, with_digest=with_digest)
        return HostFile(space.size, _PartReader(space, salvage=False).part(), None)
    except (TraceFormatError, TraceNotFoundError) as reason:
        error = reason
    try:
        space = read_file(path, salvage=True, with_digest=with_digest)
        if any(plane.event_metadata and plane.payloads for plane in space.planes):
            error.hint = error.hint or salvage_hint(path)
            part = _PartReader(space, salvage=True).part()
            return HostFile(space.size, part, None if salvage else error)
        error.hint = (
            "nothing of it can be saved: names of events come after them; copy the file again"
        )
    except (TraceFormatError, TraceNotFoundError):
        # Nothing is readable.
        error.hint = None if error.hint == salvage_hint(path) else error.hint
    return HostFile(path.stat().st_size if path.exists() else 0, None, error)


class _PartReader:
    """Arranges the content of one file."""

    def __init__(self, space: Space, *, salvage: bool) -> None:
        self.space = space
        self.host = host_of(space.path)
        self.salvage = salvage
        self.names = Names()
        self.numbers = InstructionNumbers(self.names)
        self.devices: list[Device] = []
        self.device_index: dict[str, int] = {}
        self.lines: list[LineInfo] = []
        self.problems: list[Problem] = []
        self.device_parts: list[DeviceColumns] = []
        self.host_parts: list[HostColumns] = []
        self.stored_steps: list[StoredStep] = []

    def part(self) -> Part:
        with stage("arranging events"):
            host = self.arrange()
        if self.space.size >= _LARGE_BYTES:
            # Decoding has left as much free memory as the columns take, in pieces.
            SWEEPS.release_free_memory()
        with stage("joining events"):
            recording = self.recording(host)
        with stage("finding steps"):
            steps = find_steps(recording, self.stored_steps)
        return Part(recording, steps, tuple(self.problems), self.space.digest)

    def recording(self, host: Host) -> Recording:
        host_columns = concatenated(self.host_parts or [NO_HOST_EVENTS])
        # A file may hold its planes twice.
        programs = {program.name: program for program in self.space.programs}.values()
        device_columns = with_buffered_instructions(
            _joined_devices(self.device_parts, host_columns, self.names),
            self.names,
            self.numbers,
            programs,
            self.damaged_program,
        )
        replicas = Replicas()
        if not (self.devices or host.gpus_expected):
            replicas = find_replicas(self.lines, self.names, host_columns, host.captured)
            if not replicas.devices:
                replicas = find_xla_devices(self.names, host_columns, self.numbers)
            device_columns = replicas.columns or device_columns
        calls = find_collective_calls(device_columns, host_columns, self.names, self.lines)
        instructions = self.numbers.instructions(programs, self.damaged_program)
        return Recording(
            hosts=(host,),
            device_list=(*self.devices, *replicas.devices),
            lines=tuple(self.lines),
            names=self.names,
            device_columns=device_columns,
            host_columns=host_columns,
            shared_rows=replicas.shared_rows,
            collective_calls=calls,
            instructions=instructions,
            program_buffers=program_buffers(programs, instructions, self.damaged_program),
        )

    def damaged_program(self, error: DamageError) -> None:
        """Raise for a program that cannot be read, or note it when salvaging."""
        fault = error.fault
        if not self.salvage:
            reason = f"damaged program: {fault.reason}"
            raise TraceFormatError(self.space.path, reason, offset=fault.offset)
        self.problem("damaged-file", f"damaged program at byte {fault.offset}", fault.reason)

    def arrange(self) -> Host:
        """Sort the events into columns, plane by plane; what the file says of the host."""
        space = self.space
        start, stop = profile_times(space.planes)
        for fault in space.faults:
            reason = fault.reason.removeprefix("damaged: ")
            self.problem("damaged-file", f"damaged at byte {fault.offset}", reason)
        lines_of = space.take_lines()
        repeated = len(space.repeated)
        if repeated:
            self.problem(
                "repeated-lines",
                f"the file holds {repeated} streams and threads twice, as if it was appended to itself; they were "
                "counted once",
            )
        event_count = sum(line.columns.metadata_id.size for lines in lines_of for line in lines)
        origin = start if start is not None else _smallest_absolute_stamp(lines_of)
        sidecar = self.sidecar()
        if start is None and origin == 0 and sidecar is not None:
            start, stop = sidecar.clock.starting.wall_ns, sidecar.clock.stopped.wall_ns
        threads = [line.header.name for lines in lines_of for line in lines]
        # Devices by number, in whatever order the writer stored their planes.
        planes = sorted(
            zip(space.planes, lines_of, strict=True),
            key=lambda pair: (pair[0].kind.value, pair[0].ordinal),
        )
        arranged = [
            pair for pair in planes if pair[1] or pair[0].kind in (*_DEVICE_KINDS, PlaneKind.HOST)
        ]
        tables = made_ahead(
            lambda pair: build_table(*pair, origin), arranged, int(space.size >= _LARGE_BYTES)
        )
        for table in tables:
            self.add_plane(table.plane, table)
        return Host(
            name=self.host,
            file=space.path.name,
            profile_start_ns=start,
            profile_stop_ns=stop,
            start_ps=0,
            stop_ps=None,
            errors=tuple(_text(e) for e in space.errors),
            dropped_event_count=_dropped(space.warnings),
            gpus_expected=any(t.lower().startswith(b"tf_gpu_") for t in threads),
            event_count=event_count,
            sidecar=sidecar,
        )

    def problem(self, code: str, text: str, recorded: str = "") -> None:
        self.problems.append(Problem(code, text, self.host, recorded))

    def sidecar(self) -> Sidecar | None:
        try:
            return read_sidecar(self.space.path)
        except SidecarError as error:
            text = "the sidecar with settings, lines of Python and waits for cores cannot be read"
            self.problem("sidecar-unreadable", text, str(error))
            return None

    def add_plane(self, plane: Plane, table: PlaneTable) -> None:
        if table.negative_duration_count:
            self.problem(
                "negative-duration",
                f"{table.negative_duration_count} events end before they start; they count as zero length",
                _text(plane.name),
            )
        if table.misplaced_line_count:
            self.problem(
                "damaged-file",
                f"{table.misplaced_line_count} lines begin more than {MAX_HOURS} hours before or after the profile; "
                "they were left out",
                _text(plane.name),
            )
        if plane.kind in _DEVICE_KINDS:
            device = self.device(plane)
            first_line = self.add_lines(device, table)
            if table.count:
                self.device_parts.append(
                    activity_of(table, self.names, self.numbers, device, first_line)
                )
                self.stored_steps += _stored_steps(table)
        elif plane.kind is PlaneKind.HOST:
            first_line = self.add_lines(NONE, table)
            first_row = sum(part.count for part in self.host_parts)
            self.host_parts.append(_host_part(table, first_line, first_row, self.names))

    def device(self, plane: Plane) -> int:
        """The device of a plane; planes of one name are one device."""
        kind = _DEVICE_KINDS[plane.kind]
        name = f"{plane.kind.name}:{plane.ordinal}"
        index = self.device_index.get(name)
        if index is not None:
            known = self.devices[index]
            self.devices[index] = replace(known, stats=known.stats | _readable(plane.stats))
            return index
        if len(self.devices) >= MOST_DEVICES:
            raise TraceFormatError(self.space.path, TOO_MANY_DEVICES)
        self.device_index[name] = len(self.devices)
        model = stat_of(plane.stats, b"gpu_device_name") or stat_of(
            plane.stats, b"device_type_string"
        )
        self.devices.append(
            Device(
                host=0,
                name=name,
                kind=kind,
                ordinal=plane.ordinal,
                model=_text(model) if isinstance(model, bytes) else None,
                stats=_readable(plane.stats),
            )
        )
        return len(self.devices) - 1

    def add_lines(self, device: int, table: PlaneTable) -> int:
        first = len(self.lines)
        self.lines += [LineInfo(0, device, line.id, _text(line.name)) for line in table.lines]
        return first


def _smallest_absolute_stamp(lines_of: Iterable[list[Line]]) -> int:
    stamps = [line.header.timestamp_ns for lines in lines_of for line in lines]
    return min((stamp for stamp in stamps if stamp >= ABSOLUTE_STAMP_NS), default=0)


def _stored_steps(table: PlaneTable) -> list[StoredStep]:
    """The steps that the writer of the file derived for one device."""
    lines = [number for number, line in enumerate(table.lines) if line.name == STEPS_LINE]
    steps = []
    for row in np.flatnonzero(is_in(table.line, lines)).tolist():
        name = table.names[table.name[row]]
        if name.isdigit() and len(name) < 19:
            start = int(table.start_ps[row])
            steps.append((int(name), start, start + int(table.duration_ps[row])))
    return steps


def _dropped(warnings: tuple[bytes, ...]) -> int:
    """The number of events that the tracer reports as dropped; two stages may report the same text."""
    notices = {w[w.find(_DROP_NOTICE) :] for w in warnings if _DROP_NOTICE in w}
    return sum(int(n[:18]) for notice in notices for n in _DROPPED.findall(notice))


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def _readable(stats: tuple[Stat, ...]) -> dict[str, int | float | str]:
    return {
        _text(stat.name): _text(stat.value) if isinstance(stat.value, bytes) else stat.value
        for stat in stats
    }
