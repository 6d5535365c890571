"""The report on a generated run has the numbers that were put into the run.

Windows, steps and times of devices are compared in test_every_run.py: the truth with the oracle, the oracle with the report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

import traceview
from scripts.scenarios import SCENARIOS
from traceview.analysis.registry import RULES
from traceview.report.model import Report

ELSEWHERE = {"windows", "steps", "device_time"}
HEALTHY = {
    "plain",
    "eight_balanced",
    "two_hosts",
    "hidden_transfers",
    "overlapped_copies",
    "overlapped_collectives",
    "mixed_collectives",
    "rccl",
}


def by_device(result: Any) -> dict[str, dict[str, Any]]:
    return {row.device: to_builtins(row) for row in result.devices}


def idle(report: Report) -> dict[str, Any]:
    rows = by_device(report.results.idle)
    return {key: row | {"states": defaultdict(int, row["states"])} for key, row in rows.items()}


def transfers(report: Report) -> dict[str, Any]:
    rows = by_device(report.results.transfers)
    return {device: row | row["directions"] for device, row in rows.items()}


def pipelines(report: Report) -> dict[str, Any]:
    result = report.results.input
    assert result is not None
    (host,) = result.hosts
    stages = {stage.name.removeprefix("Iterator::"): stage for stage in result.stages}
    return {
        "input_ratio": result.input_ratio,
        "verdict": result.verdict,
        "wait_ps": host.wait_ps,
        "self_ps": {name: stage.self_ps for name, stage in stages.items()},
        "waiting_ps": {name: s.waiting_ps for name, s in stages.items() if s.waiting_ps},
        "bottleneck": host.slowest_stage and host.slowest_stage.removeprefix("Iterator::"),
        "lacks_prefetch": result.lacks_prefetch,
    }


def collectives(report: Report) -> dict[str, Any]:
    assert report.results.collectives is not None
    values: dict[str, Any] = to_builtins(report.results.collectives)
    return values


def precision(report: Report) -> dict[str, Any]:
    result = report.results.precision
    assert result is not None
    rows = {
        row.device: {name: ps for name, ps in row.precision_ps.items() if ps}
        for row in result.devices
    }
    return {**rows, "tensor_core_ratio": result.tensor_core_ratio}


def capture(report: Report) -> dict[str, Any]:
    dropped = sum(host.dropped_event_count for host in report.capture.hosts)
    return {"quality": report.capture.quality, "dropped_count": dropped}


def clocks(report: Report) -> dict[str, Any]:
    return {
        host.host: {
            **to_builtins(host.clock),
            "missing_steps": host.missing_steps,
            "role": host.role,
        }
        for host in report.capture.hosts
    }


def balance(report: Report) -> dict[str, Any]:
    result = report.results.balance
    assert result is not None
    return {**to_builtins(result), "devices": by_device(result)}


VALUES: dict[str, Callable[[Report], dict[str, Any]]] = {
    "idle": idle,
    "transfers": transfers,
    "input": pipelines,
    "collectives": collectives,
    "precision": precision,
    "capture": capture,
    "clocks": clocks,
    "balance": balance,
    "outside_view": lambda report: by_device(report.results.outside_view),
}
WHOLE = {"input", "collectives", "precision"}
"""A truth names everything that a number of these is divided into; of the rest it may leave some out."""


def differences(values: Any, truth: dict[str, Any], is_whole: bool) -> Iterator[tuple[Any, ...]]:
    for key, expected in truth.items():
        value = values[key]
        if isinstance(value, float):
            value = round(value, 3)
        if isinstance(expected, dict) and not is_whole:
            yield from ((key, *rest) for rest in differences(value, expected, is_whole))
        elif value != expected:
            yield key, value, expected


def check_findings(report: Report, truth: dict[str, Any]) -> None:
    """Every announced finding is there, and nothing that was not announced is above info."""
    announced = set(truth["must"])
    assert announced | set(truth["must_not"]) <= set(RULES)
    codes = {finding.code for finding in report.findings}
    assert announced <= codes
    assert not codes & set(truth["must_not"])
    alarms = {finding.code for finding in report.findings if finding.severity != "info"}
    # Between launches, the threads of these traces record nothing but what a case is about.
    # A generated host records nothing between its calls, which is Python before an eager call.
    assert alarms - {"between-calls"} <= announced


@pytest.mark.parametrize("name", SCENARIOS)
def test_truth(name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]()
    scenario.write(tmp_path)
    report = traceview.analyze(tmp_path)
    truth = {"findings": {"must": [], "must_not": []}, **scenario.truth}
    check_findings(report, truth["findings"])
    for topic in truth.keys() - ELSEWHERE - {"findings", "gradients"}:
        values = VALUES[topic](report)
        assert list(differences(values, truth[topic], topic in WHOLE)) == [], topic
    if "gradients" in truth:
        # The reasons why one device alone computes gradients.
        found = [f.sentences[3:] for f in report.findings if f.code == "single-gpu-gradients"]
        assert found in ([], [truth["gradients"]["reasons"]])
    if name in HEALTHY:
        # All generated kernels are float32 on a V100: no illness.
        codes = [(finding.code, finding.severity) for finding in report.findings]
        assert codes == [("low-precision-unused", "info")]
        assert (report.capture.quality, report.capture.problems) == ("ok", ())
