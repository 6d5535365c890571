"""Loads a run: reads its files one after the other, aligns their clocks and joins them to a `Trace`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
from msgspec.structs import asdict, replace

from traceview.errors import TraceFormatError, TraceNotFoundError, TraceviewError
from traceview.intervals import SWEEPS
from traceview.location import Location
from traceview.stages import stage
from traceview.store.address import location_of
from traceview.trace.classify import activity_of
from traceview.trace.clocks import AlignedClocks, align, on_one_clock, without_solved
from traceview.trace.hang import Hang, hang_files, read_hang
from traceview.trace.join import DeviceParts, HostParts
from traceview.trace.locate import RunFiles, chosen_run, find_runs, host_of
from traceview.trace.memory import with_memory
from traceview.trace.model import (
    NONE,
    Device,
    Host,
    LineInfo,
    Names,
    Problem,
    Recording,
    SourceFile,
    StoredStep,
    Trace,
)
from traceview.trace.replicas import find_replicas, with_detected_strategies
from traceview.trace.sidecar import Sidecar, SidecarError, read_sidecar
from traceview.trace.steps import find_steps
from traceview.trace.task_environment import profile_times, tracer_levels
from traceview.xplane.planes import STEPS_LINE, PlaneKind
from traceview.xplane.read import MAX_HOURS, read_file
from traceview.xplane.source import read_bytes
from traceview.xplane.space import Line, Plane, PlaneSummary, Space, Stat
from traceview.xplane.table import (
    ABSOLUTE_STAMP_NS,
    PlaneTable,
    build_table,
    stat_of,
)

_DROPPED = re.compile(rb"(\d+) events? dropped")
_DROP_NOTICE: Final = b"Detected GPU events dropped"
_NAMED_FIELDS: Final = 5
"""Fields that a line names; more of them are counted."""
MOST_DEVICES: Final = 1 << 15
"""Columns hold the number of a device in 16 bits, with a sign."""

_DEVICE_KINDS: Final = {PlaneKind.GPU: "gpu", PlaneKind.TPU: "tpu"}


def load(path: str | Location, *, run: str | None = None, salvage: bool = False) -> Trace:
    """Read a run.

    `path`: a log directory, also by its address, such as `s3://bucket/logs`, a directory in it, one run's directory or a single `*.xplane.pb`. `run` selects one of
    several runs; without it the newest is read. `salvage` accepts damaged files and keeps their readable part; a
    damaged file beside good ones is always salvaged. `Trace.problems` lists the damage.

    Raises `TraceNotFoundError` if there is no trace, `TraceFormatError` if none is readable.
    """
    runs = find_runs(location_of(path))
    chosen, passed_over = chosen_run(runs, run)
    loader = _Loader(chosen, salvage=salvage)
    loader.problems += [
        Problem(
            "newer-run-unreadable",
            f"run {other.name} is newer and not readable, so this one was read: {other.reason}",
        )
        for other in passed_over
    ]
    return loader.trace(tuple(other.name for other in runs if other is not chosen))


def load_run(run: RunFiles) -> Trace:
    """Read the files of one run. Raises `TraceFormatError` and `TraceNotFoundError` if none of them can be read."""
    return _Loader(run, salvage=False).trace(())


class _Loader:
    def __init__(self, run: RunFiles, *, salvage: bool) -> None:
        self.run = run
        self.salvage = salvage
        self.names = Names()
        self.files: list[SourceFile] = []
        self.hosts: list[Host] = []
        self.devices: list[Device] = []
        self.device_index: dict[tuple[int, str], int] = {}
        self.lines: list[LineInfo] = []
        self.problems: list[Problem] = []
        self.device_parts = DeviceParts()
        self.host_parts = HostParts(self.names)
        self.stored_steps: list[StoredStep] = []

    def trace(self, other_runs: tuple[str, ...]) -> Trace:
        self.read_files()
        # Decoding has left as much free memory as the columns take, in pieces.
        SWEEPS.release_free_memory()
        with stage("joining events"):
            clocks = align(self.hosts)
            by_starts = self.recording(clocks)
        hangs = tuple(self.hangs())
        with stage("finding steps"):
            recording, steps_by_host = on_one_clock(by_starts, find_steps(by_starts))
        parts = asdict(recording) | {"hosts": with_detected_strategies(recording)}
        return Trace(
            **parts,
            logdir=self.run.logdir,
            run=self.run.name,
            run_dir=self.run.directory,
            other_runs=other_runs,
            files=tuple(self.files),
            steps_by_host=steps_by_host,
            problems=without_solved((*self.problems, *clocks.problems), recording.hosts),
            hangs=hangs,
        )

    def hangs(self) -> Iterator[Hang]:
        """The reports of hangs beside the traces."""
        for path in hang_files(self.run.directory):
            try:
                yield read_hang(path)
            except TraceFormatError as error:
                text = f"{path.name}: {error.reason}"
                self.problems.append(Problem("hang-unreadable", text, path.name.partition(".")[0]))

    def recording(self, clocks: AlignedClocks) -> Recording:
        """Everything that was read, on the clock set by the starts of the profiles."""
        offset_ps = clocks.offset_ps
        host_columns = self.host_parts.joined(offset_ps)
        device_columns = self.device_parts.joined(offset_ps, host_columns, self.names)
        replicas = find_replicas(clocks.hosts, self.devices, self.lines, self.names, host_columns)
        return Recording(
            hosts=clocks.hosts,
            device_list=(*with_memory(self.devices, host_columns, self.names), *replicas.devices),
            lines=tuple(self.lines),
            names=self.names,
            device_columns=replicas.after(device_columns),
            host_columns=host_columns,
            stored_steps=tuple(
                step.shifted(int(offset_ps[step.host])) for step in self.stored_steps
            ),
            shared_rows=replicas.shared_rows,
        )

    # Files

    def read_files(self) -> None:
        first_failure: TraceviewError | None = None
        whole_count = 0
        size_of_digest: dict[tuple[int, str], str] = {}
        sizes: list[int] = []
        for number, path in enumerate(self.run.paths, 1):
            size = path.stat().st_size if path.exists() else 0
            try:
                if size in sizes:
                    digest = hashlib.sha256(read_bytes(path)).hexdigest() if size else ""
                    original = size_of_digest.get((size, digest))
                    if original is not None:
                        self.add_duplicate(path, size, digest, original)
                        continue
                sizes.append(size)
                with stage("reading files", f"{number} of {len(self.run.paths)}"):
                    space = read_file(path, salvage=self.salvage)
                whole_count += 1
            except (TraceFormatError, TraceNotFoundError) as failure:
                first_failure = first_failure or failure
                salvaged = self.salvaged(path, size, failure)
                if salvaged is None:
                    continue
                space = salvaged
            size_of_digest[size, space.sha256] = path.name
            with stage("arranging events", f"{number} of {len(self.run.paths)}"):
                self.add_space(space)
        if first_failure and not whole_count:
            raise first_failure

    def add_duplicate(self, path: Location, size: int, digest: str, original: str) -> None:
        self.files.append(SourceFile(path, path.name, host_of(path), size, digest, 0, original))
        self.problems.append(
            Problem(
                "duplicate-host-file",
                f"{path.name} has the same bytes as {original}; it was counted once",
                host_of(path),
            )
        )

    def salvaged(
        self, path: Location, size: int, failure: TraceFormatError | TraceNotFoundError
    ) -> Space | None:
        """The readable part of a damaged file; None, and a problem, if there is none."""
        try:
            return read_file(path, salvage=True)
        except (TraceFormatError, TraceNotFoundError):
            text = failure.message.removeprefix(f"{path}: ")
            self.problems.append(Problem("damaged-file", f"{path.name}: {text}", host_of(path)))
            self.files.append(SourceFile(path, path.name, host_of(path), size, None, 0, None))
            return None

    # One file

    def add_space(self, space: Space) -> None:
        name = host_of(space.path)
        index = len(self.hosts)
        environment = tuple(
            PlaneSummary(p.name, p.kind, p.ordinal, len(p.lines), p.stats) for p in space.planes
        )
        start, stop = profile_times(environment)
        for fault in space.faults:
            self.problems.append(
                Problem(
                    "damaged-file", f"{space.path.name}: byte {fault.offset}: {fault.reason}", name
                )
            )
        lines_of = space.take_lines()
        repeated = len(space.repeated)
        if repeated:
            self.problems.append(
                Problem(
                    "repeated-lines",
                    f"{space.path.name} holds {repeated} streams and threads twice, as if the file was appended to "
                    "itself; they were counted once",
                    name,
                )
            )
        event_count = sum(line.columns.metadata_id.size for lines in lines_of for line in lines)
        origin = start if start is not None else _smallest_absolute_stamp(lines_of)
        sidecar = self.sidecar(space.path, name)
        if start is None and origin == 0 and sidecar is not None:
            start, stop = sidecar.started_ns, sidecar.stopped_ns
        threads = [line.name for lines in lines_of for line in lines]
        self.hosts.append(
            Host(
                name=name,
                file=space.path.name,
                profile_start_ns=start,
                profile_stop_ns=stop,
                start_ps=0,
                stop_ps=None,
                errors=tuple(_text(e) for e in space.errors),
                warnings=tuple(_text(w) for w in space.warnings),
                dropped_event_count=_dropped(space.warnings),
                gpus_expected=any(t.lower().startswith(b"tf_gpu_") for t in threads),
                event_count=event_count,
                sidecar=sidecar,
                tracer_levels=tracer_levels(environment),
            )
        )
        self.files.append(
            SourceFile(
                space.path, space.path.name, name, space.size, space.sha256, event_count, None
            )
        )
        # Devices by number, in whatever order the writer stored their planes.
        planes = sorted(
            zip(space.planes, lines_of, strict=True),
            key=lambda pair: (pair[0].kind.value, pair[0].ordinal),
        )
        for plane, lines in planes:
            self.add_plane(index, space, plane, build_table(plane, lines, origin))
            SWEEPS.release_free_memory()

    def sidecar(self, path: Location, host: str) -> Sidecar | None:
        try:
            sidecar = read_sidecar(path)
        except SidecarError as error:
            self.problems.append(Problem("sidecar-unreadable", str(error), host))
            return None
        if sidecar is not None and sidecar.wrong_fields:
            text = _wrong_fields(sidecar.wrong_fields)
            self.problems.append(Problem("sidecar-fields", text, host))
        return sidecar

    def add_plane(self, host: int, space: Space, plane: Plane, table: PlaneTable) -> None:
        if table.negative_duration_count:
            self.problems.append(
                Problem(
                    "negative-duration",
                    f"{table.negative_duration_count} events of {_text(plane.name)} end before they "
                    "start; they count as zero length",
                    self.hosts[host].name,
                )
            )
        if table.misplaced_line_count:
            self.problems.append(
                Problem(
                    "damaged-file",
                    f"{table.misplaced_line_count} lines of {_text(plane.name)} begin more than {MAX_HOURS} hours "
                    "before or after the profile; they were left out",
                    self.hosts[host].name,
                )
            )
        if plane.kind in _DEVICE_KINDS:
            device = self.device(host, plane)
            if device is None:
                self.too_many_devices(host)
                return
            first_line = self.add_lines(host, device, plane, table)
            self.device_parts.add(host, device, first_line, activity_of(table, self.names))
            self.stored_steps += _stored_steps(host, table)
        elif plane.kind is PlaneKind.HOST:
            self.host_parts.add(host, self.add_lines(host, NONE, plane, table), table)

    def too_many_devices(self, host: int) -> None:
        text = f"the run has more than {MOST_DEVICES:,} devices; the others were left out"
        problem = Problem("damaged-file", text, self.hosts[host].name)
        if problem not in self.problems:
            self.problems.append(problem)

    def device(self, host: int, plane: Plane) -> int | None:
        """The device of a plane; planes of one name are one device. None where there is no number left for it."""
        kind = _DEVICE_KINDS[plane.kind]
        name = f"{plane.kind.name}:{plane.ordinal}"
        index = self.device_index.get((host, name))
        if index is not None:
            known = self.devices[index]
            self.devices[index] = replace(known, stats=known.stats | _readable(plane.stats))
            return index
        if len(self.devices) >= MOST_DEVICES:
            return None
        self.device_index[host, name] = len(self.devices)
        model = stat_of(plane.stats, b"gpu_device_name") or stat_of(
            plane.stats, b"device_type_string"
        )
        self.devices.append(
            Device(
                host=host,
                name=name,
                kind=kind,
                ordinal=plane.ordinal,
                model=_text(model) if isinstance(model, bytes) else None,
                stats=_readable(plane.stats),
            )
        )
        return len(self.devices) - 1

    def add_lines(self, host: int, device: int, plane: Plane, table: PlaneTable) -> int:
        first = len(self.lines)
        # The file of a host is appended to `files` right after the host itself.
        source = len(self.files) - 1
        self.lines += [
            LineInfo(
                host, device, _text(plane.name), line.id, _text(line.name), source, plane.stat_names
            )
            for line in table.lines
        ]
        return first


def _smallest_absolute_stamp(lines_of: Iterable[list[Line]]) -> int:
    stamps = [line.timestamp_ns for lines in lines_of for line in lines if line.timestamp_ns]
    return min((stamp for stamp in stamps if stamp >= ABSOLUTE_STAMP_NS), default=0)


def _stored_steps(host: int, table: PlaneTable) -> list[StoredStep]:
    is_steps = np.array([line.name == STEPS_LINE for line in table.lines], dtype=np.bool_)
    rows = np.flatnonzero(is_steps[table.line]) if table.count else np.empty(0, dtype=np.int64)
    steps = []
    for row in rows.tolist():
        name = table.names[table.name[row]]
        if name.isdigit() and len(name) < 19:
            start = int(table.start_ps[row])
            steps.append(StoredStep(host, int(name), start, start + int(table.duration_ps[row])))
    return steps


def _dropped(warnings: tuple[bytes, ...]) -> int:
    """The number of events that the tracer reports as dropped; two stages may report the same text."""
    notices = {w[w.find(_DROP_NOTICE) :] for w in warnings if _DROP_NOTICE in w}
    return sum(int(n[:18]) for notice in notices for n in _DROPPED.findall(notice))


def _wrong_fields(fields: tuple[str, ...]) -> str:
    named = ", ".join(fields[:_NAMED_FIELDS])
    more = len(fields) - _NAMED_FIELDS
    return f"the sidecar has values of the wrong type or size in {named}" + (
        f" and {more} more; these were left out" if more > 0 else "; these were left out"
    )


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def _readable(stats: tuple[Stat, ...]) -> dict[str, int | float | str]:
    return {
        _text(stat.name): _text(stat.value) if isinstance(stat.value, bytes) else stat.value
        for stat in stats
    }
