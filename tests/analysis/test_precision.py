"""Tests that compute time is split by precision exactly, and that unused tensor cores are a finding where proven."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import traceview
from scripts.cuda_trace import V100_STATS, Stats
from scripts.scenarios.model import marked_steps, ms, new_trace
from tests.analysis.made import check_finding, finding_of
from traceview.analysis.workload.efficiency import DevicePrecision, launch_of
from traceview.report.model import Report

FP32, FP16, NOTHING = "ampere_sgemm_32x128_tn", "volta_h884gemm_64x128_ldg8_nn", "fusion_1"


def analyzed(
    folder: Path, *kernels: tuple[str, float, float], stats: Stats | None = None
) -> Report:
    """A GPU with kernels by name, start and end in milliseconds, each on a stream of its own."""
    trace = new_trace()
    trace.gpu(0, stats=stats)
    for stream, (name, start, end) in enumerate(kernels):
        trace.kernel(0, ms(start), ms(end), name=name, stream=20 + stream)
    trace.write(folder)
    report = traceview.analyze(folder)
    for finding in report.findings:
        if finding.code == "low-precision-unused":
            check_finding(finding)
    return report


def of_gpu(report: Report) -> DevicePrecision:
    assert report.results.precision is not None
    (row,) = report.results.precision.devices
    return row


def is_unused(report: Report) -> bool:
    return "low-precision-unused" in [finding.code for finding in report.findings]


@pytest.mark.parametrize(
    ("kernel", "length_ms", "expected"),
    [
        (FP16, 9.99, True),
        (FP16, 10, False),
        # Where more than half is unknown it is not said.
        (NOTHING, 50, True),
        (NOTHING, 50.01, False),
    ],
)
def test_both_sides_of_each_limit(
    kernel: str, length_ms: float, expected: bool, tmp_path: Path
) -> None:
    report = analyzed(tmp_path, (kernel, 0, length_ms), (FP32, length_ms, 100))
    assert is_unused(report) is expected


@pytest.mark.parametrize(
    ("stats", "has"),
    [
        ({"compute_cap_major": 7, "compute_cap_minor": 0}, True),
        ({"compute_cap_major": 6, "compute_cap_minor": 1}, False),
        (
            {
                "compute_cap_major": 7,
                "compute_cap_minor": 5,
                "gpu_device_name": "NVIDIA GeForce GTX 1660",
            },
            False,
        ),
        ({}, None),
        ({"device_vendor": "AMD", "compute_cap_major": 9, "compute_cap_minor": 0}, None),
        ({"device_vendor": "AMD", "compute_cap_major": 9, "compute_cap_minor": 4}, True),
    ],
)
def test_only_gpus_with_tensor_cores_count(tmp_path: Path, stats: Stats, has: bool | None) -> None:
    report = analyzed(tmp_path, (FP32, 0, 10), stats={"core_count": 80, **stats})
    assert of_gpu(report).has_tensor_cores is has
    assert is_unused(report) is (has is True)


@pytest.mark.parametrize(
    ("with_cores", "expected"), [(0, "tensor cores none"), (20, "tensor cores none or 50.0%")]
)
def test_many_gpus_of_which_some_have_no_tensor_cores(
    with_cores: int, expected: str, tmp_path: Path
) -> None:
    trace = new_trace()
    for ordinal in range(20 + with_cores):
        major = 7 if ordinal < with_cores else 6
        trace.gpu(ordinal, stats={**V100_STATS, "compute_cap_major": major})
        trace.kernel(ordinal, ms(1), ms(10), name=FP16 if ordinal < with_cores else FP32)
        trace.kernel(ordinal, ms(10), ms(19), name=FP32)
    trace.write(tmp_path)
    (line,) = [
        line
        for line in traceview.analyze(tmp_path).to_markdown().splitlines()
        if "other devices: compute" in line and "tensor cores" in line
    ]
    assert expected + "," in line


# How much of the GPU kernels can fill

ADD, GEMM = "void Eigen::internal::EigenMetaKernel<float>", "volta_sgemm_128x64_nn"
FULL = "regs:32 static_shared:0 dynamic_shared:0 grid:160,1,1 block:256,1,1 occ_pct:100"


def details(grid: int | str, *, occupancy: float | str = 100) -> str:
    return f"regs:32 static_shared:0 grid:{grid},1,1 block:256,1,1 occ_pct:{occupancy}"


@pytest.mark.parametrize(
    ("given", "kernel", "length_ms", "is_sparse", "is_found"),
    [
        (details(40), ADD, 10, False, False),
        (details(160, occupancy=24.9), ADD, 10, True, True),
        (details(160, occupancy=25), ADD, 10, False, False),
        # Products need few warps, but blocks all the same.
        (details(160, occupancy=12.5), GEMM, 10, False, False),
        (details(8, occupancy=12.5), GEMM, 10, True, True),
        # Without a recorded occupancy, or grid.
        (details(160, occupancy=0), ADD, 10, False, False),
        (details(8, occupancy="x"), ADD, 10, True, True),
        (details("many"), ADD, 10, False, False),
        # Less than a tenth of the GPU time.
        (details(1), ADD, 4.9, True, False),
    ],
)
def test_kernels_that_fill_little(
    given: str, kernel: str, length_ms: float, is_sparse: bool, is_found: bool, tmp_path: Path
) -> None:
    """Four steps of 50 ms: 20 ms of a kernel that fills the GPU, and then of one with these details."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 22, name=ADD, op="model/dense/Mul:Mul", details=FULL)
        step.kernel(0, 22, 22 + length_ms, name=kernel, op="model/out/Add:AddV2", details=given)
    trace.write(tmp_path)
    report = traceview.analyze(tmp_path)
    assert of_gpu(report).sparse_ps_per_step == (ms(length_ms) if is_sparse else 0)
    finding = finding_of(report, "low-occupancy")
    assert (finding is not None) is is_found
    if finding is not None:
        assert finding.title.endswith("kernels that fill little of the GPU, model/out/Add")


@pytest.mark.parametrize(
    ("text", "launch"),
    [
        (b"regs:38 shm:0 grid:160,2,1 block:1024,1,1 occ_pct:62.5", (320, 0.625)),
        (b"grid:1,1,1 block:512,1,1", (1, np.nan)),
        (b"grid:1,1,1 block:512,1,1 occ_pct:nan", (1, np.nan)),
        (b"grid:1,1,1 block:512,1,1 occ_pct:101", (1, np.nan)),
        (b"grid:0,1,1 block:512,1,1 occ_pct:50", (np.nan, np.nan)),
        (b"grid:1,1,1 block:2048,1,1 occ_pct:50", (np.nan, np.nan)),
        (b"grid:9999999999,9999999999,9 block:1,1,1 occ_pct:50", (np.nan, np.nan)),
        (b"", (np.nan, np.nan)),
    ],
)
def test_details_as_tracers_write_them(text: bytes, launch: tuple[float, float]) -> None:
    assert launch_of(text) == pytest.approx(launch, nan_ok=True)


@pytest.mark.shared
def test_real_kernels_without_occupancy(shared_traces: Path) -> None:
    """TensorFlow wrote no occupancy in 2020, and ROCm writes none."""
    for name, devices in (("bert-8xV100", ["GPU:4", "GPU:6"]), ("jax-gemm-1of8", ["GPU:0"])):
        result = traceview.analyze(shared_traces / name).results.precision
        assert result is not None
        known = [row for row in result.devices if row.sparse_ps_per_step is not None]
        assert [row.device for row in known] == devices
        assert {row.occupancy_ratio for row in known} == {None}
