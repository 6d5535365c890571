"""Ops are measured per used step: calls, devices, time, its noise, and what they take of the path."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.scenarios.model import marked_steps, ms, new_trace
from traceview.analysis.gpu_time.op_steps import MOST_OPS, OpInSteps, OpSteps, kernel_stem
from traceview.report.build import analyze


def op_steps(folder: Path, *, lengths: tuple[float, ...], names: int = 1) -> OpSteps:
    """Steps in which two GPUs run `dense` for these milliseconds, and GPU:0 short kernels of other names before."""
    trace = new_trace()
    for step, length in zip(marked_steps(trace, count=len(lengths)), lengths, strict=True):
        for ordinal in (0, 1):
            begin, name = 5 + ordinal, f"void dense<float, {ordinal}>(float*)"
            step.kernel(ordinal, begin, begin + length, name=name, op="replica_1/dense:MatMul")
        for number in range(names):
            step.kernel(0, 1 + number / 100, 1 + number / 100 + 0.005, name=f"k{number}", op=None)
    trace.write(folder)
    result = analyze(folder).results.op_steps
    assert result is not None
    return result


def row_of(result: OpSteps, op: str) -> OpInSteps:
    return next(row for row in result.rows if row.op == op)


def test_one_step_has_no_noise(tmp_path: Path) -> None:
    row = row_of(op_steps(tmp_path, lengths=(10,)), "dense")
    assert (row.error_ps, row.error_degrees) == (None, None)


def test_of_many_ops_the_longest_are_kept(tmp_path: Path) -> None:
    result = op_steps(tmp_path, lengths=(10, 10), names=3 * MOST_OPS)
    assert len(result.rows) + result.left_out_count == 3 * MOST_OPS + 1
    assert MOST_OPS <= len(result.rows) <= 2 * MOST_OPS
    assert result.left_out_ps_per_step == ms(0.005)


def test_compute_is_of_the_layer_of_all_its_ops(tmp_path: Path) -> None:
    """Three ops of a layer, one of them a gradient, on two GPUs; what has no layer, and copies, are in no part."""
    trace = new_trace()
    for number, step in enumerate(marked_steps(trace, count=3)):
        for ordinal in (0, 1):
            step.kernel(ordinal, 1, 2, op="net/dense/MatMul:MatMul")
            step.kernel(ordinal, 2, 3 + number, op="net/dense/BiasAdd:BiasAdd")
            step.kernel(ordinal, 6, 7, op="gradient_tape/net/dense/MatMul/MatMul:MatMul")
            step.kernel(ordinal, 8, 9, op=None)
        step.copy(0, "H2D", 9, 9.5, size=8)
    trace.write(tmp_path)
    result = analyze(tmp_path).results.op_steps
    assert result is not None
    (part,) = result.parts
    assert (part.layer, part.source_line) == ("net/dense", None)
    assert (part.device_count, part.count) == (2, 18)
    of_layer = [row for row in result.rows if row.op and "dense" in row.op]
    assert len(of_layer) == 3
    assert part.ps_per_step == sum(row.ps_per_step for row in of_layer) == ms(8)
    assert part.path_ps == sum(row.path_ps for row in of_layer)
    # Only one of its ops varies.
    assert part.error_ps == max(row.error_ps or 0 for row in of_layer)


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("void gemm<float, 4>(float*)", "gemm"),
        ("void a::(anonymous namespace)::softmax<float>(float*)", "a::softmax"),
        ("<unnamed>", "<unnamed>"),
    ],
)
def test_a_kernel_is_known_by_its_stem(name: str, stem: str) -> None:
    assert kernel_stem(name) == stem
