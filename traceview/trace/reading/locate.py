"""Finds runs and their trace files below a path.

TensorFlow writes `<logdir>/plugins/profile/<run>/<host>.xplane.pb`; Keras puts `train/` in front. Only
`*.xplane.pb` is read, because viewers leave their caches beside it.

The plane `Task Environment` says when the profile started and stopped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from traceview.base.errors import TraceFormatError, TraceNotFoundError
from traceview.base.location import Location
from traceview.base.text import lazy_pattern
from traceview.store.address import is_remote
from traceview.trace.model import Problem
from traceview.trace.sidecar.sidecar import SUFFIX as SIDECAR_SUFFIX
from traceview.xplane.columns import Plane
from traceview.xplane.planes import PlaneKind
from traceview.xplane.read import read_summary
from traceview.xplane.table import stat_of

_LATEST_NS: Final = 1 << 62
"""In the year 2116; later times are damage."""


def profile_times(planes: Sequence[Plane]) -> tuple[int | None, int | None]:
    """Unix nanoseconds at which the profile started and stopped; None where not recorded."""
    times: list[int | None] = []
    for name in (b"profile_start_time", b"profile_stop_time"):
        values = [
            stat_of(plane.stats, name) for plane in planes if plane.kind is PlaneKind.ENVIRONMENT
        ]
        numbers = [value for value in values if isinstance(value, int) and 0 <= value <= _LATEST_NS]
        times.append(numbers[-1] if numbers else None)
    return times[0], times[1]


SUFFIX: Final = ".xplane.pb"
CAPTURE_FOLDER: Final = ".traceview-"
_CACHES: Final = (".op_stats.pb", ".op_stats_v2.pb", ".overview_page.pb", ".input_pipeline.pb")
_NUMBERED: Final = lazy_pattern(r"([^0-9]*)([0-9]*)")
_NO_PLANES: Final = "no planes in it"
_OTHER_OUTPUT: Final = (*_CACHES, ".trace.json.gz", ".memory_profile.json.gz", ".profile-empty")


class RunFiles(Struct, frozen=True):
    """The files of one run, before they are read."""

    name: str
    directory: Location
    logdir: Location
    paths: tuple[Location, ...]


class RunSummary(Struct, frozen=True):
    """A run as `traceview show runs` lists it, from names and metadata, without decoding an event."""

    name: str
    files: tuple[FileSummary, ...]


class FileSummary(Struct, frozen=True):
    """One host file: its size, its device planes, which of those hold events, and its times.

    `damage`: why it is damaged, else None; `plane_count`: 0 if nothing in it can be read.
    """

    host: str
    bytes: int
    damage: str | None
    device_names: tuple[str, ...] = ()
    device_names_with_lines: tuple[str, ...] = ()
    profile_start_ns: int | None = None
    duration_ns: int | None = None
    plane_count: int = 0


def host_of(path: Location) -> str:
    """The host a file is named after."""
    return path.name.removesuffix(SUFFIX)


def _by_number(name: str) -> tuple[list[tuple[str, int]], str]:
    """A sort key that puts host2 before host10, and run9 before run10."""
    parts = _NUMBERED.findall(name)
    return [(text, int(digits or -1)) for text, digits in parts], name


def find_runs(path: Location) -> tuple[RunFiles, ...]:
    """All runs below `path`, sorted by name.

    `path` may be a log directory, a directory in it, one run's directory or a single file. Raises
    `TraceNotFoundError` if there is no run; its hint names what is there instead.
    """
    try:
        if is_remote(path):
            path = path.asked()
        if path.is_file():
            return (_run(path.parent, [path], None),)
        if not path.is_dir():
            other = "not a file or directory that can hold a trace"
            what = other if path.exists() else "no such file or directory"
            raise TraceNotFoundError(f"{path}: {what}")
        if isinstance(path, Path):
            os.scandir(path).close()  # raises where reading it is not permitted
    except FileNotFoundError as error:
        raise TraceNotFoundError(f"{path}: no such file or directory") from error
    except OSError as error:
        raise TraceNotFoundError(f"{path}: {error.strerror}") from error
    files: dict[Location, list[Location]] = {}
    other_output: list[str] = []
    not_files = [path] if path.name.endswith(SUFFIX) else []
    unreadable: list[OSError] = []
    captures: list[Location] = []
    for directory, folders, names in path.walk() if is_remote(path) else _walk(path, unreadable):
        # The folder of a capture that still records or was killed while recording.
        captures += [directory / name for name in folders if name.startswith(CAPTURE_FOLDER)]
        folders[:] = [name for name in folders if not name.startswith(CAPTURE_FOLDER)]
        not_files += [directory / name for name in folders if name.endswith(SUFFIX)]
        for name in sorted(names, key=_by_number):
            if name.endswith(SUFFIX):
                file = directory / name
                if not file.is_file() and file.exists():
                    not_files.append(file)
                else:
                    files.setdefault(directory, []).append(file)
            elif name.endswith((*_OTHER_OUTPUT, ".xplane.riegeli")):
                other_output.append(name)
    if not files and unreadable:
        raise TraceNotFoundError(f"{unreadable[0].filename}: {unreadable[0].strerror}")
    if not files:
        hint = _hint(other_output, not_files, captures)
        raise TraceNotFoundError(f"{path}: no *{SUFFIX} below it", hint=hint)
    runs = [_run(directory, paths, path) for directory, paths in files.items()]
    return tuple(sorted(runs, key=lambda run: _by_number(run.name)))


def _walk(top: Location, unreadable: list[OSError]) -> Iterator[tuple[Path, list[str], list[str]]]:
    """As `os.walk`, through links where a log directory may have them, and into no directory twice."""
    known: set[tuple[int, int]] = set()
    starts = [str(top)]
    # What is reached without a link comes first, so that it goes by its own name.
    for start in starts:
        for directory, folders, names in os.walk(start, onerror=unreadable.append):
            place = Path(directory)
            status = place.stat()
            if (status.st_dev, status.st_ino) in known:
                folders.clear()
                continue
            known.add((status.st_dev, status.st_ino))
            starts += [
                os.fspath(place / name) for name in sorted(folders) if _is_link(place / name)
            ]
            yield place, folders, names


def _is_link(folder: Path) -> bool:
    """Whether it links to a log directory or a part of one, rather than to data of a training for instance."""
    if not folder.is_symlink():
        return False
    is_part = folder.name == "plugins" or folder.parent.name in ("plugins", "profile")
    return is_part or (folder / "plugins").is_dir()


def _hint(other_output: list[str], not_files: list[Location], captures: list[Location]) -> str:
    if not_files:
        kind = "a directory" if not_files[0].is_dir() else "not a regular file"
        return f"{not_files[0]} is {kind}"
    if any(name.endswith(".riegeli") for name in other_output):
        return f"{other_output[0]} is a continuous-profiling container, which traceview does not support"
    if other_output:
        return f"a viewer made {other_output[0]} from a trace; the trace itself is missing"
    begun = [
        folder
        for folder in captures
        if any(file.name.endswith(SIDECAR_SUFFIX) for file in folder.iterdir())
    ]
    if begun:
        return f"{begun[0]} belongs to a capture that is still running or was killed"
    return "give the log directory that was passed to the profiler"


def _run(directory: Location, paths: list[Location], below: Location | None) -> RunFiles:
    parent = directory.parent
    in_plugins = parent.name == "profile" and parent.parent.name == "plugins"
    logdir = parent.parent.parent if in_plugins else directory
    name = directory.resolve().name or "run"
    if below is not None and in_plugins and below in logdir.parents:
        # Several log directories below one path, `train` and `validation` for instance.
        name = f"{logdir.relative_to(below).as_posix()}/{name}"
    return RunFiles(name, directory, logdir, tuple(paths))


def choose_run(runs: tuple[RunFiles, ...], name: str | None) -> tuple[RunFiles, list[Problem]]:
    """The run called `name`, else the newest readable run, and as problems the unreadable ones that are newer by their names.

    Raises `TraceFormatError` if there are several runs and none is readable.
    """
    if name is not None:
        chosen = [run for run in runs if name in (run.name, run.directory.name)]
        if len(chosen) == 1:
            return chosen[0], []
        known = ", ".join(run.name for run in runs)
        raise TraceNotFoundError(
            f"{'no run' if not chosen else 'several runs'} called {name!r}",
            hint=f"available runs: {known}",
        )
    if len(runs) == 1:
        return runs[0], []
    by_age = sorted(runs, key=run_age, reverse=True)
    summaries: list[RunSummary] = []
    for run in by_age:
        # A run in a store costs requests.
        summaries.append(summarize(run))
        if any(file.damage is None for file in summaries[-1].files):
            break
    newest = newest_readable(summaries)
    if newest is None:
        known = ", ".join(run.name for run in runs)
        raise TraceFormatError(
            by_age[0].paths[0],
            summaries[0].files[0].damage or _NO_PLANES,
            hint=f"none of the {len(runs)} runs is readable: {known}",
        )
    text = "a newer run is not readable, so this one was read"
    return by_age[newest], [
        Problem(
            "newer-run-unreadable", text, None, f"{run.name}: {run.files[0].damage or _NO_PLANES}"
        )
        for run in reversed(summaries[:newest])
        if not any(file.plane_count for file in run.files)
    ]


def run_age(run: RunSummary | RunFiles) -> tuple[object, str]:
    """Sorts runs by their names, which are dates or numbers, in whatever folder they lie."""
    return _by_number(run.name.rpartition("/")[2]), run.name


def newest_readable(runs: Sequence[RunSummary]) -> int | None:
    """The index of the newest run, by its name, with an undamaged file, else with a readable one; None if there is none."""
    readable = [i for i, run in enumerate(runs) if any(file.plane_count for file in run.files)]
    whole = [i for i in readable if any(file.damage is None for file in runs[i].files)]
    return max(whole or readable, key=lambda i: run_age(runs[i]), default=None)


def summarize(run: RunFiles) -> RunSummary:
    """The contents of a run, from metadata alone; a damaged file is listed with its damage."""
    return RunSummary(run.name, tuple(_summarize_file(path) for path in run.paths))


def _summarize_file(path: Location) -> FileSummary:
    size = path.stat().st_size if path.exists() else 0
    try:
        planes, faults = read_summary(path)
    except (TraceFormatError, TraceNotFoundError) as error:
        reason = error.message.removeprefix(f"{path}: ")
        return FileSummary(host_of(path), size, reason)
    start, stop = profile_times(planes)
    devices = {
        f"{plane.kind.name}:{plane.ordinal}": len(plane.payloads)
        for plane in planes
        if plane.kind in (PlaneKind.GPU, PlaneKind.TPU)
    }
    return FileSummary(
        host_of(path),
        size,
        damage=faults[0].reason if faults else None if planes else _NO_PLANES,
        device_names=tuple(devices),
        device_names_with_lines=tuple(name for name, count in devices.items() if count),
        profile_start_ns=start,
        duration_ns=stop - start if start is not None and stop is not None else None,
        plane_count=len(planes),
    )
