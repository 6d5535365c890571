"""Where are the traces? From a path that the user has at hand to runs and their files.

TensorFlow writes `<logdir>/plugins/profile/<run>/<host>.xplane.pb`; Keras puts `train/` in front. Only
`*.xplane.pb` is read: viewers leave caches of their own beside it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from traceview.errors import TraceFormatError, TraceNotFoundError
from traceview.trace.sidecar import SUFFIX as SIDECAR_SUFFIX
from traceview.xplane.planes import PlaneKind
from traceview.xplane.read import read_summary
from traceview.xplane.space import PlaneSummary
from traceview.xplane.table import stat_of

SUFFIX: Final = ".xplane.pb"
CAPTURE_FOLDER: Final = ".traceview-"
_CACHES: Final = (".op_stats.pb", ".op_stats_v2.pb", ".overview_page.pb", ".input_pipeline.pb")
_NUMBERED: Final = re.compile(r"([^0-9]*)([0-9]*)")
_NO_PLANES: Final = "no planes in it"
_OTHER_OUTPUT: Final = (*_CACHES, ".trace.json.gz", ".memory_profile.json.gz", ".profile-empty")


@dataclass(frozen=True)
class RunFiles:
    """The files of one run, before anything of them is read."""

    name: str
    directory: Path
    logdir: Path
    paths: tuple[Path, ...]


@dataclass(frozen=True)
class RunSummary:
    """What `runs` says of a run: from names and metadata, without decoding an event."""

    name: str
    files: tuple[FileSummary, ...]

    @property
    def profile_start_ns(self) -> int | None:
        """Start of the earliest host, Unix nanoseconds; None where none recorded it."""
        starts = [f.profile_start_ns for f in self.files if f.profile_start_ns is not None]
        return min(starts, default=None)


@dataclass(frozen=True)
class FileSummary:
    """One host file: its size, the devices that have a plane, which of those hold events, times.

    `damage`: what is wrong with it; `plane_count`: 0 where nothing of it can be read.
    """

    host: str
    bytes: int
    device_names: tuple[str, ...]
    device_names_with_lines: tuple[str, ...]
    profile_start_ns: int | None
    duration_ns: int | None
    damage: str | None
    plane_count: int = 0


def host_of(path: Path) -> str:
    """The host a file is named after."""
    return path.name.removesuffix(SUFFIX)


def _by_number(name: str) -> tuple[list[tuple[str, int]], str]:
    """Sorts host2 before host10."""
    parts = _NUMBERED.findall(name)
    return [(text, int(digits or -1)) for text, digits in parts], name


def find_runs(path: Path) -> tuple[RunFiles, ...]:
    """All runs below `path`, sorted by name.

    `path` may be a log directory, a directory in it, one run's directory or a single file. Raises
    `TraceNotFoundError` if there is none, with what is there instead.
    """
    if path.is_file():
        return (_run(path.parent, [path], None),)
    try:
        if path.exists() and not path.is_dir():
            raise TraceNotFoundError(f"{path}: not a file or directory that can hold a trace")
        exists = path.is_dir()
        if exists:
            os.scandir(path).close()  # raises where reading it is not permitted
    except OSError as error:
        raise TraceNotFoundError(f"{path}: {error.strerror}") from error
    if not exists:
        raise TraceNotFoundError(f"{path}: no such file or directory")
    found: dict[Path, list[Path]] = {}
    others: list[str] = []
    not_files = [path] if path.name.endswith(SUFFIX) else []
    unreadable: list[OSError] = []
    captures: list[Path] = []
    for directory, folders, names in os.walk(path, onerror=unreadable.append):
        # A capture that is still being recorded, or was killed while it was.
        captures += [Path(directory, name) for name in folders if name.startswith(CAPTURE_FOLDER)]
        folders[:] = [name for name in folders if not name.startswith(CAPTURE_FOLDER)]
        not_files += [Path(directory, name) for name in folders if name.endswith(SUFFIX)]
        for name in sorted(names, key=_by_number):
            if name.endswith(SUFFIX):
                file = Path(directory, name)
                if file.exists() and not file.is_file():
                    not_files.append(file)
                else:
                    found.setdefault(Path(directory), []).append(file)
            elif name.endswith((*_OTHER_OUTPUT, ".xplane.riegeli")):
                others.append(name)
    if not found and unreadable:
        raise TraceNotFoundError(f"{unreadable[0].filename}: {unreadable[0].strerror}")
    if not found:
        hint = _hint(others, not_files, captures)
        raise TraceNotFoundError(f"{path}: no *{SUFFIX} below it", hint=hint)
    runs = [_run(directory, paths, path) for directory, paths in found.items()]
    return tuple(sorted(runs, key=lambda run: run.name))


def _hint(others: list[str], not_files: list[Path], captures: list[Path]) -> str:
    if not_files:
        kind = "a directory" if not_files[0].is_dir() else "not a regular file"
        return f"{not_files[0]} is {kind}"
    if any(name.endswith(".riegeli") for name in others):
        return f"found {others[0]}: continuous-profiling containers are not supported"
    if others:
        return f"found {others[0]}, which a viewer derived; the trace itself is missing"
    begun = [folder for folder in captures if any(folder.glob(f"*{SIDECAR_SUFFIX}"))]
    if begun:
        return f"{begun[0]} is of a capture that still runs, or was killed before its end"
    return "give the log directory that was passed to the profiler"


def _run(directory: Path, paths: list[Path], below: Path | None) -> RunFiles:
    parent = directory.parent
    in_plugins = parent.name == "profile" and parent.parent.name == "plugins"
    logdir = parent.parent.parent if in_plugins else directory
    name = directory.resolve().name or "run"
    if below is not None and in_plugins and below in logdir.parents:
        # Several log directories below one path, `train` and `validation` for instance.
        name = f"{logdir.relative_to(below).as_posix()}/{name}"
    return RunFiles(name, directory, logdir, tuple(paths))


def choose_run(runs: tuple[RunFiles, ...], name: str | None) -> RunFiles:
    """The run called `name`, else the newest that can be read.

    Raises `TraceFormatError` if there are several and none of them can be read.
    """
    if name is not None:
        chosen = [run for run in runs if name in (run.name, run.directory.name)]
        if len(chosen) == 1:
            return chosen[0]
        known = ", ".join(run.name for run in runs)
        raise TraceNotFoundError(
            f"{'no run' if not chosen else 'several runs'} called {name!r}",
            hint=f"there are: {known}",
        )
    if len(runs) == 1:
        return runs[0]
    summaries = [summarize(run) for run in runs]
    newest = newest_readable(summaries)
    if newest is None:
        known = ", ".join(run.name for run in runs)
        raise TraceFormatError(
            runs[-1].paths[0],
            summaries[-1].files[0].damage or _NO_PLANES,
            hint=f"none of the {len(runs)} runs can be read: {known}",
        )
    return runs[newest]


def newest_readable(runs: Sequence[RunSummary]) -> int | None:
    """The place of the run to take: of those with an undamaged file, else with a damaged one, the newest.

    By the start of the profile, or by name where one did not record it. None where nothing can be read.
    """
    candidates = [i for i, run in enumerate(runs) if any(file.damage is None for file in run.files)]
    candidates = candidates or [
        i for i, run in enumerate(runs) if any(file.plane_count for file in run.files)
    ]
    if any(runs[i].profile_start_ns is None for i in candidates):
        return max(candidates, key=lambda i: (runs[i].name.rpartition("/")[2], runs[i].name))
    return max(
        candidates, key=lambda i: (runs[i].profile_start_ns or 0, runs[i].name), default=None
    )


def summarize(run: RunFiles) -> RunSummary:
    """What a run holds, from metadata alone; a damaged file is listed with its damage."""
    return RunSummary(run.name, tuple(_summarize_file(path) for path in run.paths))


def _summarize_file(path: Path) -> FileSummary:
    size = path.stat().st_size if path.exists() else 0
    try:
        summary = read_summary(path)
    except (TraceFormatError, TraceNotFoundError) as error:
        reason = (
            error.reason
            if isinstance(error, TraceFormatError)
            else error.message.removeprefix(f"{path}: ")
        )
        return FileSummary(host_of(path), size, (), (), None, None, reason)
    start, stop = profile_times(summary.planes)
    devices = {
        f"{plane.kind.name}:{plane.ordinal}": plane.line_count
        for plane in summary.planes
        if plane.kind in (PlaneKind.GPU, PlaneKind.TPU)
    }
    return FileSummary(
        host_of(path),
        size,
        tuple(devices),
        tuple(name for name, count in devices.items() if count),
        start,
        stop - start if start is not None and stop is not None else None,
        summary.faults[0].reason if summary.faults else None if summary.planes else _NO_PLANES,
        len(summary.planes),
    )


def profile_times(planes: tuple[PlaneSummary, ...]) -> tuple[int | None, int | None]:
    """Unix nanoseconds at which the profile started and stopped; None where not recorded."""
    times: list[int | None] = []
    for name in (b"profile_start_time", b"profile_stop_time"):
        values = [
            stat_of(plane.stats, name) for plane in planes if plane.kind is PlaneKind.ENVIRONMENT
        ]
        numbers = [value for value in values if isinstance(value, int)]
        times.append(numbers[-1] if numbers else None)
    return times[0], times[1]
