"""A log directory in a store is watched too, also while the store fails; metrics reach an OpenTelemetry collector."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.capture.conftest import ROOT, Captured, run_python
from tests.command import Command
from tests.store.object_server import served
from traceview.base.errors import StoreError
from traceview.cli.commands.watch import _Watch
from traceview.store.address import location_of
from traceview.watch.follow import Follower

pytestmark = [pytest.mark.cloud, pytest.mark.usefixtures("no_terminal")]


RUN = "2026_11_21_07_57_19"


def test_a_store_is_watched(command: Command, memory: Any, in_memory: str) -> None:
    options = ("--state", "memory://state.json", "--prometheus", "memory://run.prom")
    watch = ("watch", in_memory, "--once", "--every", "10ms", *options)
    done = command(*watch)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{RUN} · mean step 65.4 ms")
    assert command(*watch).out == ""
    assert f'run="{RUN}"'.encode() in memory.cat_file("/run.prom")


def test_a_store_that_fails_does_not_end_the_watch(
    in_memory: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    follower = Follower("logs", location_of(in_memory), None, 5)
    outputs = _Watch([follower], (), None, None, {}, None, is_once=False)
    follower.begin()

    def fail(*_: object) -> None:
        raise StoreError("memory://logs: no answer in time")

    with monkeypatch.context() as patch:
        patch.setattr("traceview.watch.follow.find_runs", fail)
        outputs.look()
        outputs.look()
        with pytest.raises(StoreError):
            outputs.end()
    outputs.look()
    outputs.end()
    out, err = capfd.readouterr()
    assert out.startswith(f"{RUN} · ")
    assert err.splitlines() == ["traceview: memory://logs: no answer in time; trying again"]


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """The address of a collector of OpenTelemetry metrics, and what it received."""
    received: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_request(self, *_: Any) -> None:
            pass

    with served(Handler) as address:
        yield address, received


def watched(logs: Path, endpoint: str) -> Captured:
    command = ("-m", "traceview", "watch", logs, "--once", "--every", "10ms", "--otel")
    otel = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    return run_python(ROOT, *command, environment={"PATH": "", **otel}, code=0)


def test_metrics_reach_a_collector(collector: tuple[str, list[bytes]], fixtures: Path) -> None:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )

    endpoint, received = collector
    done = watched(fixtures / "slow-input-2", endpoint)
    assert done.err == ""
    values: dict[tuple[str, str], float] = {}
    for content in received:
        for metric in (
            ExportMetricsServiceRequest.FromString(content)
            .resource_metrics[0]
            .scope_metrics[0]
            .metrics
        ):
            for point in (*metric.gauge.data_points, *metric.sum.data_points):
                labels = {pair.key: pair.value.string_value for pair in point.attributes}
                about = "".join(labels.get(name, "") for name in ("device", "code", "state"))
                values[metric.name, about] = point.as_double or point.as_int
    assert values["traceview.step_time_seconds", ""] == pytest.approx(0.067197355)
    assert values["traceview.device_compute_ratio", "replica:0"] == pytest.approx(0.2582, abs=1e-4)
    finding = values["traceview.finding_gpu_time_ratio", "input-bound"]
    assert finding == pytest.approx(0.6298, abs=1e-4)
    assert values["traceview.runs_total", ""] == 1


def test_a_collector_that_is_not_there_costs_a_line(fixtures: Path) -> None:
    done = watched(fixtures / "slow-input-2", "http://127.0.0.1:9")
    assert done.out.count("\n") == 1
    said = "traceview: the metrics of {} were not sent: the collector did not answer\n"
    assert done.err == said.format(RUN)
