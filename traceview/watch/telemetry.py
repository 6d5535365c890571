"""Sends what new runs say as OpenTelemetry metrics, to where the OTEL_ variables of the environment lead."""

from __future__ import annotations

import logging
from typing import Any, Final

from traceview.base.errors import UsageError
from traceview.base.units import PS_PER_S
from traceview.base.version import VERSION
from traceview.watch.facts import RunFacts, StepChange

EXTRA: Final = "pip install 'traceview[otel]'"
_PATIENCE_MS: Final = 10_000


class Telemetry:
    """A sender of metrics. Raises `UsageError` if the packages are not installed."""

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
        self._step = meter.create_gauge(
            "traceview.step.time", "s", "Median time of the steps of a run."
        )
        self._change = meter.create_gauge(
            "traceview.step.time.change",
            "1",
            "Step time over the median of the runs before, minus 1.",
        )
        self._device = meter.create_gauge(
            "traceview.device.compute", "1", "Share of its steps in which a device computes."
        )
        self._state = meter.create_gauge(
            "traceview.gpu_time", "1", "Share of the GPU time of all visible devices in a state."
        )
        self._finding = meter.create_gauge(
            "traceview.finding.gpu_time",
            "1",
            "Share of the GPU time of all visible devices that a finding costs.",
        )
        self._runs = meter.create_counter("traceview.runs", "{run}", "Runs read.")

    def send(self, logdir: str, facts: RunFacts, change: StepChange | None) -> bool:
        """Send one run; whether that worked."""
        place = {"traceview.logdir": logdir, "traceview.run": facts.run}
        if facts.step_ps is not None:
            self._step.set(facts.step_ps / PS_PER_S, place)
        if change is not None:
            self._change.set(change.ratio, place)
        for device in facts.devices:
            self._device.set(device.compute_ratio, {**place, "traceview.device": device.key})
        for state, ratio in facts.states.items():
            self._state.set(ratio, {**place, "traceview.state": state})
        for finding in facts.findings:
            about = {"traceview.finding": finding.code, "traceview.severity": finding.severity}
            self._finding.set(finding.gpu_time_ratio or 0.0, {**place, **about})
        self._runs.add(1, {"traceview.logdir": logdir})
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
