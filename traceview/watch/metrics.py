"""Tells other programs of the newest run of each job: Prometheus' text files, OpenTelemetry, and the user's commands."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct

from traceview.base.errors import UsageError
from traceview.base.text import encodable
from traceview.base.units import PS_PER_S
from traceview.base.version import VERSION
from traceview.document.sanitize import sanitize
from traceview.watch.follow import FindingFacts, RunFacts, StepChange

FIRST_LINE: Final = "# Written by traceview watch"
"""The first line of a file that may be replaced."""
EXTRA: Final = "pip install 'traceview[otel]'"

_NS_PER_S: Final = 10**9
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_PATIENCE_MS: Final = 10_000

Samples: TypeAlias = Iterable[tuple[dict[str, str], float | None]]


class NewestRun(NamedTuple):
    """The newest run of a job. `run_count` and `unreadable_count`: runs since the watch began."""

    job: str
    logdir: str
    facts: RunFacts
    change: StepChange | None
    run_count: int
    unreadable_count: int


class _Metric(NamedTuple):
    name: str
    kind: str
    meaning: str
    samples: Callable[[NewestRun], Samples]


def _one(value: Callable[[NewestRun], float | None]) -> Callable[[NewestRun], Samples]:
    return lambda run: [({}, value(run))]


def _seconds(count: int | None, per_second: int) -> float | None:
    return None if count is None else count / per_second


_METRICS: Final = (
    _Metric("run_info", "gauge", "The newest run.", lambda run: [({"run": run.facts.run}, 1.0)]),
    _Metric(
        "run_start_time_seconds",
        "gauge",
        "When its profile began, Unix time.",
        _one(lambda run: _seconds(run.facts.started_ns, _NS_PER_S)),
    ),
    _Metric(
        "step_time_seconds",
        "gauge",
        "Median time of its steps.",
        _one(lambda run: _seconds(run.facts.step_ps, PS_PER_S)),
    ),
    _Metric(
        "step_time_change_ratio",
        "gauge",
        "Its step time over that of the runs before, minus 1.",
        _one(lambda run: run.change.ratio if run.change else None),
    ),
    _Metric(
        "step_time_noise_ratio",
        "gauge",
        "How large a change says nothing.",
        _one(lambda run: run.change.noise_ratio if run.change else None),
    ),
    _Metric(
        "verdict",
        "gauge",
        "1 for the status of its verdict.",
        lambda run: [({"status": run.facts.status}, 1.0)],
    ),
    _Metric(
        "compute_ratio",
        "gauge",
        "Share of the GPU time of all visible devices in which they compute.",
        _one(lambda run: run.facts.compute_ratio),
    ),
    _Metric(
        "state_ratio",
        "gauge",
        "Share of the GPU time of all visible devices in each state.",
        lambda run: [({"state": state}, ratio) for state, ratio in run.facts.states.items()],
    ),
    _Metric(
        "device_compute_ratio",
        "gauge",
        "Share of its steps in which the device computes.",
        lambda run: [({"device": row.key}, row.compute_ratio) for row in run.facts.devices],
    ),
    _Metric(
        "finding",
        "gauge",
        "1 for each finding about the newest run.",
        lambda run: [
            ({"code": row.code, "severity": row.severity}, 1.0) for row in run.facts.findings
        ],
    ),
    _Metric(
        "finding_gpu_time_ratio",
        "gauge",
        "Share of the GPU time of all visible devices that the finding costs.",
        lambda run: [({"code": row.code}, row.gpu_time_ratio) for row in run.facts.findings],
    ),
    _Metric(
        "runs_total",
        "counter",
        "Runs read since the watch began.",
        _one(lambda run: float(run.run_count)),
    ),
    _Metric(
        "unreadable_runs_total",
        "counter",
        "Runs that could not be read since the watch began.",
        _one(lambda run: float(run.unreadable_count)),
    ),
)


def metrics_text(newest: Sequence[NewestRun]) -> str:
    """The content of the file: each metric once, with the samples of all jobs."""
    return "\n".join((FIRST_LINE, *_lines(newest), ""))


def _lines(newest: Sequence[NewestRun]) -> Iterator[str]:
    for metric in _METRICS:
        known = [sample for run in newest for sample in _known(metric, run)]
        if known:
            yield f"# HELP traceview_{metric.name} {metric.meaning}"
            yield f"# TYPE traceview_{metric.name} {metric.kind}"
        for labels, value in known:
            text = ",".join(f'{label}="{_escaped(content)}"' for label, content in labels.items())
            yield f"traceview_{metric.name}{{{text}}} {value!r}"


def _known(metric: _Metric, run: NewestRun) -> Iterator[tuple[dict[str, str], float]]:
    """The samples of a run that have a value, with the labels of its job."""
    for labels, value in metric.samples(run):
        if value is not None:
            yield {"job": run.job, "logdir": run.logdir, **labels}, value


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
            metric.name: meter.create_gauge(
                f"traceview.{metric.name}",
                "s" if metric.name.endswith("_seconds") else "1",
                metric.meaning,
            )
            for metric in _METRICS
        }

    def send(self, run: NewestRun) -> bool:
        """Send one run; whether that worked."""
        for metric in _METRICS:
            for labels, value in _known(metric, run):
                self._gauges[metric.name].set(value, labels)
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


_STANDARD_ERROR: Final = 2


class OnFinding(Struct, frozen=True):
    """The shell command to run when a run has this finding."""

    code: str
    command: str


def variables(run: NewestRun, finding: FindingFacts) -> Mapping[str, str]:
    """The variables of a command: texts on one line, without control characters; empty where nothing is known."""
    facts, change = run.facts, run.change
    known = {
        "JOB": run.job,
        "LOGDIR": run.logdir,
        "RUN": facts.run,
        "FINDING": finding.code,
        "SEVERITY": finding.severity,
        "TITLE": finding.title,
        "GPU_TIME_RATIO": _number(finding.gpu_time_ratio),
        "STATUS": facts.status,
        "HEADLINE": facts.headline,
        "STEP_SECONDS": _number(None if facts.step_ps is None else facts.step_ps / PS_PER_S),
        "STEP_CHANGE_RATIO": _number(change.ratio if change else None),
        "STEP_NOISE_RATIO": _number(change.noise_ratio if change else None),
        "COMPUTE_RATIO": _number(facts.compute_ratio),
    }
    return {f"TRACEVIEW_{name}": encodable(sanitize(text)) for name, text in known.items()}


def _number(value: float | None) -> str:
    return "" if value is None else repr(value)


def run_commands(commands: tuple[OnFinding, ...], run: NewestRun) -> Iterator[str]:
    """Run those for the findings of a run, one after another; yields what went wrong."""
    findings = {finding.code: finding for finding in run.facts.findings}
    for command in commands:
        if command.code in findings:
            wrong = _run(command.command, variables(run, findings[command.code]))
            if wrong:
                yield f"--on-finding {command.code}: the command {wrong}"


def _run(command: str, known: Mapping[str, str]) -> str | None:
    """Run a command; why it failed, if it did. What it prints goes to standard error, for the lines of runs are data."""
    process = subprocess.Popen(
        command,
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=_STANDARD_ERROR,
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
