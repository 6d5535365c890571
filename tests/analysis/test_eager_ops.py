"""A step without a graph is a finding on a host without GPUs, and only there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

import traceview
from scripts.cuda_trace import CudaTrace
from scripts.scenarios.model import Step, marked_steps, ms, new_trace
from tests.trace.test_replicas import FIRST, SECOND, component
from traceview.analysis.base import Finding
from traceview.document import numbers
from traceview.report import claims
from traceview.report.document import document_of
from traceview.report.model import Report
from traceview.report.recoverable import recoverable

SPACING_MS: Final = 0.4


def eager(step: Step, op: str, start_ms: float, length_ms: float) -> None:
    """One op as TensorFlow 2.21 records it if it runs outside of a graph."""
    for inset, name in (
        (0.0, f"EagerLocalExecute: {op}"),
        (0.01, "EagerKernelExecute"),
        (0.02, "KernelAndDeviceFunc::Run"),
    ):
        step.host(name, start_ms + inset, start_ms + length_ms - inset)


def run_of(
    count: int, length_ms: float = 0.3, *, graph_op_count: int = 1, with_graph: bool = False
) -> CudaTrace:
    """Steps of 50 ms in which two replicas compute and `count` ops run one by one."""
    trace = new_trace()
    for step in marked_steps(trace):
        component(step, 1, 2, *[FIRST] * graph_op_count)
        component(step, 2, 2, *[SECOND] * graph_op_count)
        for place in range(count):
            start_ms = 5 + SPACING_MS * place
            eager(step, "AddV2" if place else "Mul", start_ms, length_ms)
            if with_graph:
                step.host("FunctionRun", start_ms + 0.05, start_ms + length_ms - 0.05)
    return trace


def found(folder: Path, trace: CudaTrace) -> Finding | None:
    trace.write(folder)
    report = traceview.analyze(folder)
    rows = [row for row in report.findings if row.code == "host-bound"]
    return next(
        (row for row in rows if "eager_ops_ratio" in {item.metric for item in row.evidence}), None
    )


@pytest.mark.parametrize(("count", "is_reported"), [(100, True), (99, False)])
def test_from_a_hundred_ops_on_the_step_is_no_graph(
    count: int, is_reported: bool, tmp_path: Path
) -> None:
    finding = found(tmp_path, run_of(count))
    assert (finding is not None) == is_reported
    if finding is not None:
        # 48.1 ms in which no replica computes, less half of the ops: 0.28 ms each, for two replicas at once.
        assert (finding.severity, finding.cost_ps_per_step) == ("warning", ms(48.1 - 14))
        assert finding.cost_statistic == "mean"
        assert "most often AddV2 and Mul" in finding.explanation


@pytest.mark.parametrize(("graph_op_count", "is_reported"), [(23, True), (24, False)])
def test_a_tenth_of_the_step_is_worth_a_finding(
    graph_op_count: int, is_reported: bool, tmp_path: Path
) -> None:
    """The replicas compute for 41.4 or 43.2 ms; half of a hundred ops of 0.05 ms are 2.5 ms of the rest."""
    trace = run_of(100, 0.07, graph_op_count=graph_op_count)
    assert (found(tmp_path, trace) is not None) == is_reported


def test_a_call_of_a_function_is_no_single_op(tmp_path: Path) -> None:
    assert found(tmp_path, run_of(100, with_graph=True)) is None


def test_with_a_gpu_the_launches_show_it(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 1, 4)
        for place in range(100):
            eager(step, "AddV2", 5 + SPACING_MS * place, 0.3)
    assert found(tmp_path, trace) is None


def on_one_cpu(wait_ms: float = 0) -> CudaTrace:
    """Steps of 50 ms, in the markers 45 ms: first a wait for input, from 5 ms on 100 ops of 0.28 ms each."""
    trace = new_trace()
    for step in marked_steps(trace, marker_ms=45):
        step.host("TFE_Py_Execute", 0, 45)
        if wait_ms:
            step.host("IteratorGetNext:IteratorGetNext", 0, wait_ms)
        for place in range(100):
            eager(step, "AddV2", 5 + SPACING_MS * place, 0.3)
    return trace


@pytest.mark.parametrize("wait_ms", [0, 4])
def test_without_a_device_the_steps_show_it(wait_ms: float, tmp_path: Path) -> None:
    """Eager ops on one CPU belong to no replica. What lies between steps and waits for input is lost in a graph, too."""
    finding = found(tmp_path, on_one_cpu(wait_ms))
    assert finding is not None
    assert (finding.severity, finding.cost_ps_per_step) == ("warning", ms(45 - wait_ms - 28))
    assert (finding.cost_bound, finding.devices) == ("lower", ())
    assert "takes at least 17.0 ms of" in finding.title or wait_ms


def with_overhead(folder: Path, trace: CudaTrace) -> Report:
    """The report of a run whose steps of 50 ms took 45 without the profiler."""
    written = trace.write(folder)
    overhead = {"unprofiled_ns": 45, "profiled_ns": 50, "ratio": 1 / 9, "spread_ratio": 0.0}
    sidecar = written.with_name(written.name.replace(".xplane.pb", ".traceview.json"))
    sidecar.write_text(json.dumps({"schema_version": 1, "overhead": overhead}))
    return traceview.analyze(folder)


def test_what_the_profiler_took_for_its_events_is_left_out(tmp_path: Path) -> None:
    """It took a tenth of the step, and as large a share of that between the ops as events end there."""
    report = with_overhead(tmp_path, on_one_cpu())
    (finding,) = [row for row in report.findings if row.code == "host-bound"]
    assert finding.cost_ps_per_step is not None
    assert ms(17 - 5) < finding.cost_ps_per_step < ms(17)
    assert "ms step without the profiler (" in finding.title
    assert "With the profiler a step took" in finding.explanation


def test_what_is_recoverable_and_the_path_leave_the_profiler_out(tmp_path: Path) -> None:
    """Replicas in a graph wait for its ops: finding, path, recoverable time and tables name the same two parts."""
    report = with_overhead(tmp_path, run_of(100, with_graph=True))
    (finding,) = [row for row in report.findings if row.code == "host-bound"]
    (of_profiler,) = [row.value for row in finding.evidence if row.metric == "profiler_ps"]
    most, path = recoverable(report), report.results.path
    assert isinstance(of_profiler, int)
    assert most is not None
    assert path is not None
    assert 0 < of_profiler < ms(5)
    assert finding.cost_ps_per_step == path.mean_by_cause["host_compute"] - of_profiler
    assert most.known_ps == finding.cost_ps_per_step
    document = document_of(report)
    assert document.summary.tiles[-1].note.endswith("of the mean 45.0 ms step without the profiler")
    (section,) = (part for part in document.sections if part.id == "path")
    assert f"{numbers.time(of_profiler)} per step is the time of the profiler" in str(
        section.blocks
    )
    changed = replace(report, findings=(with_value(finding, of_profiler + 2),))
    assert "are not host_compute of" in str([*claims.profiler(changed)])


def with_value(finding: Finding, of_profiler: int) -> Finding:
    evidence = (
        replace(row, value=of_profiler) if row.metric == "profiler_ps" else row
        for row in finding.evidence
    )
    return replace(finding, evidence=tuple(evidence))


def test_at_least_so_much_may_be_the_whole_step(tmp_path: Path) -> None:
    on_one_cpu().write(tmp_path)
    most = recoverable(traceview.analyze(tmp_path))
    assert most is not None
    assert (most.source, most.ratio) == ("host-bound", 1.0)
