"""Does traceview say, to the picosecond, what an obvious recomputation from the raw planes says?"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import traceview
from scripts.scenarios import SCENARIOS
from tests.oracle import run_answer
from traceview.analysis.idle.result import Idle, IdleTime, idle_time
from traceview.analysis.selection import select
from traceview.report.model import Report
from traceview.trace.cause import Cause
from traceview.trace.load import load
from traceview.trace.model import Trace
from traceview.trace.windows import StepRange, WindowKind

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
PER_STEP = {"exposed_ps_per_step", "exposed_ratio", "small_count_per_step"}
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
    same_transfers(report, answer["transfers"], statistics=statistics)
    same_balance(report, answer["balance"], statistics=statistics)
    same_launches(report, answer["launches"], statistics=statistics)
    same_collectives(report, answer["collectives"], statistics=statistics)
    assert ops(report) == {
        tuple(
            row[key] or None if key in ("op", "op_type", "kernel") else row[key]
            for key in OP_FIELDS
        )
        for row in answer["ops"]
    }


def same_collectives(report: Report, expected: dict[str, Any], *, statistics: bool) -> None:
    found = report.results.collectives
    if found is None:
        assert expected["count"] == 0
        return
    ours = dataclasses.asdict(found)
    hosts = {host["host"]: host for host in ours["hosts"]}
    assert set(hosts) == set(expected["hosts"])
    parts = [(ours, {key: value for key, value in expected.items() if key != "hosts"})]
    parts += [(hosts[name], row) for name, row in expected["hosts"].items()]
    for mine, row in parts:
        for key, value in row.items():
            if statistics or "per_step" not in key:
                assert mine[key] == (
                    pytest.approx(value, abs=1e-12) if isinstance(value, float) else value
                ), key


def same_idle(
    trace: Trace, found: IdleTime, result: Idle | None, expected: list[dict[str, Any]]
) -> None:
    """Every gap of every device, and what the report makes of them."""
    rows = {row.device: row for row in result.devices} if result else {}
    assert list(rows) == [row["device"] for row in expected]
    ours = {trace.device_key(device): gaps for device, gaps in found.gaps.items()}
    for row in expected:
        mine = rows[row["device"]]
        for key in ("idle_ps", "gap_count", "longest_gap_ps", "causes"):
            assert getattr(mine, key) == row[key], (row["device"], key)
        starts, ends = ours[row["device"]].spans
        parts = ours[row["device"]].causes_of(np.arange(starts.size))
        assert [
            (int(start), int(end - start), _by_cause(parts[:, i]))
            for i, (start, end) in enumerate(zip(starts, ends, strict=True))
        ] == [
            (gap["start_ps"], gap["duration_ps"], gap["causes"])
            for gap in sorted(row["gaps"], key=lambda gap: gap["start_ps"])
        ]
        assert [{key: getattr(gap, key) for key in row["gaps"][0]} for gap in mine.gaps] == row[
            "gaps"
        ][: len(mine.gaps)]
        assert [(step.number, step.causes) for step in mine.steps] == [
            (step["number"], step["causes"]) for step in row["steps"]
        ]


def _by_cause(picoseconds: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, int]:
    return {Cause(i).key: int(value) for i, value in enumerate(picoseconds) if value}


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


def same_transfers(report: Report, expected: list[dict[str, Any]], *, statistics: bool) -> None:
    found = report.results.transfers.devices if report.results.transfers else ()
    assert [row.device for row in found] == [row["device"] for row in expected]
    for mine, row in zip(found, expected, strict=True):
        for name, direction in dataclasses.asdict(mine.directions).items():
            for key, value in row[name].items():
                if statistics or key not in PER_STEP:
                    assert direction[key] == (
                        pytest.approx(value, abs=1e-12) if isinstance(value, float) else value
                    ), (mine.device, name, key)
            assert (
                direction["size_counts"] is None
                or sum(direction["size_counts"]) <= row[name]["count"]
            )
        if mine.source_count == len(mine.top_sources):
            for name, direction in dataclasses.asdict(mine.directions).items():
                of_sources = [one for one in mine.top_sources if one.direction == name]
                assert sum(one.exposed_ps for one in of_sources) == direction["exposed_ps"]
                assert sum(one.count for one in of_sources) == direction["count"]


def same_launches(report: Report, expected: list[dict[str, Any]], *, statistics: bool) -> None:
    launches, precision = report.results.launches, report.results.precision
    found = launches.devices if launches else ()
    assert [row.device for row in found] == [row["device"] for row in expected]
    for mine, row in zip(found, expected, strict=True):
        ours = dataclasses.asdict(mine)
        ours["xla_kernel_count"] = mine.xla.kernel_count
        for key, value in row.items():
            if key == "graphs":
                assert {name: ours[key][name] for name in value} == value, mine.device
            elif key not in ("kind", "precision") and (statistics or key != "kernels_per_step"):
                assert ours[key] == value, (mine.device, key)
    for precise, row in zip(precision.devices if precision else (), expected, strict=True):
        spent = {name: ps for name, ps in precise.precision_ps.items() if ps}
        assert spent == row["precision"]["precision_ps"], precise.device
        assert precise.tensor_core_ps == row["precision"]["tensor_core_ps"]
        assert sum(precise.precision_ps.values()) == precise.compute_ps


def same_balance(report: Report, expected: dict[str, Any] | None, *, statistics: bool) -> None:
    """Ratios to twelve digits, the rest exactly; what is from used steps only where those are alike."""
    found = report.results.balance
    assert (found is None) == (expected is None)
    if found is None or expected is None:
        return
    for key, value in expected.items():
        mine = getattr(found, key)
        if key == "devices":
            assert [row.device for row in mine] == [row["device"] for row in value]
            if statistics:
                medians = [row.compute_ps_per_step for row in mine]
                assert medians == [row["compute_ps_per_step"] for row in value]
        elif key in ("skew_ratio", "step_count") and not statistics:
            continue
        elif isinstance(value, Fraction):
            assert mine == pytest.approx(float(value), abs=1e-12), key
        else:
            assert mine == value, key


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
    trace = load(logdir)
    report = traceview.analyze(trace, window=window, top=None)
    answer = run_answer(files, window=window)
    same_report(report, answer, statistics=statistics)
    found = idle_time(trace, select(trace, window))
    same_idle(trace, found, report.results.idle, answer["idle"])


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
    trace = load(tmp_path)
    report = traceview.analyze(trace, steps=slice(1, 3), top=None)
    answer = run_answer(list(files), steps=(1, 3))
    same_report(report, answer)
    found = idle_time(trace, select(trace, steps=StepRange(1, 3)))
    same_idle(trace, found, report.results.idle, answer["idle"])
