"""FLOP/s and MFU are those of a count by hand, and what is not known is said to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.cuda_trace import MS, Plane, Stats
from scripts.scenarios.model import ORIGIN_PS, marked_steps, new_trace
from tests.analysis.made import in_program, write_program
from tests.sidecars import write_sidecar
from tests.xplane.hlo_messages import BF16, F32, ModuleWriter, add_programs
from traceview.analysis.workload.efficiency import DeviceEfficiency
from traceview.base.units import PS_PER_S

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
