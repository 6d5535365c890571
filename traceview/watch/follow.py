"""Notices runs that have come into a log directory, and how long their files have not grown."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
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


INCOMPLETE_AFTER_S: Final = 120.0
"""A file that has not grown for so long is written by nobody any more; a choice of ours."""

_KEPT_FACTS: Final = 20


class SeenRun(Struct, frozen=True):
    """A run that was read, or passed over, with the files that it had."""

    run: str
    files: Files


class Memory(Struct, forbid_unknown_fields=True):
    """What a later call needs to know: the runs seen, the facts of the last of them, oldest first, and those waited for."""

    seen: tuple[SeenRun, ...] = ()
    last: tuple[RunFacts, ...] = ()
    waiting: tuple[Quiet, ...] = ()


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


class Follower:
    """The runs below `logdir`. `memory`: of an earlier watch, None without one. `most`: how many runs before are compared
    with, and read at the beginning.
    """

    def __init__(self, logdir: Location, memory: Memory | None, most: int) -> None:
        known = memory or Memory()
        self.logdir = logdir
        self._arrivals = Arrivals(logdir, known.waiting)
        self._most = most
        self._seen = {seen.run: seen.files for seen in known.seen}
        self._last = list(known.last)
        self._history: frozenset[str] | None = None if memory is None else frozenset()

    @property
    def memory(self) -> Memory:
        """What a later watch needs to know; runs that are gone are forgotten."""
        there = self._arrivals.sizes
        seen = tuple(SeenRun(run, files) for run, files in self._seen.items() if run in there)
        waiting = tuple(map(self._arrivals.quiet, self.incomplete))
        return Memory(seen=seen, last=tuple(self._last[-_KEPT_FACTS:]), waiting=waiting)

    def begin(self) -> None:
        """Look for the first time: the runs that are there now are history, of which only the newest are read."""
        self._arrivals.look()
        if self._history is None:
            self._history = frozenset(self._arrivals.sizes)

    def look(self) -> Iterator[News | Unreadable]:
        """What has come since the last look. Raises `StoreError` if a store cannot be asked."""
        arrived = [
            arrival
            for arrival in self._arrivals.look()
            if self._seen.get(arrival.files.name) != arrival.sizes
        ]
        history = self._history or frozenset()
        old = [arrival for arrival in arrived if arrival.files.name in history]
        for arrival in old[: -self._most]:
            self._seen.setdefault(arrival.files.name, arrival.sizes)
        for arrival in arrived:
            if self._seen.get(arrival.files.name) != arrival.sizes:
                yield from self._read(arrival, is_history=arrival.files.name in history)

    @property
    def has_runs(self) -> bool:
        """Whether there were runs at the last look."""
        return bool(self._arrivals.sizes)

    @property
    def incomplete(self) -> list[str]:
        """The runs that are there and were not read so far."""
        there = self._arrivals.sizes.items()
        return [run for run, files in there if self._seen.get(run) != files]

    def _read(self, arrival: Arrival, *, is_history: bool) -> Iterator[News | Unreadable]:
        run = arrival.files.name
        is_again = run in self._seen
        is_patient = arrival.quiet_s < INCOMPLETE_AFTER_S
        if arrival.looks > 1 and is_patient:
            # It was damaged when it was read, and is as it was then.
            return
        try:
            trace = load_run(arrival.files)
        except (TraceFormatError, TraceNotFoundError) as error:
            if not is_patient:
                self._seen[run] = arrival.sizes
                yield Unreadable(run, error.message, _is_readable_in_part(arrival.files))
            return
        damage = _damage(trace)
        if is_patient and damage:
            return
        self._seen[run] = arrival.sizes
        try:
            report = analyze(trace, top=0)
        except UsageError as error:
            yield Unreadable(run, error.message)
            return
        facts = facts_of(trace, report)
        before = [other for other in self._last if other.run != run]
        change = change_since(
            facts.step_level,
            [other.step_level for other in before[-self._most :]],
            run_spread_of([report]),
        )
        self._last = [*before[-_KEPT_FACTS:], facts]
        yield News(facts, change, is_history, is_again, damage)


def _damage(trace: Trace) -> str:
    """Why a file of the run is cut off, as one is that is being copied; empty if none is."""
    return next(
        (problem.sentence for problem in trace.problems if problem.code == "damaged-file"), ""
    )


def _is_readable_in_part(files: RunFiles) -> bool:
    """Whether `--salvage` finds anything in them."""
    return any(read_host(path, salvage=True).part is not None for path in files.paths)
