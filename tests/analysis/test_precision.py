"""Tests that compute time is split by precision exactly, and that unused tensor cores are a finding where proven."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.cuda_trace import V100_STATS, Stats
from scripts.scenarios.model import ms, new_trace
from tests.analysis.made import check_finding
from traceview.analysis.workload.kernels import DevicePrecision
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
        if finding.code in ("low-precision-unused", "opaque-cuda-graph"):
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


def test_advice_fits_the_gpu(tmp_path: Path) -> None:
    for major, policy in ((7, "mixed_float16"), (8, "mixed_bfloat16")):
        stats: Stats = {**V100_STATS, "compute_cap_major": major, "compute_cap_minor": 0}
        report = analyzed(tmp_path / policy, (FP32, 0, 10), stats=stats)
        (advice,) = [f.action for f in report.findings if f.code == "low-precision-unused"]
        assert f'"{policy}"' in advice


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
