"""The report on a generated run has the numbers that were put into the run.

Windows, steps and times of devices are compared in test_every_run.py: the truth with the oracle, the oracle with the report.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

import traceview
from scripts.scenarios import SCENARIOS
from tests.device_times import flat_collectives
from traceview.analysis.registry import RULES
from traceview.report.model import Report

COVERED = {
    "windows",
    "steps",
    "device_time",
    "capture",
    "balance",
    "gradients",
    "findings",
    "idle",
    "input",
    "transfers",
    "precision",
    "collectives",
    "clocks",
    "outside_view",
}


def check_idle(report: Report, truth: dict[str, Any]) -> None:
    assert report.results.idle is not None
    rows = {row.device: to_builtins(row) for row in report.results.idle.devices}
    for device, expected in truth.items():
        values = rows[device]
        assert {key: values[key] for key in expected if key != "states"} == {
            key: value for key, value in expected.items() if key != "states"
        }, device
        states = {state: values["states"].get(state, 0) for state in expected["states"]}
        assert states == expected["states"], device


def check_transfers(report: Report, truth: dict[str, Any]) -> None:
    assert report.results.transfers is not None
    rows = {row.device: to_builtins(row) for row in report.results.transfers.devices}
    for device, expected in truth.items():
        values = rows[device] | rows[device]["directions"]
        for key, value in expected.items():
            if isinstance(value, dict):
                rounded = {
                    name: round(values[key][name], 3)
                    if name.endswith("_ratio")
                    else values[key][name]
                    for name in value
                }
                assert rounded == value, (device, key)
            else:
                assert values[key] == value, (device, key)


def check_input(report: Report, truth: dict[str, Any]) -> None:
    result = report.results.input
    assert result is not None
    (host,) = result.hosts
    stages = {stage.name.removeprefix("Iterator::"): stage for stage in result.stages}
    values: dict[str, Any] = {
        "input_ratio": round(result.input_ratio or 0.0, 3),
        "verdict": result.verdict,
        "wait_ps": host.wait_ps,
        "self_ps": {name: stage.self_ps for name, stage in stages.items()},
        "waiting_ps": {name: s.waiting_ps for name, s in stages.items() if s.waiting_ps},
        "bottleneck": host.slowest_stage and host.slowest_stage.removeprefix("Iterator::"),
        "missing": list(result.missing),
    }
    assert {key: values[key] for key in truth} == truth


def check_collectives(report: Report, truth: dict[str, Any]) -> None:
    assert report.results.collectives is not None
    values = flat_collectives(report.results.collectives)
    if values["overlap_ratio"] is not None:
        values["overlap_ratio"] = round(values["overlap_ratio"], 3)
    assert {key: values[key] for key in truth} == truth


def check_precision(report: Report, truth: dict[str, Any]) -> None:
    result = report.results.precision
    assert result is not None
    values: dict[str, Any] = {
        row.device: {name: ps for name, ps in row.precision_ps.items() if ps}
        for row in result.devices
    }
    assert values | {"tensor_core_ratio": result.tensor_core_ratio} == truth


def check_capture(report: Report, truth: dict[str, Any]) -> None:
    values = {
        "quality": report.capture.quality,
        "dropped_count": sum(host.dropped_event_count for host in report.capture.hosts),
    }
    assert values == truth


def check_clocks(report: Report, truth: dict[str, Any]) -> None:
    hosts = {host.host: host for host in report.capture.hosts}
    assert set(truth) == set(hosts)
    for name, expected in truth.items():
        clock = hosts[name].clock
        assert clock is not None
        values = {**to_builtins(clock), "missing_steps": hosts[name].missing_steps}
        values["role"] = hosts[name].role
        assert {key: values[key] for key in expected} == expected, name


def check_balance(report: Report, truth: dict[str, Any]) -> None:
    result = report.results.balance
    assert result is not None
    fields = to_builtins(result)
    for key, expected in truth.items():
        value = fields[key]
        if key == "straggler" and expected is not None:
            assert {name: value[name] for name in expected} == expected
        elif key == "devices":
            rows = {row["device"]: row for row in value}
            for device, values in expected.items():
                assert {name: rows[device][name] for name in values} == values, device
        else:
            assert (round(value, 3) if isinstance(value, float) else value) == expected, key


def check_gradients(report: Report, truth: dict[str, Any]) -> None:
    """The reasons why one device alone computes gradients."""
    found = [f.sentences[3:] for f in report.findings if f.code == "single-gpu-gradients"]
    assert found in ([], [truth["reasons"]])


def check_outside_view(report: Report, truth: dict[str, Any]) -> None:
    assert report.results.outside_view is not None
    rows = {row.device: to_builtins(row) for row in report.results.outside_view.devices}
    for device, expected in truth.items():
        assert {key: rows[device][key] for key in expected} == expected, device


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
    assert set(truth) <= COVERED
    check_findings(report, truth["findings"])
    if "idle" in truth:
        check_idle(report, truth["idle"])
    if "transfers" in truth:
        check_transfers(report, truth["transfers"])
    if "input" in truth:
        check_input(report, truth["input"])
    if "collectives" in truth:
        check_collectives(report, truth["collectives"])
    if "precision" in truth:
        check_precision(report, truth["precision"])
    if "balance" in truth:
        check_balance(report, truth["balance"])
    if "gradients" in truth:
        check_gradients(report, truth["gradients"])
    if "capture" in truth:
        check_capture(report, truth["capture"])
    if "outside_view" in truth:
        check_outside_view(report, truth["outside_view"])
    if "clocks" in truth:
        check_clocks(report, truth["clocks"])


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "eight_balanced",
        "two_hosts",
        "hidden_transfers",
        "overlapped_copies",
        "overlapped_collectives",
        "mixed_collectives",
        "rccl",
    ],
)
def test_a_healthy_run_has_no_finding(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = traceview.analyze(tmp_path)
    # All generated kernels are float32 on a V100: no illness.
    assert [finding.code for finding in report.findings] == ["low-precision-unused"]
    assert {finding.severity for finding in report.findings} == {"info"}
    assert report.capture.quality == "ok"
    assert report.capture.problems == ()
