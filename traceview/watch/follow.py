"""Notices runs that have come into a log directory, and keeps of their reports what is compared from run to run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from traceview.analysis.rules.finding import SEVERITIES, Severity
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
from traceview.ledger.states import State
from traceview.report.build import analyze
from traceview.report.model import Report, VerdictStatus, started_ns
from traceview.trace.model import Trace
from traceview.trace.reading.load import load_run
from traceview.trace.reading.locate import RunFiles, find_runs, run_age
from traceview.trace.reading.part import read_host

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
    """The memory of a later call: the runs seen, the facts of the last of them, oldest first, and those waited for."""

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
        """The memory of a later watch; runs that are gone are forgotten."""
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
        """The runs since the last look. Raises `StoreError` if a store cannot be asked."""
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
                parts = (read_host(path, salvage=True).part for path in arrival.files.paths)
                yield Unreadable(run, error.message, any(part is not None for part in parts))
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


# What is kept of a run, and its line


class FindingFacts(Struct, frozen=True):
    """A finding. `gpu_time_ratio`: what it costs as a share of the GPU time, None if it is about no time."""

    code: str
    severity: Severity
    title: str
    gpu_time_ratio: float | None


class DeviceFacts(Struct, frozen=True):
    """A visible device, and the share of its steps in which it computed."""

    key: str
    compute_ratio: float


class RunFacts(Struct, frozen=True):
    """One run. `step_ps`: the median of its used steps, `step_level` what is compared with other runs.

    `compute_ratio`: share of the GPU time of all visible devices in which they compute; `states`: the share of each state.
    `started_ns`: Unix nanoseconds. None: not recorded.
    """

    run: str
    started_ns: int | None
    step_ps: int | None
    compute_ratio: float | None
    status: VerdictStatus
    headline: str
    findings: tuple[FindingFacts, ...]
    devices: tuple[DeviceFacts, ...]
    states: dict[str, float]
    step_level: Level | None = None


def facts_of(trace: Trace, report: Report) -> RunFacts:
    """The facts that are kept of a run."""
    steps, ledger = report.results.steps, report.results.ledger
    used = capture_steps(report)
    return RunFacts(
        run=trace.run,
        started_ns=started_ns(report),
        step_ps=None if steps is None else steps.median_ps,
        compute_ratio=report.verdict.compute_ratio,
        status=report.verdict.status,
        headline=report.verdict.headline,
        findings=_once_each(report),
        devices=tuple(
            DeviceFacts(row.device, row.states.get(State.COMPUTE.key, 0) / row.step_ps)
            for row in (ledger.devices if ledger else ())
            if row.step_ps
        ),
        states=dict(ledger.share_by_state) if ledger else {},
        step_level=used.level if used else None,
    )


def _once_each(report: Report) -> tuple[FindingFacts, ...]:
    """The findings, of several with one code the worst."""
    worst: dict[str, FindingFacts] = {}
    for finding in report.findings:
        ratio = finding.loss.gpu_time_ratio if finding.loss else None
        facts = FindingFacts(finding.code, finding.severity, finding.title, ratio)
        other = worst.setdefault(finding.code, facts)
        if SEVERITIES.index(facts.severity) < SEVERITIES.index(other.severity):
            worst[finding.code] = facts
    return tuple(worst.values())


def line_of(facts: RunFacts, change: StepChange | None, *, is_again: bool) -> str:
    """The run in one line. `is_again`: it has a line already, and files have come since."""
    parts = [f"{facts.run}, again" if is_again else facts.run]
    if facts.step_ps is not None:
        parts.append(f"median step {numbers.time(facts.step_ps)}")
    if facts.compute_ratio is not None:
        parts.append(f"{numbers.percent(facts.compute_ratio)} computing")
    if change is not None:
        parts.append(change.text)
    parts.append(facts.headline)
    return " · ".join(parts)


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
    if change is None or change.noise is None:
        return None
    return StepChange(
        change.value,
        max(change.noise, LEAST_RATIO),
        sum(level is not None for level in before),
        change.direction in ("slower", "faster") and abs(change.value) > LEAST_RATIO,
    )
