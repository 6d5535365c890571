"""Turns the newest run of each job into metrics: Prometheus' text format for its file collector, and OpenTelemetry."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from traceview.base.errors import UsageError
from traceview.base.units import PS_PER_S
from traceview.base.version import VERSION
from traceview.document.sanitize import encodable, sanitize
from traceview.watch.facts import RunFacts, StepChange

FIRST_LINE: Final = "# Written by traceview watch"
"""What a file begins with that may be replaced."""
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
