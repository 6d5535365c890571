"""Follows log directories: reports on each run that comes, and tells other programs of the newest one of each.

Levels of steps are kept for later runs. Prometheus reads a text file, OpenTelemetry is sent to, and commands of the user are
run on findings.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any, Final, TypeAlias

from msgspec import Struct, field

from traceview.analysis.rules.finding import SEVERITIES, Finding
from traceview.base.errors import TraceFormatError, TraceNotFoundError, UsageError
from traceview.base.location import Location
from traceview.base.text import encodable
from traceview.base.units import PS_PER_S
from traceview.base.version import VERSION
from traceview.comparison.noise import (
    TOO_NOISY,
    Difference,
    StepLevels,
    run_spread_of,
    step_change,
)
from traceview.comparison.sides import capture_steps, setup_of
from traceview.comparison.verdict import below_words, ratio_words
from traceview.document import numbers
from traceview.document.sanitize import sanitize
from traceview.ledger.states import State
from traceview.report.build import analyze
from traceview.report.model import Report, started_ns
from traceview.trace.reading.load import load_run
from traceview.trace.reading.locate import RunFiles, find_runs, run_age

Files: TypeAlias = dict[str, int]
"""The sizes of the files of a run in bytes, by name."""

INCOMPLETE_AFTER_S: Final = 120.0
"""A file that has not grown for so long is written by nobody any more; a choice of ours."""

_KEPT_RUNS: Final = 20


class Past(Struct):
    """What later runs are compared with. `setup`: the program, the devices and the batch size; `levels`: None without steps."""

    setup: tuple[str, str, int | None]
    levels: StepLevels | None


class Memory(Struct, forbid_unknown_fields=True):
    """The memory of a later call: the runs that were read or passed over, with the files that they had, and what the last
    ones were like, oldest first.
    """

    seen: dict[str, Files] = field(default_factory=dict)
    last: dict[str, Past] = field(default_factory=dict)


class News(Struct, frozen=True):
    """A run that was read. `is_history`: it was there before the watch began. `change`: of its step against those of
    `before_count` runs, None where nothing shows the noise.

    `damage`: why a file beside the readable ones stays incomplete; empty if none does.
    """

    report: Report
    change: Difference | None
    before_count: int
    is_history: bool
    damage: str = ""


class Unreadable(Struct, frozen=True):
    """A run that cannot be read, and why."""

    run: str
    reason: str


class Follower:
    """A log directory, with its newest run and how many were read and could not be. `memory`: of an earlier watch, None
    without one. `most`: how many runs before are compared with, and read at the beginning.
    """

    def __init__(self, name: str, logdir: Location, memory: Memory | None, most: int) -> None:
        self.name = name
        self.logdir = logdir
        self.report: Report | None = None
        self.change: Difference | None = None
        self.run_count = 0
        self.unreadable_count = 0
        self._most = most
        self._memory = memory or Memory()
        self._history: frozenset[str] | None = None if memory is None else frozenset()
        self._files: dict[str, Files] = {}
        """Of the last look."""

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
        name, trace, damage = run.name, None, ""
        try:
            trace = load_run(run)
            cut = (row.sentence for row in trace.problems if row.code == "damaged-file")
            damage = next(cut, "")
        except (TraceFormatError, TraceNotFoundError) as error:
            damage = error.message
        if damage and _may_grow(run):
            return
        self._memory.seen[name] = self._files[name]
        if trace is None:
            self.unreadable_count += 1
            yield Unreadable(name, damage)
            return
        self.report = report = analyze(trace, top=0)
        self.run_count += 1
        steps, last = capture_steps(report), self._memory.last
        own = Past((_program(report), *setup_of(report)), steps.levels if steps else None)
        last.pop(name, None)
        # Of other work the step time says nothing.
        alike = [run.levels for run in last.values() if run.setup == own.setup][-self._most :]
        last[name] = own
        change = step_change(alike, [own.levels], run_spread_of([report]))
        self.change = None if change is None or change.low is None else change
        yield News(report, self.change, len([*filter(None, alike)]), is_history, damage)


def _program(report: Report) -> str:
    """The scripts that ran; empty where that was not recorded."""
    environment = report.results.environment
    scripts = {host.command.script[:1] for host in (environment.hosts if environment else ())}
    return " ".join(sorted(PurePath(name).name for script in scripts for name in script))


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
    used, compute = capture_steps(report), report.verdict.compute_ratio
    facts = (
        report.source.run,
        "" if used is None else f"mean step {numbers.time(round(used.mean_ps))}",
        "" if compute is None else f"{numbers.percent(compute)} computing",
        change_words(news.change, news.before_count) if news.change else "",
        report.verdict.headline,
    )
    return " · ".join(filter(None, facts))


LEAST_RATIO: Final = 0.02
"""Of the step: what differs by less is as before; a choice of ours."""


def noise_of(change: Difference) -> float:
    """How large a change says nothing: less than this change where it is shown, and else no less."""
    low, high = change.low or 0.0, change.high or 0.0
    nearer = change.value - low if change.value > 0 else high - change.value
    half = (high - low) / 2 if low <= 0 <= high else 0.0
    return max(nearer, half, LEAST_RATIO)


def change_words(change: Difference, before_count: int) -> str:
    """How the step differs from that of so many runs before."""
    before = "the run before" if before_count == 1 else f"the last {before_count} runs"
    step = "typical step " if change.measure == "typical" else ""
    noise = noise_of(change)
    if abs(change.value) > noise:
        words = ratio_words(change.value)
        return f"{step}takes {words} {'than' if words.endswith('time') else 'as'} {before}"
    if noise < TOO_NOISY:
        return f"{step}as {before} (within {numbers.share(noise)})"
    return f"no verdict: {before} cannot prove a change{below_words(change.least_shown or 0.0)}"


FIRST_LINE: Final = "# Written by traceview watch"
"""The first line of a file that may be replaced."""
EXTRA: Final = "pip install 'traceview[otel]'"

_NS_PER_S: Final = 10**9
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_PATIENCE_MS: Final = 10_000


_METRICS: Final = {
    "run_info": "The newest run.",
    "run_start_time_seconds": "When its profile began, Unix time.",
    "step_time_seconds": "Median time of its steps.",
    "step_time_change_ratio": "Its step time over that of the runs before, minus 1.",
    "step_time_noise_ratio": "How large a change says nothing.",
    "verdict": "1 for the status of its verdict.",
    "compute_ratio": "Share of the GPU time of all visible devices in which they compute.",
    "state_ratio": "Share of the GPU time of all visible devices in each state.",
    "device_compute_ratio": "Share of its steps in which the device computes.",
    "finding": "1 for each finding about the newest run.",
    "finding_gpu_time_ratio": "Share of the GPU time of all visible devices that the finding costs.",
    "runs_total": "Runs read since the watch began.",
    "unreadable_runs_total": "Runs that could not be read since the watch began.",
}
"""By name, without `traceview_`, what a metric means."""


def _samples(job: Follower) -> Iterator[tuple[str, dict[str, str], float]]:
    """The samples of a job that have a value: the metric, its labels with those of the job, and the value."""
    report, change = job.report, job.change
    if report is None:
        return
    ledger, started = report.results.ledger, started_ns(report)
    samples: list[tuple[str, dict[str, str], float | None]] = [
        ("run_info", {"run": report.source.run}, 1.0),
        ("run_start_time_seconds", {}, None if started is None else started / _NS_PER_S),
        ("step_time_seconds", {}, _step_s(report)),
        ("step_time_change_ratio", {}, change.value if change else None),
        ("step_time_noise_ratio", {}, noise_of(change) if change else None),
        ("verdict", {"status": report.verdict.status}, 1.0),
        ("compute_ratio", {}, report.verdict.compute_ratio),
        ("runs_total", {}, float(job.run_count)),
        ("unreadable_runs_total", {}, float(job.unreadable_count)),
    ]
    for code, finding in worst_findings(report).items():
        samples.append(("finding", {"code": code, "severity": finding.severity}, 1.0))
        if finding.loss:
            ratio = finding.loss.gpu_time_ratio
            samples.append(("finding_gpu_time_ratio", {"code": code}, ratio))
    for state, share in ledger.share_by_state.items() if ledger else ():
        samples.append(("state_ratio", {"state": state}, share))
    for row in report.device_states:
        computing_ps = row.states.get(State.COMPUTE.key, 0)
        computing = computing_ps / row.step_ps if row.step_ps else None
        samples.append(("device_compute_ratio", {"device": row.device}, computing))
    for name, labels, value in samples:
        if value is not None:
            yield name, {"job": job.name, "logdir": str(job.logdir), **labels}, value


def worst_findings(report: Report) -> dict[str, Finding]:
    """By code the finding of a report, of several with one code the worst."""
    worst: dict[str, Finding] = {}
    for finding in sorted(report.findings, key=lambda row: SEVERITIES.index(row.severity)):
        worst.setdefault(finding.code, finding)
    return worst


def _step_s(report: Report) -> float | None:
    steps = report.results.steps
    return steps.median_ps / PS_PER_S if steps and steps.median_ps is not None else None


def metrics_text(jobs: Sequence[Follower]) -> str:
    """The content of the file: each metric once, with the samples of all jobs; empty without any."""
    samples = [sample for job in jobs for sample in _samples(job)]
    lines = [FIRST_LINE]
    for metric, meaning in _METRICS.items():
        known = [(labels, value) for name, labels, value in samples if name == metric]
        if known:
            kind = "counter" if metric.endswith("_total") else "gauge"
            lines.append(f"# HELP traceview_{metric} {meaning}")
            lines.append(f"# TYPE traceview_{metric} {kind}")
        for labels, value in known:
            text = ",".join(f'{label}="{_escaped(content)}"' for label, content in labels.items())
            lines.append(f"traceview_{metric}{{{text}}} {value!r}")
    return "\n".join((*lines, "")) if samples else ""


def _escaped(text: str) -> str:
    return encodable(sanitize(text)).translate(_ESCAPES)


class Telemetry:
    """A sender to where the OTEL_ variables lead. Raises `UsageError` if the packages are not installed."""

    def __init__(self) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult
            from opentelemetry.sdk.resources import Resource
        except ImportError:
            raise UsageError("--otel needs the OpenTelemetry SDK", hint=EXTRA) from None
        # What the packages log would go to standard error; who configures logging gets it still.
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        # Runs are sent when they come, not by a clock.
        self._reader: Any = InMemoryMetricReader()
        self._exporter: Any = OTLPMetricExporter()
        self._success: object = MetricExportResult.SUCCESS
        named = Resource.create({"service.name": "traceview", "service.version": VERSION})
        self._provider: Any = MeterProvider([self._reader], named)
        meter = self._provider.get_meter("traceview", VERSION)
        self._gauges: dict[str, Any] = {
            name: meter.create_gauge(
                f"traceview.{name}", "s" if name.endswith("_seconds") else "1", meaning
            )
            for name, meaning in _METRICS.items()
        }

    def send(self, job: Follower) -> bool:
        """Send the newest run of a job; whether that worked."""
        for name, labels, value in _samples(job):
            self._gauges[name].set(value, labels)
        try:
            data = self._reader.get_metrics_data()
            return bool(self._exporter.export(data, _PATIENCE_MS) is self._success)
        except Exception:
            # Whatever the collector does, the watch goes on.
            return False

    def close(self) -> None:
        """End the connection."""
        self._provider.shutdown(_PATIENCE_MS)
        self._exporter.shutdown()


# Commands on findings. What a trace says reaches them as variables, never as part of a command.


PATIENCE_S: Final = 60
"""A command that takes longer is ended, so that the watch goes on."""


class OnFinding(Struct, frozen=True):
    """The shell command to run when a run has this finding."""

    code: str
    command: str


def variables(job: Follower, report: Report, finding: Finding) -> Mapping[str, str]:
    """The variables of a command: texts on one line, without control characters; empty where nothing is known."""
    change = job.change
    known = {
        "JOB": job.name,
        "LOGDIR": job.logdir,
        "RUN": report.source.run,
        "FINDING": finding.code,
        "SEVERITY": finding.severity,
        "TITLE": finding.title,
        "GPU_TIME_RATIO": finding.loss.gpu_time_ratio if finding.loss else None,
        "STATUS": report.verdict.status,
        "HEADLINE": report.verdict.headline,
        "STEP_SECONDS": _step_s(report),
        "STEP_CHANGE_RATIO": change.value if change else None,
        "STEP_NOISE_RATIO": noise_of(change) if change else None,
        "COMPUTE_RATIO": report.verdict.compute_ratio,
    }
    return {
        f"TRACEVIEW_{name}": "" if value is None else encodable(sanitize(str(value)))
        for name, value in known.items()
    }


def run_commands(commands: Sequence[OnFinding], job: Follower, report: Report) -> Iterator[str]:
    """Run those for the findings of a run, one after another; yields what went wrong."""
    findings = worst_findings(report)
    for command in commands:
        if command.code in findings:
            wrong = _run(command.command, variables(job, report, findings[command.code]))
            if wrong:
                yield f"--on-finding {command.code}: the command {wrong}"


def _run(command: str, known: Mapping[str, str]) -> str | None:
    """Run a command; why it failed, if it did. What it prints goes to standard error, for the lines of runs are data."""
    process = subprocess.Popen(
        command,
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=2,  # standard error
        env={**os.environ, **known},
        # Everything that it starts can be ended with it.
        start_new_session=True,
    )
    try:
        code = process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        return f"took longer than {PATIENCE_S} s and was ended"
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code < 0:
        return f"was ended by signal {-code}"
    return f"ended with exit code {code}" if code else None
