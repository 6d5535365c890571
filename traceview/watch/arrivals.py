"""Notices runs that have come into a log directory, and how long their files have not grown."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from traceview.base.errors import TraceNotFoundError
from traceview.base.location import Location
from traceview.trace.locate import RunFiles, find_runs, run_age

Files: TypeAlias = tuple[tuple[str, int], ...]
"""The names of the files of a run and their sizes in bytes."""


class Arrival(Struct, frozen=True):
    """A run whose files have stopped growing. `looks`: how often they were the same since; `quiet_s`: how long, seconds."""

    files: RunFiles
    sizes: Files
    looks: int
    quiet_s: float


class Quiet(Struct, frozen=True):
    """Since when the files of a run have these sizes, Unix seconds."""

    run: str
    files: Files
    since_s: float


class Arrivals:
    """The runs below `logdir`, look by look. `known`: what an earlier watch saw of files that it had to wait for."""

    def __init__(self, logdir: Location, known: Sequence[Quiet] = ()) -> None:
        self._logdir = logdir
        self._sizes: dict[str, Files] = {}
        self._looks: dict[str, int] = {}
        self._quiet = {quiet.run: quiet for quiet in known}

    def look(self) -> list[Arrival]:
        """The runs whose files are as they were at the last look, oldest first; none if there is no log directory.

        Raises `StoreError` if a store cannot be asked.
        """
        try:
            runs = find_runs(self._logdir)
        except TraceNotFoundError:
            runs = ()
        sizes = {run.name: _sizes(run) for run in runs}
        self._looks = {
            name: self._looks.get(name, 0) + 1 if self._sizes.get(name) == files else 0
            for name, files in sizes.items()
        }
        self._sizes = sizes
        now_s = time.time()
        self._quiet = {name: self._quiet_since(name, files, now_s) for name, files in sizes.items()}
        return [
            Arrival(
                run,
                sizes[run.name],
                self._looks[run.name],
                now_s - self._quiet[run.name].since_s,
            )
            for run in sorted(runs, key=run_age)
            if self._looks[run.name]
        ]

    @property
    def sizes(self) -> Mapping[str, Files]:
        """The files of all runs at the last look."""
        return self._sizes

    def quiet(self, run: str) -> Quiet:
        """Since when a run of the last look has the files that it has."""
        return self._quiet[run]

    def _quiet_since(self, run: str, files: Files, now_s: float) -> Quiet:
        known = self._quiet.get(run)
        is_same = known is not None and known.files == files and known.since_s <= now_s
        return known if known is not None and is_same else Quiet(run, files, now_s)


def _sizes(run: RunFiles) -> Files:
    sizes = []
    for path in run.paths:
        try:
            sizes.append((path.name, path.stat().st_size))
        except OSError:
            # It was removed after it was listed.
            continue
    return tuple(sorted(sizes))
