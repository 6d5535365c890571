"""Tests that launches are counted and timed, and attributed to the threads that make them."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.cuda_trace import CudaTrace, Line
from scripts.scenarios.model import marked_steps, ms, new_trace
from tests.analysis.made import check_finding
from tests.analysis.test_findings import the
from traceview.analysis.workload.launches import DeviceLaunches
from traceview.report.model import Report

US = 10**6


def of_gpu(report: Report, ordinal: int = 0) -> DeviceLaunches:
    assert report.results.launches is not None
    (row,) = [row for row in report.results.launches.devices if row.ordinal == ordinal]
    return row


def launched(
    trace: CudaTrace,
    call_us: tuple[float, float],
    kernel_us: tuple[float, float],
    *,
    gpu: int = 0,
    thread: Line | None = None,
) -> None:
    """A kernel and its launch call, in microseconds since the start."""
    number = trace.kernel(gpu, round(kernel_us[0] * US), round(kernel_us[1] * US))
    length = round((call_us[1] - call_us[0]) * US)
    trace.launch(
        "cuLaunchKernel", round(call_us[0] * US), number, duration_ps=length, thread=thread
    )


def analyzed(folder: Path, trace: CudaTrace) -> Report:
    trace.write(folder)
    report = traceview.analyze(folder, window="devices")
    for finding in report.findings:
        if finding.code in ("low-precision-unused", "opaque-cuda-graph"):
            check_finding(finding)
    return report


def test_a_kernel_that_seems_to_start_before_its_launch_has_no_delay(tmp_path: Path) -> None:
    trace = new_trace()
    for at_us, delay_us in ((100, -20), (200, -2), (300, 10), (400, 50)):
        launched(trace, (at_us, at_us + 5), (at_us + delay_us, at_us + delay_us + 8))
    row = of_gpu(analyzed(tmp_path, trace))
    assert (row.delay_p50_ps, row.delay_p95_ps) == (5 * US, 50 * US)
    assert (row.kernel_median_ps, row.call_median_ps) == (8 * US, 5 * US)


@pytest.mark.parametrize(("kernel_us", "ratio"), [(4.999, 1.0), (5, 0.0)])
def test_a_short_kernel_is_shorter_than_its_call(
    tmp_path: Path, kernel_us: float, ratio: float
) -> None:
    trace = new_trace()
    launched(trace, (100, 105), (110, 110 + kernel_us))
    assert of_gpu(analyzed(tmp_path, trace)).short_kernel_ratio == ratio


@pytest.mark.parametrize(("call_us", "count"), [(100, 0), (100.001, 1)])
def test_a_call_is_blocked_above_100_us(tmp_path: Path, call_us: float, count: int) -> None:
    trace = new_trace()
    launched(trace, (100, 100 + call_us), (300, 400))
    assert of_gpu(analyzed(tmp_path, trace)).blocked_call_count == count


@pytest.mark.parametrize(
    ("thread", "mode"),
    [
        ("tf_gpu_private_0", "gpu_private"),
        ("tf_gpu_shared", "gpu_shared"),
        ("tf_Compute", "global"),
        ("python3", None),
    ],
)
def test_thread_mode(tmp_path: Path, thread: str, mode: str | None) -> None:
    trace = new_trace()
    launched(trace, (100, 105), (110, 120), thread=trace.thread(thread, 77))
    assert of_gpu(analyzed(tmp_path, trace)).thread_mode == mode


def test_threads_that_launch_at_once(tmp_path: Path) -> None:
    trace = new_trace()
    first, second = trace.thread("tf_Compute", 7), trace.thread("tf_Compute", 8)
    launched(trace, (100, 140), (200, 210), thread=first)
    launched(trace, (130, 150), (210, 220), thread=second)
    launched(trace, (300, 310), (320, 330), gpu=1, thread=second)
    report = analyzed(tmp_path, trace)
    assert (of_gpu(report).thread_count, of_gpu(report).thread_overlap_ratio) == (2, 0.2)
    assert of_gpu(report, 1).thread_overlap_ratio == 0.0


def test_eager_launches_lie_in_an_eager_op_and_not_in_a_graph_inside(tmp_path: Path) -> None:
    trace = new_trace()
    launched(trace, (100, 105), (110, 120))
    assert of_gpu(analyzed(tmp_path / "nothing", trace)).eager_call_count is None
    trace.host_event("EagerKernelExecute", 90 * US, 200 * US)
    # TensorFlow 2.21 records it below every eager op.
    trace.host_event("KernelAndDeviceFunc::Run", 92 * US, 195 * US)
    assert of_gpu(analyzed(tmp_path / "eager", trace)).eager_call_count == 1
    trace.host_event("FunctionRun", 95 * US, 190 * US)
    assert of_gpu(analyzed(tmp_path / "graph", trace)).eager_call_count == 0


def test_kernels_of_xla_are_a_share(tmp_path: Path) -> None:
    trace = new_trace()
    trace.kernel(0, 0, ms(1), stats={"hlo_op": "fusion.1", "hlo_module": "cluster_0"})
    trace.kernel(0, ms(1), ms(2), stats={"hlo_op": "fusion.2"})
    trace.kernel(0, ms(2), ms(8))
    assert of_gpu(analyzed(tmp_path, trace)).xla_compute_ratio == 0.25


def test_graphs_recorded_as_one_event_are_a_finding(tmp_path: Path) -> None:
    trace = new_trace()
    trace.device_event(0, "CudaGraphExec:7", 0, ms(3), type_="CudaGraph")
    trace.kernel(0, ms(3), ms(4))
    finding = the(analyzed(tmp_path, trace), "opaque-cuda-graph")
    assert (finding.severity, finding.devices) == ("info", ("GPU:0",))
    assert finding.title == "GPU:0 runs 1 CUDA graph recorded without kernels"


def test_without_kernels_it_is_skipped(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        step.copy(0, "H2D", 1, 2, size=1000)
    trace.write(tmp_path)
    report = traceview.analyze(tmp_path)
    assert report.results.launches is None
    assert report.skipped["launches"] == "no GPU ran a kernel in the window"
    assert report.skipped["precision"] == "no GPU ran a kernel in the window"
