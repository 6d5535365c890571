"""Notices runs that have come into a log directory, waits until their files are whole, and reads them."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import Final, TypeAlias

from msgspec import Struct

from traceview.base.errors import TraceFormatError, TraceNotFoundError, UsageError
from traceview.base.location import Location
from traceview.comparison.noise import run_spread_of
from traceview.report.build import analyze
from traceview.trace.model import Trace
from traceview.trace.reading.load import load_run
from traceview.trace.reading.locate import RunFiles, find_runs, run_age
from traceview.trace.reading.part import read_host
from traceview.watch.facts import RunFacts, StepChange, change_since, facts_of

Files: TypeAlias = tuple[tuple[str, int], ...]
"""The names of the files of a run and their sizes in bytes."""

INCOMPLETE_AFTER_S: Final = 120
"""A damaged file that has not grown for so long is written by nobody any more; a choice of ours."""


class News(Struct, frozen=True):
    """A run that was read. `is_history`: it was there before the watch began. `is_again`: it has more files by now.

    `damage`: why a file beside the readable ones stays incomplete; empty if none does.
    """

    facts: RunFacts
    change: StepChange | None
    is_history: bool
    is_again: bool
    damage: str = ""


class Unreadable(Struct, frozen=True):
    """A run that cannot be read, and why. `is_in_part`: with `--salvage` a part of it can."""

    run: str
    reason: str
    is_in_part: bool = False


class _Sizes(Struct, frozen=True):
    """The files of a run at the last look. `looks`: how often they were the same since; `since_s`: since when."""

    files: Files
    looks: int
    since_s: float


class Follower:
    """The runs below `logdir`. `most`: how many runs before are compared with, and read at the beginning."""

    def __init__(self, logdir: Location, most: int) -> None:
        self.logdir = logdir
        self._most = most
        self._there: dict[str, _Sizes] = {}
        self._seen: dict[str, Files] = {}
        self._last: list[RunFacts] = []
        self._history: frozenset[str] = frozenset()

    def begin(self) -> None:
        """Look for the first time: the runs that are there now are history, of which only the newest are read."""
        self._arrived()
        self._history = frozenset(self._there)

    def look(self) -> Iterator[News | Unreadable]:
        """What has come since the last look. Raises `StoreError` if a store cannot be asked."""
        arrived = self._arrived()
        old = [run for run in arrived if run.name in self._history]
        for run in old[: -self._most]:
            self._seen.setdefault(run.name, self._there[run.name].files)
        for run in arrived:
            if self._is_new(run.name):
                yield from self._read(run)

    @property
    def has_runs(self) -> bool:
        """Whether there were runs at the last look."""
        return bool(self._there)

    @property
    def incomplete(self) -> list[str]:
        """The runs that are there and were not read so far."""
        return [run for run in self._there if self._is_new(run)]

    def _is_new(self, run: str) -> bool:
        return self._seen.get(run) != self._there[run].files

    def _arrived(self) -> list[RunFiles]:
        """The runs not read whose files are as they were at the last look, oldest first; none without a log directory."""
        try:
            runs = find_runs(self.logdir)
        except TraceNotFoundError:
            runs = ()
        before, now_s = self._there, monotonic()
        self._there = {}
        for run in runs:
            files, known = _sizes(run), before.get(run.name)
            is_same = known is not None and known.files == files
            self._there[run.name] = (
                _Sizes(files, known.looks + 1, known.since_s)
                if known is not None and is_same
                else _Sizes(files, 0, now_s)
            )
        return [
            run
            for run in sorted(runs, key=run_age)
            if self._there[run.name].looks and self._is_new(run.name)
        ]

    def _read(self, files: RunFiles) -> Iterator[News | Unreadable]:
        run, there = files.name, self._there[files.name]
        is_again = run in self._seen
        is_patient = monotonic() - there.since_s < INCOMPLETE_AFTER_S
        if there.looks > 1 and is_patient:
            # It was damaged when it was read, and is as it was then.
            return
        try:
            trace = load_run(files)
        except (TraceFormatError, TraceNotFoundError) as error:
            if not is_patient:
                self._seen[run] = there.files
                yield Unreadable(run, error.message, _is_readable_in_part(files))
            return
        damage = _damage(trace)
        if is_patient and damage:
            return
        self._seen[run] = there.files
        try:
            report = analyze(trace, top=0)
        except UsageError as error:
            yield Unreadable(run, error.message)
            return
        facts = facts_of(trace, report)
        before = [other for other in self._last if other.run != run][-self._most :]
        levels = [other.step_level for other in before]
        change = change_since(facts.step_level, levels, run_spread_of([report]))
        self._last = [*before, facts]
        yield News(facts, change, run in self._history, is_again, damage)


def _sizes(run: RunFiles) -> Files:
    sizes = []
    for path in run.paths:
        try:
            sizes.append((path.name, path.stat().st_size))
        except OSError:
            # It was removed after it was listed.
            continue
    return tuple(sorted(sizes))


def _damage(trace: Trace) -> str:
    """Why a file of the run is cut off, as one is that is being copied; empty if none is."""
    return next((problem.text for problem in trace.problems if problem.code == "damaged-file"), "")


def _is_readable_in_part(files: RunFiles) -> bool:
    """Whether `--salvage` finds anything in them."""
    return any(read_host(path, salvage=True).part is not None for path in files.paths)
