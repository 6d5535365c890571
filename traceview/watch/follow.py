"""Notices runs that have come into a log directory, reports on each, and keeps the levels of their steps for later runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct, field

from traceview.base.errors import TraceFormatError, TraceNotFoundError, UsageError
from traceview.base.location import Location
from traceview.comparison.noise import (
    ENOUGH_RUNS,
    TOO_NOISY,
    Level,
    RunSpread,
    run_spread_of,
    step_change,
)
from traceview.comparison.sides import capture_steps
from traceview.document import numbers
from traceview.report.build import analyze
from traceview.report.model import Report
from traceview.trace.reading.load import load_run
from traceview.trace.reading.locate import RunFiles, find_runs, run_age

Files: TypeAlias = dict[str, int]
"""The sizes of the files of a run in bytes, by name."""

INCOMPLETE_AFTER_S: Final = 120.0
"""A file that has not grown for so long is written by nobody any more; a choice of ours."""

_KEPT_RUNS: Final = 20


class Memory(Struct, forbid_unknown_fields=True):
    """The memory of a later call: the runs that were read or passed over, with the files that they had, and the levels of
    the last ones, oldest first, None without steps.
    """

    seen: dict[str, Files] = field(default_factory=dict)
    last: dict[str, Level | None] = field(default_factory=dict)


class News(Struct, frozen=True):
    """A run that was read. `is_history`: it was there before the watch began.

    `damage`: why a file beside the readable ones stays incomplete; empty if none does.
    """

    report: Report
    change: StepChange | None
    is_history: bool
    damage: str = ""


class Unreadable(Struct, frozen=True):
    """A run that cannot be read, and why."""

    run: str
    reason: str


class Follower:
    """The runs below `logdir`. `memory`: of an earlier watch, None without one. `most`: how many runs before are compared
    with, and read at the beginning.
    """

    def __init__(self, logdir: Location, memory: Memory | None, most: int) -> None:
        self.logdir = logdir
        self._most = most
        self._memory = memory or Memory()
        self._history: frozenset[str] | None = None if memory is None else frozenset()
        self._files: dict[str, Files] = {}
        """Of the last look."""
        self._damaged: dict[str, Files] = {}
        """Files that were damaged when they were read."""

    @property
    def memory(self) -> Memory:
        """The memory of a later watch; runs that are gone are forgotten."""
        seen = {run: files for run, files in self._memory.seen.items() if run in self._files}
        return Memory(seen, dict([*self._memory.last.items()][-_KEPT_RUNS:]))

    def begin(self) -> None:
        """Look for the first time: the runs that are there now are history, of which only the newest are read."""
        self._unchanged()
        if self._history is None:
            self._history = frozenset(self._files)

    def look(self) -> Iterator[News | Unreadable]:
        """The runs since the last look. Raises `StoreError` if a store cannot be asked."""
        arrived = [run for run in self._unchanged() if self._is_unseen(run.name)]
        history = self._history or frozenset()
        for run in [run for run in arrived if run.name in history][: -self._most]:
            self._memory.seen.setdefault(run.name, self._files[run.name])
        for run in arrived:
            if self._is_unseen(run.name):
                yield from self._read(run, is_history=run.name in history)

    @property
    def has_runs(self) -> bool:
        """Whether there were runs at the last look."""
        return bool(self._files)

    @property
    def incomplete(self) -> list[str]:
        """The runs that are there and were not read so far."""
        return [run for run in self._files if self._is_unseen(run)]

    def _is_unseen(self, run: str) -> bool:
        return self._memory.seen.get(run) != self._files[run]

    def _unchanged(self) -> list[RunFiles]:
        """The runs whose files are as they were at the last look, oldest first; none if there is no log directory."""
        try:
            runs = find_runs(self.logdir)
        except TraceNotFoundError:
            runs = ()
        # Before anything changes: a store may fail to answer.
        files = {run.name: _sizes(run) for run in runs}
        before, self._files = self._files, files
        same = [run for run in runs if before.get(run.name) == files[run.name]]
        return sorted(same, key=run_age)

    def _read(self, run: RunFiles, *, is_history: bool) -> Iterator[News | Unreadable]:
        name, files, may_grow = run.name, self._files[run.name], _may_grow(run)
        if may_grow and self._damaged.get(name) == files:
            return
        try:
            trace = load_run(run)
        except (TraceFormatError, TraceNotFoundError) as error:
            if may_grow:
                self._damaged[name] = files
                return
            self._memory.seen[name] = files
            yield Unreadable(name, error.message)
            return
        cut = (row.sentence for row in trace.problems if row.code == "damaged-file")
        damage = next(cut, "")
        if may_grow and damage:
            self._damaged[name] = files
            return
        self._memory.seen[name] = files
        try:
            report = analyze(trace, top=0)
        except UsageError as error:
            yield Unreadable(name, error.message)
            return
        used = capture_steps(report)
        level = used.level if used else None
        last = self._memory.last
        last.pop(name, None)
        change = change_since(level, [*last.values()][-self._most :], run_spread_of([report]))
        last[name] = level
        yield News(report, change, is_history, damage)


def _sizes(run: RunFiles) -> Files:
    sizes = {}
    for path in run.paths:
        # It may have been removed after it was listed.
        with suppress(OSError):
            sizes[path.name] = path.stat().st_size
    return sizes


def _may_grow(run: RunFiles) -> bool:
    """Whether a file was written a short while ago; a store has whole files only."""
    times_s = []
    for path in run.paths:
        with suppress(OSError):
            times_s += [path.stat().st_mtime] if isinstance(path, Path) else []
    return time.time() - max(times_s, default=0.0) < INCOMPLETE_AFTER_S


def line_of(news: News) -> str:
    """The run in one line."""
    report = news.report
    steps, compute = report.results.steps, report.verdict.compute_ratio
    median_ps = steps.median_ps if steps else None
    facts = (
        report.source.run,
        "" if median_ps is None else f"median step {numbers.time(median_ps)}",
        "" if compute is None else f"{numbers.percent(compute)} computing",
        news.change.text if news.change else "",
        report.verdict.headline,
    )
    return " · ".join(filter(None, facts))


LEAST_RATIO: Final = 0.02
"""Of the step: what differs by less is as before; a choice of ours."""


class StepChange(Struct, frozen=True):
    """The step time against that of `run_count` runs before: `ratio` more, of which `noise_ratio` says nothing."""

    ratio: float
    noise_ratio: float
    run_count: int
    is_beyond_noise: bool

    @property
    def text(self) -> str:
        """The change in words."""
        before = "the run before" if self.run_count == 1 else f"the last {self.run_count} runs"
        noise = numbers.share(self.noise_ratio)
        if self.is_beyond_noise:
            slower = "slower" if self.ratio > 0 else "faster"
            return f"{numbers.share(abs(self.ratio))} {slower} than {before}"
        if self.noise_ratio < TOO_NOISY:
            return f"as {before} (within {noise})"
        if self.run_count < ENOUGH_RUNS:
            return f"no verdict yet: it takes {ENOUGH_RUNS} runs before"
        return f"no verdict: {before} differ too much (within {noise})"


def change_since(
    run: Level | None, before: Sequence[Level | None], spread: RunSpread
) -> StepChange | None:
    """How the step of a run differs from that of the runs `before`; None without both, or where nothing shows the noise."""
    change = step_change(before, [run], spread)
    if change is None or change.high is None:
        return None
    return StepChange(
        change.value,
        max(change.high - change.value, LEAST_RATIO),
        sum(level is not None for level in before),
        change.direction in ("slower", "faster") and abs(change.value) > LEAST_RATIO,
    )
