"""Runs on 1, 2 and 4 devices: speed-up, efficiency, and which part of the step grows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.charts import MS
from tests.reports import bare_report, device, of_run, with_steps
from traceview.base.errors import ComparisonError
from traceview.comparison.scaling import growing, scaled_runs, scaling_section
from traceview.document.terminal import render_section
from traceview.report.model import Report


def run(count: int, batch: int | None, model: str = "V100", **states_ms: float) -> Report:
    """A run on so many devices, whose steps have these states."""
    report = with_steps(states_ms, states_ms)
    times, balance = report.results.device_time, report.results.balance
    assert times is not None
    assert balance is not None
    devices = tuple(device(ordinal, model=model) for ordinal in range(count))
    throughput = replace(balance.throughput, batch_size=batch)
    results = replace(
        report.results,
        device_time=replace(times, devices=devices),
        balance=replace(balance, throughput=throughput),
    )
    # Each of another trace, or it would count as one run.
    return of_run(replace(report, results=results), repr((count, batch, model, states_ms)))


WEAK = (
    run(4, 400, compute=40, communication=10),
    run(1, 100, compute=40),
    run(2, 200, compute=40, communication=4),
)


def test_each_device_with_the_same_batch() -> None:
    result = scaled_runs(WEAK)
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
    assert growing(result) == ["communication"]


def test_without_batch_sizes_it_says_so() -> None:
    result = scaled_runs((run(1, 100, compute=40), run(2, None, compute=50)))
    assert (result.basis, result.rows[1].speedup) == ("steps", 1.6)
    assert result.rows[1].examples_per_second is None


def test_what_makes_the_steps_other_work_is_said() -> None:
    result = scaled_runs((*WEAK[:2], run(8, 800, model="A100", compute=60)))
    assert result.differing == ("model of GPU: V100 and A100",)
    shown = render_section(scaling_section(result), width=100, color=False)
    assert "The runs differ in more: model of GPU: V100 and A100." in shown


def test_runs_without_step_times_are_named() -> None:
    result = scaled_runs((*WEAK, bare_report()))
    assert (len(result.rows), result.left_out) == (3, ("run1",))
    shown = render_section(scaling_section(result), width=100, color=False)
    assert "4 devices are 3.2 times as fast as 1." in shown
    assert "Without step times: run1." in shown


@pytest.mark.parametrize("reports", [(), WEAK[:1], (WEAK[0], WEAK[0]), (bare_report(), WEAK[0])])
def test_one_number_of_devices_has_nothing_to_say(reports: tuple[Report, ...]) -> None:
    with pytest.raises(ComparisonError, match="two or more numbers of devices"):
        scaled_runs(reports)
