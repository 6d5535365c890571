"""A run beside its baseline: the speed-up, and the states in which the difference is spent."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import traceview
from scripts.cuda_trace import NCCL_NAME, CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import marked_steps, ms, new_trace
from tests.analysis.sections import facts_of, lines_of, markdown_of, sentences_of, view_of
from tests.reports import scaling_result
from tests.sidecars import write_sidecar
from traceview.analysis.exchange.scaling import scaling_section

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


def test_speed_beside_one_device(tmp_path: Path) -> None:
    """One GPU: 20 of 40 ms. Two: 25 and 27 of 50 ms, of which the one waits 2 ms and both send 5 ms uncovered."""
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
    assert result.this.step_ps - result.baseline.step_ps == ms(10) == sum(result.states.values())
    assert result.this.step_ps == sum(result.this.states.values())
    assert result.baseline.step_ps == sum(result.baseline.states.values())
    expected = {"compute": ms(6), "communication": ms(5), "device_wait": ms(1)}
    assert {key: result.states[key] for key in expected} == expected
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
    assert report.skipped["scaling"].startswith("the baseline cannot be compared: run run1")


def test_the_section_shows_both_runs_state_by_state() -> None:
    section = scaling_section(view_of(), scaling_result())
    assert section.lead == (
        "1.67× the examples per second of the baseline on 2× the devices: 83.3% scaling efficiency."
    )
    assert facts_of(section) == (
        "this run: 24.0 ms per step on 2 devices",
        "baseline: 20.0 ms per step on 1 device, run one in logs-one",
    )
    assert "| input | 6.00 ms | 4.00 ms | -2.00 ms |" in markdown_of(section)
    reason = replace(scaling_result(), speedup=None, reason="the batch size is not known")
    section = scaling_section(view_of(), reason)
    assert isinstance(section.lead, str)
    assert section.lead.startswith("1.67× the speed of the baseline by step time")
    assert sentences_of(section)[-1] == "The batch size is not known."


@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_section_fits_a_terminal(width: int) -> None:
    assert "+4.00 ms" in "\n".join(lines_of(scaling_section(view_of(), scaling_result()), width))
