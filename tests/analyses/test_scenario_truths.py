"""Does a report of a generated run say what was put into it?"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.scenarios import SCENARIOS
from traceview.analyses.catalogue import FINDINGS
from traceview.report.model import Report

COVERED = {"windows", "steps", "device_time", "capture", "findings"}
LATER = {"idle", "transfers", "collectives", "balance", "input", "precision"}
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
    ours: dict[str, Any] = dataclasses.asdict(report.results.steps)
    for key in STEP_LISTS:
        ours[key] = [getattr(step, key) for step in report.results.steps.steps]
    assert {key: ours[key] for key in truth} == truth


def check_device_time(report: Report, truth: dict[str, Any]) -> None:
    assert report.results.device_time is not None
    ours = {row.device: dataclasses.asdict(row) for row in report.results.device_time.devices}
    assert set(ours) == set(truth)
    for device, expected in truth.items():
        assert {key: ours[device][key] for key in expected} == expected, device


def check_capture(report: Report, truth: dict[str, Any]) -> None:
    ours = {
        "quality": report.capture.quality,
        "dropped_count": sum(host.dropped_event_count for host in report.capture.hosts),
    }
    assert ours == truth


def check_findings(report: Report, truth: dict[str, Any]) -> None:
    """Every announced finding is there, and nothing that was not announced is above info."""
    announced = set(truth["must"]) & set(FINDINGS)
    codes = {finding.code for finding in report.findings}
    assert announced <= codes
    assert not codes & set(truth["must_not"])
    alarms = {finding.code for finding in report.findings if finding.severity != "info"}
    assert alarms <= announced


@pytest.mark.parametrize("name", SCENARIOS)
def test_truth(name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]()
    scenario.write(tmp_path)
    report = traceview.analyze(tmp_path)
    truth = {"findings": {"must": [], "must_not": []}, **scenario.truth}
    assert set(truth) <= COVERED | LATER
    check_windows(report, truth["windows"])
    check_device_time(report, truth["device_time"])
    check_findings(report, truth["findings"])
    if "steps" in truth:
        check_steps(report, truth["steps"])
    if "capture" in truth:
        check_capture(report, truth["capture"])


@pytest.mark.parametrize("name", ["plain", "eight_balanced", "two_hosts", "hidden_transfers"])
def test_a_healthy_run_is_told_nothing(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = traceview.analyze(tmp_path)
    assert report.findings == ()
    assert report.capture.quality == "ok"
    assert report.capture.problems == ()
