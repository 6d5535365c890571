"""A run beside its baseline: the speed-up, the parts of the difference, and when devices in use scale poorly."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import astuple, replace

import traceview
from scripts.cuda_trace import NCCL_NAME, CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import marked_steps, ms, new_trace
from tests.analysis.sections import (
    facts_of,
    lines_of,
    markdown_of,
    sentences_of,
    tables_of,
    view_of,
)
from tests.charts import MS
from tests.reports import scaling_result
from tests.sidecars import write_sidecar
from traceview.analysis.scaling.findings import POOR_SCALING
from traceview.analysis.scaling.section import PARTS_REMARK, scaling_section
from traceview.report.model import Report

ALL_REDUCE = "CollectiveReduceV2:CollectiveReduceV2"


def with_batch(folder: Path, trace: CudaTrace, batch: int | None) -> Path:
    path = trace.write(folder)
    if batch is not None:
        write_sidecar(path, {"state": "saved", "batch": {"global": batch, "found_by": "dataset"}})
    return folder


def computing(*lengths: float) -> CudaTrace:
    """Four steps of 50 ms in which each GPU computes so long."""
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal, length in enumerate(lengths):
            step.kernel(ordinal, 2, 2 + length)
    return trace


def codes(report: Report) -> set[str]:
    return {finding.code for finding in report.findings}


# Beside a baseline


def test_speed_beside_one_device(tmp_path: Path) -> None:
    """One GPU: 20 of 40 ms. Two: 25 and 27 of 50 ms, of which the later one sends 5 ms uncovered."""
    one = new_trace()
    for step in marked_steps(one, period_ms=40, marker_ms=40):
        step.kernel(0, 2, 22)
    two = new_trace()
    for step in marked_steps(two, marker_ms=50):
        for ordinal in range(2):
            end = 27 + 2 * ordinal
            step.kernel(ordinal, 2, end)
            step.kernel(ordinal, end, 34, name=NCCL_NAME, op=ALL_REDUCE, stream=22)
    report = traceview.analyze(
        with_batch(tmp_path / "two", two, 128), baseline=with_batch(tmp_path / "one", one, 64)
    )
    result, balance = report.results.scaling, report.results.balance
    assert result is not None
    assert balance is not None
    assert (result.this.device_count, result.baseline.device_count) == (2, 1)
    assert result.speedup == pytest.approx(2 * 40 / 50)
    assert result.scaling_efficiency_ratio == pytest.approx(0.8)
    assert result.difference_ps == ms(10) == sum(astuple(result.parts))
    assert result.this.step_ps == sum(astuple(result.this.parts))
    assert result.baseline.step_ps == sum(astuple(result.baseline.parts))
    assert (result.parts.compute_ps, result.parts.imbalance_ps) == (ms(6), ms(1))
    assert result.parts.communication_ps == ms(5)
    throughput = balance.throughput
    assert (throughput.examples_per_second, throughput.per_gpu_per_second) == (2560, 1280)


def test_speed_without_batch_sizes_is_by_step_time(tmp_path: Path) -> None:
    computing(20, 20).write(tmp_path / "two")
    baseline = with_batch(tmp_path / "one", computing(20), 64)
    result = traceview.analyze(tmp_path / "two", baseline=baseline).results.scaling
    assert result is not None
    assert result.speedup is None
    assert result.speedup_by_step == result.scaling_efficiency_ratio * 2 == 2
    assert result.reason is not None
    assert result.reason.startswith("the batch size of this run is not known")


def test_a_baseline_without_compute_cannot_be_compared(tmp_path: Path) -> None:
    computing(20, 20).write(tmp_path / "two")
    SCENARIOS["gpu_planes_empty"]().write(tmp_path / "none")
    report = traceview.analyze(tmp_path / "two", baseline=tmp_path / "none")
    assert report.results.scaling is None
    assert report.skipped["scaling"] == (
        "the baseline cannot be compared: no device computed in run run1"
    )


# Poor scaling


@pytest.mark.parametrize(("above_ms", "is_poor"), [(-0.1, True), (0.1, False)])
def test_poor_scaling_starts_at_its_limit(above_ms: float, is_poor: bool, tmp_path: Path) -> None:
    length = 50 * POOR_SCALING.limits["efficiency_ratio"] + above_ms
    computing(length, length).write(tmp_path)
    report = traceview.analyze(tmp_path)
    titles = [finding.title for finding in report.findings if finding.code == POOR_SCALING.code]
    assert titles == (["2 GPUs compute 49.8% of the time on average"] if is_poor else [])


def test_the_advice_asks_for_a_baseline_only_if_there_is_none(tmp_path: Path) -> None:
    computing(10, 10).write(tmp_path / "two")
    computing(10).write(tmp_path / "one")
    alone, beside = (
        next(finding.advice for finding in report.findings if finding.code == POOR_SCALING.code)
        for report in (
            traceview.analyze(tmp_path / "two"),
            traceview.analyze(tmp_path / "two", baseline=str(tmp_path / "one")),
        )
    )
    assert "--baseline" in alone
    assert "--baseline" not in beside
    assert "section Scaling" in beside


def test_idle_devices_that_another_finding_explains_do_not_scale_poorly(tmp_path: Path) -> None:
    SCENARIOS["G"]().write(tmp_path)
    report = traceview.analyze(tmp_path)
    assert report.results.balance is not None
    assert report.results.balance.in_use_efficiency_ratio < POOR_SCALING.limits["efficiency_ratio"]
    assert "input-bound" in codes(report)
    assert POOR_SCALING.code not in codes(report)


def test_what_information_explains_is_named(tmp_path: Path) -> None:
    """Information does not make the low use a known one, but is no secret either."""
    report = traceview.analyze(Path("fixtures/keras-fit-4"))
    (poor,) = (finding for finding in report.findings if finding.code == POOR_SCALING.code)
    assert "Partly explained by: host-bound, collective-exposed and collective-wait." in (
        poor.explanation
    )
    computing(10, 10).write(tmp_path)
    (alone,) = (
        finding
        for finding in traceview.analyze(tmp_path).findings
        if finding.code == POOR_SCALING.code
    )
    assert "No other finding explains what they wait for." in alone.explanation


# The section


def test_the_section_shows_both_runs_part_by_part() -> None:
    section = scaling_section(view_of(), scaling_result())
    assert section.lead == (
        "1.67× the examples per second of the baseline on 2× the devices: 83.3% scaling efficiency."
    )
    assert facts_of(section) == (
        "this run: 24.0 ms per step on 2 devices",
        "baseline: 20.0 ms per step on 1 device, run one in logs-one",
    )
    (table,) = tables_of(section)
    parts, *times = [column.values for column in table.columns]
    assert dict(zip(parts, zip(*times, strict=True), strict=True)) == {
        "compute": (14 * MS, 15 * MS, MS),
        "imbalance": (0, MS, MS),
        "exposed communication": (0, 4 * MS, 4 * MS),
        "input": (2 * MS, MS, -MS),
        "kernel launches": (MS, 0, -MS),
        "other": (3 * MS, 3 * MS, 0),
    }
    assert sentences_of(section) == [PARTS_REMARK]


def test_the_section_says_why_only_step_times_are_compared() -> None:
    result = replace(scaling_result(), speedup=None, reason="the batch size is not known")
    section = scaling_section(view_of(), result)
    assert section.lead.startswith("1.67× the speed of the baseline by step time")
    assert sentences_of(section)[-1] == "The batch size is not known."


@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_section_fits_a_terminal(width: int) -> None:
    text = "\n".join(lines_of(scaling_section(view_of(), scaling_result()), width))
    assert "4.00 ms" in text


def test_the_section_prints_in_markdown() -> None:
    text = markdown_of(scaling_section(view_of(), scaling_result()))
    assert "| kernel launches | 1.00 ms | 0 | -1.00 ms |" in text
