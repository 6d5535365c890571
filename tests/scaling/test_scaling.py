"""Runs on 1, 2 and 4 devices: speed-up, efficiency, and which part of the step grows."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest
from msgspec.structs import replace

from tests.charts import MS
from tests.gate.test_gate import with_steps
from tests.reports import balance_result, bare_report, device, environment, step_of_states
from traceview.analysis.measures.environment import Environment
from traceview.analysis.rules.finding import Skipped
from traceview.comparison.scaling import ScaledRuns, growing, scaled_runs
from traceview.report.build import analyze
from traceview.report.model import Report


def run(
    count: int, step_ms: float, batch: int | None, model: str = "V100", **states_ms: float
) -> Report:
    """A run on so many devices, whose mean step has these states."""
    report = with_steps(step_ms, step_ms)
    times, balance = report.results.device_time, balance_result()
    assert times is not None
    devices = tuple(device(ordinal, model=model) for ordinal in range(count))
    steps = report.results.steps
    assert steps is not None
    states = {key: int(length * MS) for key, length in states_ms.items()}
    rows = tuple(step_of_states(number, states) for number in (0, 1))
    throughput = replace(balance.throughput, batch_size=batch)
    results = replace(
        report.results,
        device_time=replace(times, devices=devices),
        balance=replace(balance, throughput=throughput),
        steps=replace(steps, steps=rows),
    )
    # Each of another trace, or it would count as one run.
    digest = sha256(repr((count, step_ms, batch, model, states_ms)).encode()).hexdigest()
    files = tuple(replace(file, sha256=digest) for file in report.source.files)
    source = replace(report.source, run=f"{count}-gpus", files=files)
    return replace(report, results=results, source=source)


def scaled(*reports: Report) -> ScaledRuns:
    result = scaled_runs(reports)
    assert isinstance(result, ScaledRuns), result
    return result


WEAK = (
    run(4, 50, 400, compute=40, communication=10),
    run(1, 40, 100, compute=40),
    run(2, 44, 200, compute=40, communication=4),
)


def test_each_device_with_the_same_batch() -> None:
    result = scaled(*WEAK)
    assert [row.device_count for row in result.rows] == [1, 2, 4]
    assert [row.step_ps for row in result.rows] == [40 * MS, 44 * MS, 50 * MS]
    assert [row.examples_per_second for row in result.rows] == [
        2500,
        pytest.approx(4545.45, abs=0.01),
        8000,
    ]
    assert [row.speedup for row in result.rows] == [1, pytest.approx(1.818, abs=1e-3), 3.2]
    assert [row.efficiency_ratio for row in result.rows] == [1, pytest.approx(0.909, abs=1e-3), 0.8]
    assert result.basis == "examples"
    # Of single runs: 4% are assumed.
    assert result.remarks == ("95% interval of the efficiency on 4 devices: 68.4% to 93.6%.",)
    assert growing(result) == ["communication"]


def test_runs_that_differ_make_the_efficiency_uncertain() -> None:
    result = scaled(
        *(run(1, length, 100, compute=length) for length in (40, 41, 42)),
        *(run(4, length, 400, compute=length) for length in (50, 51, 52)),
    )
    (remark,) = result.remarks
    found = re.fullmatch(
        r"95% interval of the efficiency on 4 devices: ([\d.]+)% to ([\d.]+)%\.", remark
    )
    assert found
    low, high = map(float, found.groups())
    assert 70 < low < 100 * result.rows[1].efficiency_ratio < high < 90


def test_without_batch_sizes_it_says_so() -> None:
    result = scaled(run(1, 40, 100, compute=40), run(2, 50, None, compute=50))
    assert (result.basis, result.rows[1].speedup) == ("steps", 1.6)
    assert result.rows[1].examples_per_second is None
    assert "The batch size is not known of every run" in result.remarks[0]


def precise(report: Report, policy: str) -> Report:
    """The run with a precision policy in its sidecar."""
    host = environment(precision={"policy": {"keras": policy}})
    return replace(report, results=replace(report.results, environment=Environment((host,), ())))


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (run(4, 30, 800, compute=30), "batch: 400 and 800"),
        (run(4, 30, 400, model="A100", compute=30), "model of GPU: V100 and A100"),
        (
            precise(run(4, 30, 400, compute=30), "mixed_float16"),
            "precision: float32 and mixed_float16",
        ),
    ],
)
def test_unlike_runs_on_one_number_of_devices_are_named(other: Report, reason: str) -> None:
    """Their mean is the step of neither, and the row says what it mixes."""
    reports = (precise(WEAK[0], "float32"), *WEAK[1:], other)
    result = scaled(*reports)
    assert result.rows[-1].step_ps == 40 * MS
    assert any(reason in text and "the row is their mean" in text for text in result.remarks)


def test_what_limits_the_comparison_is_said() -> None:
    result = scaled(*WEAK, run(8, 60, 800, model="A100", compute=60), bare_report())
    assert result.remarks[:-1] == (
        "run1 is left out: no device computed.",
        "Between the numbers of devices more differs: model of GPU: V100 and A100.",
    )


@pytest.mark.parametrize("reports", [(), WEAK[:1], (WEAK[0], WEAK[0]), (bare_report(), WEAK[0])])
def test_one_number_of_devices_has_nothing_to_say(reports: tuple[Report, ...]) -> None:
    result = scaled_runs(reports)
    assert isinstance(result, Skipped)
    assert "two or more numbers of devices are needed" in result.reason


def test_recorded_runs_on_1_2_and_4_replicas(fixtures: object) -> None:
    folder = str(fixtures)
    names = ("plain-1", "custom-loop-2", "custom-loop-4")
    result = scaled(*(analyze(f"{folder}/{name}") for name in names))
    assert [row.device_count for row in result.rows] == [1, 2, 4]
    assert growing(result)[0] == "device_wait"
