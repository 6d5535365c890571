"""FLOP/s and MFU are those of a count by hand; compute is split by precision exactly; unused tensor cores are a finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import traceview
from scripts.cuda_trace import MS, V100_STATS, Plane, Stats
from scripts.scenarios.model import ORIGIN_PS, marked_steps, ms, new_trace
from tests.analysis.made import check_finding, finding_of, in_program, write_program
from tests.sidecars import write_sidecar
from tests.xplane.hlo_messages import BF16, F32, ModuleWriter, add_programs
from traceview.analysis.workload.efficiency import DeviceEfficiency, DevicePrecision, launch_of
from traceview.base.units import PS_PER_S
from traceview.report.model import Report

F16 = 10
FLOPS = 2 * 4096 * 4096 * 1024
PEAK = 125 * 10**12
"""Of a V100 with 16-bit numbers."""


def product(element: int) -> tuple[ModuleWriter, Any]:
    """A program with a product, and its left operand."""
    module = ModuleWriter()
    left = module.add("left", "parameter", element=element, shape=(4096, 1024))
    right = module.add("right", "parameter", element=element, shape=(1024, 4096))
    module.add("dot.1", "dot", left, right, element=element, shape=(4096, 4096))
    module.last().dot_dimension_numbers.lhs_contracting_dimensions.append(1)
    return module, left


def program(folder: Path, *, element: int = F16) -> Path:
    """Four steps of 50 ms: a product by two kernels of 4 and 1 ms, a sum of 3 ms, and a call of 2 ms that nobody knows."""
    module, left = product(element)
    module.add("add.2", "add", left, left, element=element, shape=(4096, 1024))
    module.add("call.3", "custom-call", left, left, element=element, shape=(4096, 1024))
    module.last().custom_call_target = b"mine"
    kernels = [("dot.1", "product", 4.0), ("dot.1", "rest", 0.5), ("dot.1", "rest", 0.5)]
    others = [("add.2", "add", 3.0), ("call.3", "mine", 2.0)]
    return write_program(folder, module, [*kernels, *others])


def only(folder: Path) -> DeviceEfficiency:
    efficiency = traceview.analyze(folder).results.efficiency
    assert efficiency is not None
    (row,) = efficiency.devices
    return row


def test_a_program_by_hand(tmp_path: Path) -> None:
    program(tmp_path)
    row = only(tmp_path)
    assert row.flops_per_step == FLOPS, "two kernels of one product are not two products"
    assert row.flops_per_second == FLOPS * 100
    assert row.unknown_ratio == pytest.approx(0.2)
    assert row.peak_flops_per_second == pytest.approx(PEAK)
    assert row.mfu_ratio == pytest.approx(FLOPS / PEAK * PS_PER_S / (199.9 / 4 * MS))


def test_without_a_known_precision_there_is_no_peak(tmp_path: Path) -> None:
    """Products of float32 may run in TF32."""
    program(tmp_path, element=F32)
    row = only(tmp_path)
    assert row.flops_per_step == FLOPS
    assert (row.peak_flops_per_second, row.mfu_ratio) == (None, None)


@pytest.mark.parametrize(
    ("stats", "peak"),
    [
        ({"peak_teraflops_per_second": 196.6}, 196.6),
        ({"peak_teraflops_per_second": float("inf")}, None),
        ({"peak_teraflops_per_second": -1.0}, None),
        ({}, None),
    ],
)
def test_the_peak_of_a_tpu(stats: Stats, peak: float | None, tmp_path: Path) -> None:
    trace = new_trace()
    plane = Plane("/device:TPU:0", stats=dict(stats))
    trace.extra_planes.append(plane)
    ops = plane.line(1, "XLA Ops", stamp_ns=0)
    for step in marked_steps(trace):
        at = ORIGIN_PS + step.at(2)
        ops.add("%dot.1 = bf16[4096,4096] dot(%left, %right)", at, at + 4 * MS, in_program("dot.1"))
    add_programs(trace.write(tmp_path), {"jit_step(5)": product(BF16)[0]})
    row = only(tmp_path)
    assert row.flops_per_step == FLOPS
    if peak is None:
        assert (row.peak_flops_per_second, row.mfu_ratio) == (None, None)
    else:
        assert row.peak_flops_per_second == pytest.approx(peak * 10**12)
        assert row.mfu_ratio == pytest.approx(FLOPS / (peak * 1e12) / 0.05, rel=0.02)


OPS = [
    ("model/dense/Relu:_FusedMatMul", 1),
    ("StatefulPartitionedCall/while/body/_1/model/out/MatMul:MatMul", 2),
    ("gradient_tape/model/conv/Conv2DBackpropInput:Conv2DBackpropInput", 1),
    ("model/dense/BiasAdd:BiasAdd", 3),
    ("EagerPyFunc:EagerPyFunc", 1),
    ("model/other/MatMul:MatMul", 2),
]


def test_ops_by_the_names_of_the_capture(tmp_path: Path) -> None:
    recorded = {
        "model/dense/Relu": 10**9,
        "model/dense/BiasAdd": 10**9,
        "model/out/MatMul": 2 * 10**9,
        "gradient_tape/model/conv/Conv2DBackpropInput": 4 * 10**9,
    }
    trace = new_trace()
    for step in marked_steps(trace):
        at = 2.0
        for op, length in OPS:
            step.kernel(0, at, at + length, name="volta_fp16_s884gemm_fp16_128x128", op=op)
            at += length
    write_sidecar(trace.write(tmp_path), {"graphs": {"flops": recorded}})
    row = only(tmp_path)
    assert row.flops_per_step == 7 * 10**9
    assert row.unknown_ratio == pytest.approx(3 / 10)
    assert row.peak_flops_per_second == pytest.approx(PEAK)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "flops"),
    [
        # Two steps of 5120 features at 34·31·53 places, each of a kernel of 16·1·2·2.
        ("jax-8xMI300X", 2 * 5120 * 34 * 31 * 53 * 64),
        # Each of six products three times.
        (
            "jax-gemm-1of8",
            3 * 2 * (256**3 + 1024**3 + 4096**3 + 8192 * 4096 * 8192 + 2048 * 8192 * 2048 + 16384 * 1024 * 4096),
        ),
    ],
)  # fmt: skip
def test_products_on_real_gpus(shared_traces: Path, name: str, flops: int) -> None:
    efficiency = traceview.analyze(shared_traces / name).results.efficiency
    assert efficiency is not None
    for row in efficiency.devices:
        assert row.flops_per_step == flops
        assert row.unknown_ratio < 0.01
        assert row.peak_flops_per_second == pytest.approx(1307.4e12)
        assert row.peak_flops_per_second is not None
        assert 0.03 < row.flops_per_second / row.peak_flops_per_second < 0.7


# Precision


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
