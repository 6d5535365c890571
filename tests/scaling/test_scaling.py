"""Runs on 1, 2 and 4 devices: speed-up and efficiency."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.charts import MS
from tests.comparison.test_build import op, ops
from tests.reports import bare_report, device, known, of_run, with_results, with_steps
from traceview.base.errors import ComparisonError
from traceview.comparison.scaling import scaled_runs, scaling_section
from traceview.document.terminal import render_section
from traceview.report.model import Report


def run(count: int, batch: int | None, model: str = "V100", **states_ms: float) -> Report:
    """A run on so many devices, whose steps have these states."""
    report = with_steps(states_ms, states_ms)
    times, balance = known(report.results.device_time), known(report.results.balance)
    devices = tuple(device(ordinal, model=model) for ordinal in range(count))
    throughput = replace(balance.throughput, batch_size=batch)
    changed = with_results(
        report,
        device_time=replace(times, devices=devices),
        balance=replace(balance, throughput=throughput),
    )
    # Each of another trace, or it would count as one run.
    return of_run(changed, repr((count, batch, model, states_ms)))


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
    assert result.has_examples


RUNS = {
    "without batch sizes": (run(1, 100, compute=40), run(2, None, compute=50)),
    "without step times": (*WEAK, bare_report()),
}


def test_what_is_said_of_runs(golden: Callable[[str, str], None]) -> None:
    sections = (scaling_section(scaled_runs(runs)) for runs in RUNS.values())
    texts = (render_section(section, width=100, color=False) for section in sections)
    golden(
        "scaling.txt",
        "\n".join(f"# {name}\n\n{text}" for name, text in zip(RUNS, texts, strict=True)),
    )


@pytest.mark.parametrize("reports", [(), WEAK[:1], (WEAK[0], WEAK[0]), (bare_report(), WEAK[0])])
def test_one_number_of_devices_has_nothing_to_say(reports: tuple[Report, ...]) -> None:
    with pytest.raises(ComparisonError, match="two or more numbers of devices"):
        scaled_runs(reports)


def test_runs_of_different_programs_or_devices_do_not_scale() -> None:
    with pytest.raises(ComparisonError, match="model of GPU V100 → A100"):
        scaled_runs((*WEAK[:2], run(8, 800, model="A100", compute=60)))
    runs = [
        with_results(made, op_steps=of.results.op_steps, environment=None)
        for made, of in (
            (WEAK[1], ops(*(op(f"conv_{name}", ps=MS) for name in "abcdef"))),
            (WEAK[0], ops(*(op(f"dense_{name}", ps=MS) for name in "abcdef"))),
        )
    ]
    with pytest.raises(ComparisonError, match="0 of 12 kinds of ops in common"):
        scaled_runs(runs)
    assert scaled_runs(runs, force=True).rows[1].device_count == 4
    alike = [with_results(run, op_steps=runs[0].results.op_steps) for run in runs]
    assert len(scaled_runs(alike).rows) == 2
