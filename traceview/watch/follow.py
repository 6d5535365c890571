"""Notices runs that have come into a log directory, reports on each, and keeps the levels of their steps for later runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from msgspec import Struct

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
from traceview.trace.model import Trace
from traceview.trace.reading.load import load_run
from traceview.trace.reading.locate import RunFiles, find_runs, run_age
from traceview.trace.reading.part import read_host

Files: TypeAlias = tuple[tuple[str, int], ...]
"""The names of the files of a run and their sizes in bytes."""


INCOMPLETE_AFTER_S: Final = 120.0
"""A file that has not grown for so long is written by nobody any more; a choice of ours."""

_KEPT_RUNS: Final = 20


class SeenRun(Struct, frozen=True):
    """A run that was read, or passed over, with the files that it had."""

    run: str
    files: Files


class EarlierRun(Struct, frozen=True):
    """A run that later ones are compared with; its level is None without steps."""

    run: str
    step_level: Level | None = None


class Quiet(Struct, frozen=True):
    """Since when the files of a run have these sizes, Unix seconds."""

    run: str
    files: Files
    since_s: float


class Memory(Struct, forbid_unknown_fields=True):
    """The memory of a later call: the runs seen, the last of them, oldest first, and those waited for."""

    seen: tuple[SeenRun, ...] = ()
    last: tuple[EarlierRun, ...] = ()
    waiting: tuple[Quiet, ...] = ()


class News(Struct, frozen=True):
    """A run that was read. `is_history`: it was there before the watch began. `is_again`: it has more files by now.

    `damage`: why a file beside the readable ones stays incomplete; empty if none does.
    """

    report: Report
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
        self._most = most
        self._quiet = {quiet.run: quiet for quiet in known.waiting}
        self._looks: dict[str, int] = {}
        self._looked_s = 0.0
        self._seen = {seen.run: seen.files for seen in known.seen}
        self._last = {earlier.run: earlier.step_level for earlier in known.last}
        self._history: frozenset[str] | None = None if memory is None else frozenset()

    @property
    def memory(self) -> Memory:
        """The memory of a later watch; runs that are gone are forgotten."""
        seen = (SeenRun(run, files) for run, files in self._seen.items() if run in self._quiet)
        last = (EarlierRun(*pair) for pair in [*self._last.items()][-_KEPT_RUNS:])
        waiting = (self._quiet[run] for run in self.incomplete)
        return Memory(tuple(seen), tuple(last), tuple(waiting))

    def begin(self) -> None:
        """Look for the first time: the runs that are there now are history, of which only the newest are read."""
        self._unchanged()
        if self._history is None:
            self._history = frozenset(self._quiet)

    def look(self) -> Iterator[News | Unreadable]:
        """The runs since the last look. Raises `StoreError` if a store cannot be asked."""
        arrived = [run for run in self._unchanged() if self._is_unseen(run.name)]
        history = self._history or frozenset()
        for run in [run for run in arrived if run.name in history][: -self._most]:
            self._seen.setdefault(run.name, self._quiet[run.name].files)
        for run in arrived:
            if self._is_unseen(run.name):
                yield from self._read(run, is_history=run.name in history)

    @property
    def has_runs(self) -> bool:
        """Whether there were runs at the last look."""
        return bool(self._quiet)

    @property
    def incomplete(self) -> list[str]:
        """The runs that are there and were not read so far."""
        return [run for run in self._quiet if self._is_unseen(run)]

    def _is_unseen(self, run: str) -> bool:
        return self._seen.get(run) != self._quiet[run].files

    def _unchanged(self) -> list[RunFiles]:
        """The runs whose files are as they were at the last look, oldest first; none if there is no log directory."""
        try:
            runs = find_runs(self.logdir)
        except TraceNotFoundError:
            runs = ()
        # Before anything changes: a store may fail to answer.
        files = {run.name: _sizes(run) for run in runs}
        now_s, quiet, looks = time.time(), self._quiet, self._looks
        self._quiet, self._looks, self._looked_s = {}, {}, now_s
        for run in runs:
            now = Quiet(run.name, files[run.name], now_s)
            before = quiet.get(run.name, now)
            is_same = before.files == now.files
            self._quiet[run.name] = before if is_same and before.since_s <= now_s else now
            self._looks[run.name] = looks.get(run.name, -1) + 1 if is_same else 0
        return [run for run in sorted(runs, key=run_age) if self._looks[run.name]]

    def _read(self, files: RunFiles, *, is_history: bool) -> Iterator[News | Unreadable]:
        run, quiet = files.name, self._quiet[files.name]
        is_again = run in self._seen
        is_patient = self._looked_s - quiet.since_s < INCOMPLETE_AFTER_S
        if self._looks[run] > 1 and is_patient:
            # It was damaged when it was read, and is as it was then.
            return
        try:
            trace = load_run(files)
        except (TraceFormatError, TraceNotFoundError) as error:
            if not is_patient:
                self._seen[run] = quiet.files
                parts = (read_host(path, salvage=True).part for path in files.paths)
                yield Unreadable(run, error.message, any(part is not None for part in parts))
            return
        damage = _damage(trace)
        if is_patient and damage:
            return
        self._seen[run] = quiet.files
        try:
            report = analyze(trace, top=0)
        except UsageError as error:
            yield Unreadable(run, error.message)
            return
        used = capture_steps(report)
        level = used.level if used else None
        self._last.pop(run, None)
        before = list(self._last.values())[-self._most :]
        self._last[run] = level
        change = change_since(level, before, run_spread_of([report]))
        yield News(report, change, is_history, is_again, damage)


def _sizes(run: RunFiles) -> Files:
    sizes = []
    for path in run.paths:
        # It may have been removed after it was listed.
        with suppress(OSError):
            sizes.append((path.name, path.stat().st_size))
    return tuple(sorted(sizes))


def _damage(trace: Trace) -> str:
    """Why a file of the run is cut off, as one is that is being copied; empty if none is."""
    return next(
        (problem.sentence for problem in trace.problems if problem.code == "damaged-file"), ""
    )


def line_of(news: News) -> str:
    """The run in one line; of a run that has a line already, and files that have come since, it says so."""
    report = news.report
    steps, compute = report.results.steps, report.verdict.compute_ratio
    median_ps = steps.median_ps if steps else None
    return " · ".join(
        filter(
            None,
            (
                f"{report.source.run}, again" if news.is_again else report.source.run,
                "" if median_ps is None else f"median step {numbers.time(median_ps)}",
                "" if compute is None else f"{numbers.percent(compute)} computing",
                news.change.text if news.change else "",
                report.verdict.headline,
            ),
        )
    )


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
