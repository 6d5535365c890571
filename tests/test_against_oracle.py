"""Does traceview say, to the picosecond, what an obvious recomputation from the raw planes says?"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.scenarios import SCENARIOS
from tests.oracle import run_answer
from traceview.report.model import Report
from traceview.trace.windows import WindowKind

FIXTURES = sorted(path.parent.name for path in Path("fixtures").glob("*/plugins"))
SHARED = [
    "bert-8xV100",
    "jax-8xMI300X",
    "jax-gemm-1of8",
    "broken/concatenated-twice",
    "broken/host-plane-missing",
]
WINDOWS: list[WindowKind] = ["auto", "devices", "trace"]
# Steps left out because events were dropped are a rule of ours that the raw planes do not hold.
OWN_STATISTICS = ["dropped_events"]
STEP_FIELDS = ("host", "number", "recorded_number", "start_ps", "duration_ps", "kind")
OP_FIELDS = (
    "device",
    "class",
    "op",
    "op_type",
    "kernel",
    "count",
    "total_ps",
    "self_ps",
    "mean_ps",
    "median_ps",
    "p95_ps",
    "bytes",
)


def same_report(report: Report, answer: dict[str, Any], *, statistics: bool = True) -> None:
    assert windows(report) == answer["windows"]
    same_devices(report, answer["device_time"]["devices"])
    same_steps(report, answer["steps"], statistics=statistics)
    assert ops(report) == {
        tuple(
            row[key] or None if key in ("op", "op_type", "kernel") else row[key]
            for key in OP_FIELDS
        )
        for row in answer["ops"]
    }


def windows(report: Report) -> list[dict[str, Any]]:
    return [dataclasses.asdict(window) for window in report.windows]


def same_devices(report: Report, expected: list[dict[str, Any]]) -> None:
    assert report.results.device_time is not None
    ours = {(row.host, row.device): row for row in report.results.device_time.devices}
    assert set(ours) == {(row["host"], row["device"]) for row in expected}
    for row in expected:
        mine = dataclasses.asdict(ours[row["host"], row["device"]])
        for key, value in row.items():
            if isinstance(value, float):
                assert mine[key] == pytest.approx(value, abs=1e-12), key
            else:
                assert mine[key] == value, (row["device"], key)


def same_steps(report: Report, expected: dict[str, Any], *, statistics: bool) -> None:
    if report.results.steps is None:
        assert expected["method"] == "none"
        return
    ours = report.results.steps
    keys = ["method", "basis", "count", *(["used_count", "median_ps"] if statistics else [])]
    assert {key: getattr(ours, key) for key in keys} == {key: expected[key] for key in keys}
    assert [tuple(getattr(step, key) for key in STEP_FIELDS) for step in ours.steps] == [
        tuple(step[key] for key in STEP_FIELDS) for step in expected["steps"]
    ]
    for mine, step in zip(ours.steps, expected["steps"], strict=True):
        parts = {device.device: dataclasses.asdict(device) for device in mine.devices}
        assert set(parts) == {device["device"] for device in step["devices"]}
        for device in step["devices"]:
            known = {key: device[key] for key in parts[device["device"]]}
            assert parts[device["device"]] == known


def ops(report: Report) -> set[tuple[Any, ...]]:
    if report.results.ops is None:
        return set()
    return {
        tuple(
            getattr(row, "class_" if key == "class" else key) or None
            if key in ("op", "op_type", "kernel")
            else getattr(row, "class_" if key == "class" else key)
            for key in OP_FIELDS
        )
        for row in report.results.ops.rows
    }


def check(logdir: Path, window: WindowKind, *, statistics: bool = True) -> None:
    files = sorted(logdir.rglob("*.xplane.pb"))
    report = traceview.analyze(logdir, window=window, top=None)
    same_report(report, run_answer(files, window=window), statistics=statistics)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", FIXTURES)
def test_recorded_cpu_runs(name: str, window: WindowKind) -> None:
    check(Path("fixtures", name), window)


@pytest.mark.shared
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", SHARED)
def test_recorded_gpu_runs(shared_traces: Path, name: str, window: WindowKind) -> None:
    check(shared_traces / name, window)


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    check(tmp_path, "auto", statistics=name not in OWN_STATISTICS)


@pytest.mark.parametrize(
    "name", ["A", "hidden_transfers", "two_hosts", "keras_epochs", "host_runs_ahead"]
)
def test_a_range_of_steps(name: str, tmp_path: Path) -> None:
    files = SCENARIOS[name]().write(tmp_path)
    report = traceview.analyze(tmp_path, steps=slice(1, 3), top=None)
    same_report(report, run_answer(list(files), steps=(1, 3)))
