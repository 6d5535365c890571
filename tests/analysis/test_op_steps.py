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
