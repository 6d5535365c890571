"""FLOP/s and MFU are those of a count by hand, and what is not known is said to be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.cuda_trace import MS, U64, Plane, Ref, Stats
from scripts.scenarios.model import ORIGIN_PS, marked_steps, new_trace
from tests.analysis.made import finding_of, write_program
from tests.sidecars import write_sidecar
from tests.xplane.hlo_messages import BF16, F32, ModuleWriter, add_programs
from traceview.analysis.workload.efficiency import DeviceEfficiency
from traceview.base.units import PS_PER_S

F16 = 10
FLOPS = 2 * 4096 * 4096 * 1024
PEAK = 125 * 10**12
"""Of a V100 with 16-bit numbers."""


def program(folder: Path, *, element: int = F16) -> Path:
    """Four steps of 50 ms: a product by two kernels of 4 and 1 ms, a sum of 3 ms, and a call of 2 ms that nobody knows."""
    module = ModuleWriter()
    left = module.add("left", "parameter", element=element, shape=(4096, 1024))
    right = module.add("right", "parameter", element=element, shape=(1024, 4096))
    module.add("dot.1", "dot", left, right, element=element, shape=(4096, 4096))
    module.last().dot_dimension_numbers.lhs_contracting_dimensions.append(1)
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
        ({"device_type_string": "TPU v5 Lite"}, 197),
        ({"device_type_string": "TPU v5 lite", "peak_teraflops_per_second": 196.6}, 196.6),
        ({"device_type_string": "TPU v5"}, 459),
        ({"device_type_string": "TPU v3"}, 61.5),
        ({"device_type_string": "TPU v9", "peak_teraflops_per_second": 5000.0}, 5000),
        ({"device_type_string": "TPU v9", "peak_teraflops_per_second": float("inf")}, None),
        ({"device_type_string": "TPU v4", "peak_teraflops_per_second": -1.0}, 275),
        ({}, None),
    ],
)
def test_the_peak_of_a_tpu(stats: Stats, peak: float | None, tmp_path: Path) -> None:
    module = ModuleWriter()
    left = module.add("left", "parameter", element=BF16, shape=(4096, 1024))
    right = module.add("right", "parameter", element=BF16, shape=(1024, 4096))
    module.add("dot.1", "dot", left, right, element=BF16, shape=(4096, 4096))
    module.last().dot_dimension_numbers.lhs_contracting_dimensions.append(1)
    trace = new_trace()
    plane = Plane("/device:TPU:0", stats=dict(stats))
    trace.extra_planes.append(plane)
    ops = plane.line(1, "XLA Ops", stamp_ns=0)
    of_op: dict[Any, Any] = {
        "hlo_op": Ref("dot.1"),
        "hlo_module": Ref("jit_step"),
        "program_id": U64(5),
    }
    for step in marked_steps(trace):
        at = ORIGIN_PS + step.at(2)
        ops.add("%dot.1 = bf16[4096,4096] dot(%left, %right)", at, at + 4 * MS, of_op)
    path = trace.write(tmp_path)
    add_programs(path, {"jit_step(5)": module})
    row = only(tmp_path)
    assert row.flops_per_step == FLOPS
    if peak is None:
        assert (row.peak_flops_per_second, row.mfu_ratio) == (None, None)
    else:
        assert row.peak_flops_per_second == pytest.approx(peak * 10**12)
        assert row.mfu_ratio == pytest.approx(FLOPS / (peak * 1e12) / 0.05, rel=0.02)


def tensorflow(folder: Path, ops: Sequence[tuple[str, float]], flops: Any) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        at = 2.0
        for op, length in ops:
            step.kernel(0, at, at + length, name="volta_fp16_s884gemm_fp16_128x128", op=op)
            at += length
    write_sidecar(trace.write(folder), {"graphs": {"flops": flops}})


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
    tensorflow(tmp_path, OPS, recorded)
    row = only(tmp_path)
    assert row.flops_per_step == 7 * 10**9
    assert row.unknown_ratio == pytest.approx(3 / 10)
    assert row.peak_flops_per_second == pytest.approx(PEAK)


STEP_S = 0.1999 / 4
PRODUCT, OTHER = "model/dense/Relu:_FusedMatMul", "model/other/MatMul:MatMul"


@pytest.mark.parametrize(
    ("ops", "flops", "is_low"),
    [
        # From a fifth of the peak on it is well used.
        ([(PRODUCT, 26.0)], round(0.199 * PEAK * STEP_S), True),
        ([(PRODUCT, 26.0)], round(0.201 * PEAK * STEP_S), False),
        # A device that mostly waits.
        ([(PRODUCT, 24.0)], 10**9, False),
        # Of 40 ms 9 are a product that the capture has no FLOPs of, or 7.
        ([(PRODUCT, 31.0), (OTHER, 9.0)], 10**9, False),
        ([(PRODUCT, 33.0), (OTHER, 7.0)], 10**9, True),
    ],
)
def test_where_the_peak_is_far(
    ops: list[tuple[str, float]], flops: int, is_low: bool, tmp_path: Path
) -> None:
    tensorflow(tmp_path, ops, {"model/dense/Relu": flops})
    finding = finding_of(traceview.analyze(tmp_path), "low-mfu")
    assert (finding is not None) is is_low


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
