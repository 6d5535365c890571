"""Tests that a trace of JAX gets the advice for JAX, and a trace of TensorFlow its own."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.cuda_trace import MS, CudaTrace
from traceview.analysis.registry import RULES

CODE = "no-step-marker"


def advice(folder: Path, call: str) -> str:
    trace = CudaTrace()
    trace.host_event(call, 0, MS)
    number = trace.kernel(0, MS, 2 * MS)
    trace.launch("cuLaunchKernel", MS // 2, number)
    trace.write(folder)
    return next(row.advice for row in traceview.analyze(folder).findings if row.code == CODE)


@pytest.mark.parametrize(
    ("call", "is_jax"),
    [("PjitFunction(train_step)", True), ("FunctionRun", False), ("a PjitFunction(x)", False)],
)
def test_the_calls_of_the_host_choose_the_advice(call: str, is_jax: bool, tmp_path: Path) -> None:
    rule = RULES[CODE]
    _, of_jax = rule.actions["jax"]
    assert advice(tmp_path, call) == (of_jax if is_jax else rule.advice).replace("`", "")


def test_advice_for_jax_names_nothing_of_tensorflow() -> None:
    advised = [text for rule in RULES.values() for text in rule.actions.get("jax", ()) if text]
    assert advised
    for text in advised:
        assert "tf." not in text
        assert "traceview capture" not in text
