"""Notices runs that have come into a log directory, and waits until their files are whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

from traceview.errors import TraceNotFoundError
from traceview.location import Location
from traceview.trace.locate import RunFiles, find_runs, run_age

Files: TypeAlias = tuple[tuple[str, int], ...]
"""The names of the files of a run and their sizes in bytes."""


class Arrival(Struct, frozen=True):
    """A run whose files have stopped growing. `looks`: how often they were the same since."""

    files: RunFiles
    sizes: Files
    looks: int


class Arrivals:
    """The runs below `logdir`, look by look."""

    def __init__(self, logdir: Location) -> None:
        self._logdir = logdir
        self._sizes: dict[str, Files] = {}
        self._looks: dict[str, int] = {}

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
        return [
            Arrival(run, sizes[run.name], self._looks[run.name])
            for run in sorted(runs, key=run_age)
            if self._looks[run.name]
        ]

    @property
    def sizes(self) -> Mapping[str, Files]:
        """The files of all runs at the last look."""
        return self._sizes


def _sizes(run: RunFiles) -> Files:
    sizes = []
    for path in run.paths:
        try:
            sizes.append((path.name, path.stat().st_size))
        except OSError:
            # It was removed after it was listed.
            continue
    return tuple(sorted(sizes))
