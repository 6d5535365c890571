"""Loads a run: reads the file of every host, joins what they say to one recording, and aligns their clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Final, TypeAlias

import numpy as np
from msgspec.structs import asdict, replace

from traceview.base.errors import TraceFormatError
from traceview.base.ids import is_in
from traceview.base.intervals import Int64Array
from traceview.base.location import Location
from traceview.base.stats import MAD_TO_SIGMA, median_ps
from traceview.base.timing import stage
from traceview.base.units import PS_PER_NS
from traceview.store.address import location_of
from traceview.trace.columns import (
    NO_DEVICE_EVENTS,
    NO_HOST_EVENTS,
    NONE,
    CollectiveCalls,
    DeviceColumns,
    HostColumns,
    HostStat,
    Names,
    concatenated,
)
from traceview.trace.host.thread_clocks import without_stops
from traceview.trace.model import (
    MOST_DEVICES,
    TOO_MANY_DEVICES,
    Host,
    HostClock,
    HostSteps,
    LineInfo,
    Problem,
    Recording,
    SourceFile,
    Trace,
    step_groups,
)
from traceview.trace.reading.locate import RunFiles, choose_run, find_runs, host_of
from traceview.trace.reading.part import HostFile, Part, read_host
from traceview.trace.sidecar.hang import Hang, hang_files, read_hang
from traceview.trace.strategy.collectives import CollectiveKind, match_collectives
from traceview.trace.strategy.replicas import with_detected_strategies
from traceview.xplane.columns import Instruction
from traceview.xplane.planes import TEXT_STATS
from traceview.xplane.read import MAX_HOURS, MAX_PS

Readers: TypeAlias = Callable[[Sequence[Location], bool], Iterator[tuple[int, HostFile]]]
"""Reads files, salvaging or not, and gives each with its number among them, in any order."""


def load(
    path: str | Location,
    *,
    run: str | None = None,
    salvage: bool = False,
    readers: Readers | None = None,
    with_digests: bool = True,
) -> Trace:
    """Read a run.

    `path`: a log directory, also by its address, such as `s3://bucket/logs`, a directory in it, one run's directory or a single `*.xplane.pb`. `run` selects one of
    several runs; without it the newest is read. `salvage` accepts damaged files and keeps their readable part; a
    damaged file beside good ones is always salvaged. `Trace.problems` lists the damage. `readers`: who reads the files, by default this process. `with_digests`: the SHA-256 of a
    single file is needed; of several it always is, to find copies.

    Raises `TraceNotFoundError` if there is no trace, `TraceFormatError` if none is readable, and what reading raises.
    """
    runs = find_runs(location_of(path))
    chosen, problems = choose_run(runs, run)
    others = tuple(other.name for other in runs if other is not chosen)
    is_digested = with_digests or len(chosen.paths) > 1
    read = readers or partial(read_here, with_digests=is_digested)
    return _trace(chosen, read(chosen.paths, salvage), problems, others)


def load_run(run: RunFiles) -> Trace:
    """Read the files of one run. Raises `TraceFormatError` and `TraceNotFoundError` if none of them can be read."""
    return _trace(run, read_here(run.paths, False), [], ())


def read_here(
    paths: Sequence[Location], salvage: bool, *, with_digests: bool = True
) -> Iterator[tuple[int, HostFile]]:
    """Read the files one after the other in this process; each is decoded on threads."""
    for number, path in enumerate(paths):
        with stage("reading files", f"{number + 1} of {len(paths)}"):
            file = read_host(path, salvage=salvage, with_digest=with_digests)
        yield number, file


def _trace(
    run: RunFiles,
    read: Iterable[tuple[int, HostFile]],
    problems: list[Problem],
    other_runs: tuple[str, ...],
) -> Trace:
    parts, files = _hosts_of(run, dict(read), problems)
    aligned = align([part.recording.hosts[0] for part in parts])
    with stage("joining hosts"):
        by_starts, steps_by_starts = merged(parts, aligned)
        recording, steps_by_host = without_stops(*on_one_clock(by_starts, steps_by_starts))
    hangs = tuple(_hangs(run, problems))
    columns = asdict(recording) | {"hosts": with_detected_strategies(recording)}
    return Trace(
        **columns,
        logdir=run.logdir,
        run=run.name,
        other_runs=other_runs,
        files=tuple(files),
        steps_by_host=steps_by_host,
        problems=(*problems, *unaligned_clocks(recording.hosts)),
        hangs=hangs,
    )


def _hosts_of(
    run: RunFiles, read: dict[int, HostFile], problems: list[Problem]
) -> tuple[list[Part], list[SourceFile]]:
    """The parts of the hosts in the order of their files, which does not depend on the order in which they were read.

    Equal files count once. `problems` gets the problems of all files.
    """
    parts: list[Part] = []
    files: list[SourceFile] = []
    name_of: dict[tuple[int, str], str] = {}
    first_error, whole_count, device_count = None, 0, 0
    for number, path in enumerate(run.paths):
        file, host = read.pop(number), host_of(path)
        part, error = file.part, file.error
        digest = part.sha256 if part else None
        original = name_of.get((file.bytes, digest)) if digest is not None else None
        count = part.recording.hosts[0].event_count if part and original is None else 0
        files.append(SourceFile(path.name, host, file.bytes, digest, count, original))
        if original is not None:
            text = "two files have the same bytes; they were counted once"
            problems.append(Problem("duplicate-host-file", text, host, original, "file"))
            continue
        first_error = first_error or error
        whole_count += error is None
        if part:
            name_of[file.bytes, part.sha256] = path.name
            parts.append(part)
            problems += part.problems
            device_count += len(part.recording.device_list)
        elif error:
            reason = error.message.partition(f"{path.name}: ")[2]
            problems.append(Problem("damaged-file", "not readable", host, reason))
        if device_count > MOST_DEVICES:
            raise TraceFormatError(path, TOO_MANY_DEVICES)
    if first_error and not whole_count:
        raise first_error
    return parts, files


def _hangs(run: RunFiles, problems: list[Problem]) -> Iterator[Hang]:
    """The reports of hangs beside the traces."""
    for path in hang_files(run.directory):
        try:
            yield read_hang(path)
        except TraceFormatError as error:
            host = path.name.partition(".")[0]
            text = "a report of a hang is not readable"
            problems.append(Problem("hang-unreadable", text, host, f"{path.name}: {error.reason}"))


# From parts to one recording: one table of names, devices and rows numbered over all hosts


def merged(parts: list[Part], hosts: tuple[Host, ...]) -> tuple[Recording, tuple[HostSteps, ...]]:
    """The recording of all hosts and the steps of each, on the clock set by the starts of the profiles.

    `parts`: one per host, in the order of hosts, whatever the order in which they were read; the list is emptied. `hosts`: the
    same with their starts.
    """
    recordings, steps_of_parts = [part.recording for part in parts], [part.steps for part in parts]
    parts.clear()
    if len(recordings) == 1:
        return replace(recordings[0], hosts=hosts), tuple(steps_of_parts)
    first_row = [*accumulate((of.host_columns.count for of in recordings), initial=0)]
    first_line = [*accumulate((len(of.lines) for of in recordings), initial=0)]
    # Devices with a plane come first, then the replicas of other hosts, each by host.
    order = sorted(
        range(len(recordings)),
        key=lambda host: any(d.kind == "replica" for d in recordings[host].device_list),
    )
    counts = (len(recordings[host].device_list) for host in order)
    first_device = dict(zip(order, accumulate(counts, initial=0), strict=False))
    names = Names()
    instructions: dict[Instruction, int] = {}
    events: list[HostColumns] = []
    devices: dict[int, DeviceColumns] = {}
    calls: dict[int, CollectiveCalls] = {}
    lines: list[LineInfo] = []
    for host, recording in enumerate(recordings):
        row, line, device = first_row[host], np.int32(first_line[host]), first_device[host]
        # `NONE` is the last place.
        name_of = np.append(names.add_all(recording.names), np.int32(NONE))
        known = [instructions.setdefault(of, len(instructions)) for of in recording.instructions]
        instruction_of = np.array([*known, NONE], dtype=np.int32)
        of_host, of_devices = recording.host_columns, recording.device_columns
        of_calls = recording.collective_calls
        events.append(
            replace(
                of_host,
                host=np.full(of_host.count, host, dtype=np.int16),
                line=of_host.line + line,
                name=name_of[of_host.name],
                stats={
                    key: HostStat(
                        stat.row + row,
                        name_of[stat.value].astype(np.int64) if key in TEXT_STATS else stat.value,
                    )
                    for key, stat in of_host.stats.items()
                },
            )
        )
        devices[host] = replace(
            of_devices,
            device=of_devices.device + np.int16(device),
            line=of_devices.line + line,
            launch=_moved(of_devices.launch, row),
            instruction=instruction_of[of_devices.instruction],
            name=name_of[of_devices.name],
            op=name_of[of_devices.op],
            details=name_of[of_devices.details],
        )
        calls[host] = replace(
            of_calls,
            op=_moved(of_calls.op, row),
            call=_moved(of_calls.call, row),
            arrival=_moved(of_calls.arrival, row),
        )
        lines += (
            replace(each, host=host, device=NONE if each.is_thread else each.device + device)
            for each in recording.lines
        )
        # What is renumbered is let go of: events are most of the memory.
        recordings[host] = replace(
            recording, host_columns=NO_HOST_EVENTS, device_columns=NO_DEVICE_EVENTS
        )
    # Of a program that several hosts run the first that is known.
    buffers = {each.program: each for of in reversed(recordings) for each in of.program_buffers}
    shared = [of.shared_rows + row for of, row in zip(recordings, first_row, strict=False)]
    steps = tuple(
        replace(
            of,
            host=host,
            markers=tuple(marker + first_row[host] for marker in of.markers),
            steps=tuple(replace(step, host=host) for step in of.steps),
        )
        for host, of in enumerate(steps_of_parts)
    )
    recording = Recording(
        hosts=hosts,
        device_list=tuple(
            replace(device, host=host) for host in order for device in recordings[host].device_list
        ),
        lines=tuple(lines),
        names=names,
        device_columns=concatenated([devices.pop(host) for host in order]),
        host_columns=concatenated(events),
        shared_rows=np.concatenate(shared),
        collective_calls=concatenated([calls.pop(host) for host in order]),
        instructions=tuple(instructions),
        program_buffers=tuple(buffers.values()),
    )
    return _later(recording, steps, np.array([host.start_ps for host in hosts], dtype=np.int64))


def _moved(rows: Int64Array, by: int) -> Int64Array:
    """Rows of the host columns, or `NONE`, where so many are in front of them."""
    return np.where(rows == NONE, NONE, rows + by)


MIN_COLLECTIVES: Final = 3
"""Fewer collectives do not show how far their ends spread."""

CLEAR_RATIO: Final = 3
"""Clocks differ if their median difference is more than this many times the spread of the differences."""

_COMMON_END: Final = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
)
_NO_END: Final = np.iinfo(np.int64).min


def align(hosts: Sequence[Host]) -> tuple[Host, ...]:
    """The hosts with their times since the origin of the run, by `profile_start_time`.

    A host without it, or whose profile starts more than `MAX_PS` after that of another one, keeps its own start as origin.
    """
    starts = [host.profile_start_ns for host in hosts if host.profile_start_ns is not None]
    origin = min(starts, default=0)
    aligned = []
    for host in hosts:
        start_ns = origin if host.profile_start_ns is None else host.profile_start_ns
        offset = (start_ns - origin) * PS_PER_NS
        method = "none" if host.profile_start_ns is None or offset > MAX_PS else "profile_start"
        offset = offset if offset <= MAX_PS else 0
        clock = HostClock(method) if len(hosts) > 1 else None
        aligned.append(replace(host, start_ps=offset, stop_ps=_stop_ps(host, offset), clock=clock))
    return tuple(aligned)


def unaligned_clocks(hosts: Sequence[Host]) -> Iterator[Problem]:
    """The hosts whose clocks neither the starts of profiles nor collectives align."""
    for host in hosts:
        if host.clock is not None and host.clock.method == "none":
            far = f"the profile starts more than {MAX_HOURS} hours after that of another host; clocks not aligned"
            text = "no profile start recorded" if host.profile_start_ns is None else far
            yield Problem("unaligned-clock", text, host.name)


def _stop_ps(host: Host, offset: int) -> int | None:
    if host.profile_start_ns is None or host.profile_stop_ns is None:
        return None
    length = (host.profile_stop_ns - host.profile_start_ns) * PS_PER_NS
    return offset + length if 0 <= length <= MAX_PS else None


def on_one_clock(
    recording: Recording, steps_by_host: tuple[HostSteps, ...]
) -> tuple[Recording, tuple[HostSteps, ...]]:
    """The recording and its steps with the clocks of hosts aligned by the collectives that they share."""
    groups = [group for group in step_groups(recording.hosts) if len(group) > 1]
    if not groups:
        return recording, steps_by_host
    ends = _ends(recording, steps_by_host)
    clocks = [host.clock or HostClock("none") for host in recording.hosts]
    for group in groups:
        _set_clocks(recording.hosts, clocks, ends, group)
    offset_ps = np.array([clock.offset_ps for clock in clocks], dtype=np.int64)
    # The origin is the earliest profile start again.
    starts = [
        host.start_ps + clock.offset_ps
        for host, clock in zip(recording.hosts, clocks, strict=True)
        if host.profile_start_ns is not None
    ]
    shift_ps = offset_ps - min(starts, default=0)
    hosts = tuple(
        replace(
            host,
            start_ps=host.start_ps + shift,
            stop_ps=None if host.stop_ps is None else host.stop_ps + shift,
            clock=clock,
        )
        for host, clock, shift in zip(recording.hosts, clocks, shift_ps.tolist(), strict=True)
    )
    return _later(replace(recording, hosts=hosts), steps_by_host, shift_ps)


def _later(
    recording: Recording, steps_by_host: tuple[HostSteps, ...], by_ps: Int64Array
) -> tuple[Recording, tuple[HostSteps, ...]]:
    """The events and the steps of each host so much later, int64 `[hosts]`."""
    if not by_ps.any():
        return recording, steps_by_host
    host, device = recording.host_columns, recording.device_columns
    of_device = by_ps[recording.host_of_device]
    moved = replace(
        recording,
        host_columns=replace(host, start_ps=host.start_ps + by_ps[host.host]),
        device_columns=replace(device, start_ps=device.start_ps + of_device[device.device]),
    )
    return moved, tuple(
        replace(
            of_host,
            steps=tuple(
                replace(step, start_ps=step.start_ps + by, end_ps=step.end_ps + by)
                for step in of_host.steps
            ),
        )
        for of_host, by in zip(steps_by_host, by_ps.tolist(), strict=True)
    )


def _ends(recording: Recording, steps_by_host: Sequence[HostSteps]) -> Int64Array:
    """When each complete collective ended on each host, int64 `[collectives, hosts]`, `_NO_END` where it did not run."""
    matched = match_collectives(recording, steps_by_host)
    ends = np.full((matched.count, len(recording.hosts)), _NO_END, dtype=np.int64)
    if matched.count == 0:
        return ends
    np.maximum.at(ends, (matched.collective, matched.host), matched.end_ps)
    ends_at_once = is_in(matched.kind[matched.first], _COMMON_END)
    return ends[matched.is_complete & ends_at_once]


def _set_clocks(
    hosts: tuple[Host, ...], clocks: list[HostClock], ends: Int64Array, group: tuple[int, ...]
) -> None:
    """Compare each host of a group with the one that shares most collectives."""
    ran = ends[:, list(group)] != _NO_END
    shared = ran & (ran.sum(axis=1, keepdims=True) > 1)
    first = int(shared.sum(axis=0).argmax())
    reference = group[first]
    for place, host in enumerate(group):
        both = ends[ran[:, first] & ran[:, place]]
        if host != reference and both.shape[0] >= MIN_COLLECTIVES:
            ahead_ps = both[:, host] - both[:, reference]
            have_starts = "none" not in (clocks[host].method, clocks[reference].method)
            clocks[host] = _clock(hosts[reference].name, clocks[host], have_starts, ahead_ps)
    is_compared = any(clocks[host].reference is not None for host in group)
    if is_compared and clocks[reference].method == "none":
        clocks[reference] = HostClock("collectives")


def _clock(reference: str, own: HostClock, have_starts: bool, ahead_ps: Int64Array) -> HostClock:
    """The clock after a comparison: moved if the difference is clear or no profile start is known, else as before.

    `ahead_ps`: how much later each common collective ended on it, int64 `[collectives]`.
    """
    middle_ps = median_ps(ahead_ps) or 0
    residual_ps = round(MAD_TO_SIGMA * (median_ps(np.abs(ahead_ps - middle_ps)) or 0))
    moves = not have_starts or abs(middle_ps) > CLEAR_RATIO * residual_ps
    moves = moves and abs(middle_ps) <= MAX_PS
    return HostClock(
        method="collectives" if moves else own.method,
        reference=reference,
        offset_ps=-middle_ps if moves else 0,
        collective_count=int(ahead_ps.size),
        residual_ps=residual_ps,
    )
