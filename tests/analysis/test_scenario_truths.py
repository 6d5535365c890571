"""Does a report of a generated run say what was put into it?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

import traceview
from scripts.scenarios import SCENARIOS
from traceview.analysis.registry import RULES
from traceview.report.model import Report

COVERED = {
    "windows",
    "steps",
    "device_time",
    "capture",
    "balance",
    "findings",
    "idle",
    "input",
    "transfers",
    "launches",
    "precision",
    "collectives",
    "clocks",
    "placement",
    "outside_view",
}
STEP_LISTS = ("number", "recorded_number", "start_ps", "duration_ps")


def check_windows(report: Report, truth: dict[str, Any]) -> None:
    ours = {
        window.host: {
            "kind": window.kind,
            "start_ps": window.start_ps,
            "window_ps": window.end_ps - window.start_ps,
        }
        for window in report.windows
    }
    assert ours == truth


def check_steps(report: Report, truth: dict[str, Any]) -> None:
    if truth["method"] == "none":
        assert report.results.steps is None
        assert "steps" in report.skipped
        return
    assert report.results.steps is not None
    ours: dict[str, Any] = to_builtins(report.results.steps)
    for key in STEP_LISTS:
        ours[key] = [getattr(step, key) for step in report.results.steps.steps]
    assert {key: ours[key] for key in truth} == truth


def check_device_time(report: Report, truth: dict[str, Any]) -> None:
    assert report.results.device_time is not None
    ours = {row.device: to_builtins(row) for row in report.results.device_time.devices}
    assert set(ours) == set(truth)
    for device, expected in truth.items():
        assert {key: ours[device][key] for key in expected} == expected, device


def check_idle(report: Report, truth: dict[str, Any]) -> None:
    assert report.results.idle is not None
    ours = {row.device: to_builtins(row) for row in report.results.idle.devices}
    for device, expected in truth.items():
        found = ours[device]
        assert {key: found[key] for key in expected if key != "causes"} == {
            key: value for key, value in expected.items() if key != "causes"
        }, device
        causes = {cause: found["causes"].get(cause, 0) for cause in expected["causes"]}
        assert causes == expected["causes"], device


def check_transfers(report: Report, truth: dict[str, Any]) -> None:
    assert report.results.transfers is not None
    ours = {row.device: to_builtins(row) for row in report.results.transfers.devices}
    for device, expected in truth.items():
        found = ours[device] | ours[device]["directions"]
        for key, value in expected.items():
            if isinstance(value, dict):
                mine = {
                    name: round(found[key][name], 3)
                    if name.endswith("_ratio")
                    else found[key][name]
                    for name in value
                }
                assert mine == value, (device, key)
            else:
                assert found[key] == value, (device, key)


def check_input(report: Report, truth: dict[str, Any]) -> None:
    found = report.results.input
    assert found is not None
    (host,) = found.hosts
    stages = {stage.name.removeprefix("Iterator::"): stage for stage in found.stages}
    neck = found.bottleneck
    ours: dict[str, Any] = {
        "input_ratio": round(found.input_ratio or 0.0, 3),
        "verdict": found.verdict,
        "wait_ps": host.wait_ps,
        "self_ps": {name: stage.self_ps for name, stage in stages.items()},
        "waiting_ps": {name: s.waiting_ps for name, s in stages.items() if s.waiting_ps},
        "empty_ratio": found.empty_ratio,
        "bottleneck": neck.name.removeprefix("Iterator::") if neck else None,
        "share_ratio": round(neck.share_ratio, 3) if neck else None,
        "missing": list(found.missing),
        "replicas": {
            row.shard: {
                key: getattr(row, key)
                for key in ("wait_per_step_ps", "late_per_step_ps", "late_step_count")
            }
            for row in found.replicas
        },
    }
    assert {key: ours[key] for key in truth} == truth


def check_collectives(report: Report, truth: dict[str, Any]) -> None:
    assert report.results.collectives is not None
    ours = to_builtins(report.results.collectives)
    hosts = {host["host"]: host for host in ours["hosts"]}
    for name, expected in truth.get("hosts", {}).items():
        assert {key: hosts[name][key] for key in expected} == expected, name
    expected = {key: value for key, value in truth.items() if key != "hosts"}
    if ours["overlap_ratio"] is not None:
        ours["overlap_ratio"] = round(ours["overlap_ratio"], 3)
    assert {key: ours[key] for key in expected} == expected


def check_launches(report: Report, truth: dict[str, Any]) -> None:
    assert report.results.launches is not None
    ours = {row.device: to_builtins(row) for row in report.results.launches.devices}
    for device, expected in truth.items():
        found = ours[device] | {f"graphs_{k}": v for k, v in ours[device]["graphs"].items()}
        assert {key: found[key] for key in expected} == expected, device


def check_precision(report: Report, truth: dict[str, Any]) -> None:
    found = report.results.precision
    assert found is not None
    ours: dict[str, Any] = {
        row.device: {name: ps for name, ps in row.precision_ps.items() if ps}
        for row in found.devices
    }
    assert ours | {"tensor_core_ratio": found.tensor_core_ratio} == truth


def check_capture(report: Report, truth: dict[str, Any]) -> None:
    ours = {
        "quality": report.capture.quality,
        "dropped_count": sum(host.dropped_event_count for host in report.capture.hosts),
    }
    assert ours == truth


def check_clocks(report: Report, truth: dict[str, Any]) -> None:
    ours = {host.host: host for host in report.capture.hosts}
    assert set(truth) == set(ours)
    for name, expected in truth.items():
        clock = ours[name].clock
        assert clock is not None
        found = {**to_builtins(clock), "missing_steps": ours[name].missing_steps}
        found["role"] = ours[name].role
        assert {key: found[key] for key in expected} == expected, name


def check_balance(report: Report, truth: dict[str, Any]) -> None:
    found = report.results.balance
    assert found is not None
    ours = to_builtins(found)
    for key, expected in truth.items():
        mine = ours[key]
        if key == "straggler" and expected is not None:
            assert {name: mine[name] for name in expected} == expected
        elif key == "what_if":
            assert {one["name"]: one["step_bound_ps"] for one in mine} == expected
        elif key == "gradients":
            mine["reasons"] = tuple(reason["code"] for reason in mine["reasons"])
            assert {name: mine[name] for name in expected} == expected
        elif key == "devices":
            rows = {row["device"]: row for row in mine}
            for device, values in expected.items():
                assert {name: rows[device][name] for name in values} == values, device
        elif key == "uneven_steps":
            assert [(one["device"], one["number"]) for one in mine] == expected
        else:
            assert (round(mine, 3) if isinstance(mine, float) else mine) == expected, key


def check_placement(report: Report, truth: dict[str, Any]) -> None:
    assert report.results.placement is not None
    ours = {host.host: host.statements for host in report.results.placement.hosts}
    assert ours == truth


def check_outside_view(report: Report, truth: dict[str, Any]) -> None:
    assert report.results.outside_view is not None
    ours = {row.device: to_builtins(row) for row in report.results.outside_view.devices}
    for device, expected in truth.items():
        assert {key: ours[device][key] for key in expected} == expected, device


def check_findings(report: Report, truth: dict[str, Any]) -> None:
    """Every announced finding is there, and nothing that was not announced is above info."""
    announced = set(truth["must"]) & set(RULES)
    codes = {finding.code for finding in report.findings}
    assert announced <= codes
    assert not codes & set(truth["must_not"])
    alarms = {finding.code for finding in report.findings if finding.severity != "info"}
    # Between launches, the threads of these traces record nothing but what a case is about.
    assert alarms - {"unexplained-idle"} <= announced


@pytest.mark.parametrize("name", SCENARIOS)
def test_truth(name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]()
    scenario.write(tmp_path)
    report = traceview.analyze(tmp_path)
    truth = {"findings": {"must": [], "must_not": []}, **scenario.truth}
    assert set(truth) <= COVERED
    check_windows(report, truth["windows"])
    check_device_time(report, truth["device_time"])
    check_findings(report, truth["findings"])
    if "steps" in truth:
        check_steps(report, truth["steps"])
    if "idle" in truth:
        check_idle(report, truth["idle"])
    if "transfers" in truth:
        check_transfers(report, truth["transfers"])
    if "input" in truth:
        check_input(report, truth["input"])
    if "collectives" in truth:
        check_collectives(report, truth["collectives"])
    if "launches" in truth:
        check_launches(report, truth["launches"])
    if "precision" in truth:
        check_precision(report, truth["precision"])
    if "balance" in truth:
        check_balance(report, truth["balance"])
    if "capture" in truth:
        check_capture(report, truth["capture"])
    if "placement" in truth:
        check_placement(report, truth["placement"])
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
def test_a_healthy_run_is_told_nothing(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = traceview.analyze(tmp_path)
    # All generated kernels are float32 on a V100, and the host records nothing when they have ended: no illness.
    codes = [finding.code for finding in report.findings]
    assert [code for code in codes if code != "unexplained-idle"] == ["low-precision-unused"]
    assert {finding.severity for finding in report.findings} == {"info"}
    assert report.capture.quality == "ok"
    assert report.capture.problems == ()
