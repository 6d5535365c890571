"""The report says how sure the bounds of steps are, what a call of several steps holds, and what ran between steps."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.cuda_trace import CudaTrace
from scripts.scenarios.model import Step, ms, new_trace
from tests.sidecars import graph, write_sidecar
from traceview.analysis.measures.step_report import Steps
from traceview.document.screen import render
from traceview.report.document import document_of


def shown(logdir: Path) -> tuple[traceview.Report, str]:
    report = traceview.analyze(logdir)
    text = render(document_of(report, is_brief=True), width=100, color=False)
    return report, " ".join(text.split())


# Updates and evaluations


def slowed(numbers: Collection[int], *, slow_ms: int = 30) -> CudaTrace:
    """Nine steps of 20 ms, some of which compute for `slow_ms` more."""
    trace = new_trace(length_ms=230 + slow_ms * len(numbers))
    at_ms = 0
    for number in range(9):
        length_ms = 20 + (slow_ms if number in numbers else 0)
        trace.marker(number, ms(at_ms), ms(at_ms + length_ms) - ms(0.1))
        Step(trace, at_ms).kernel(0, 1, length_ms - 1, op="train/dense/MatMul:MatMul")
        at_ms += length_ms
    return trace


def steps_of(report: traceview.Report) -> Steps:
    assert report.results.steps is not None
    return report.results.steps


def test_gradients_accumulate(tmp_path: Path) -> None:
    path = slowed((3, 7)).write(tmp_path)
    assert "unsteady-steps" in {finding.code for finding in shown(tmp_path)[0].findings}
    write_sidecar(path, {"training": {"accumulation_steps": 4}})
    report, text = shown(tmp_path)
    assert "The optimizer updates in one of 4 steps." in text
    assert "unsteady-steps" not in {finding.code for finding in report.findings}


EVALUATION = {
    "after": 2,
    "functions": {"test_step": 20, "log": 1},
    "begun_ns": 5_000_000,
    "ended_ns": 35_000_000,
}


def evaluated(*evaluations: Any) -> dict[str, Any]:
    return {"window": {"evaluations": [*evaluations]}}


def test_an_evaluation_is_named_with_the_step_that_holds_it(tmp_path: Path) -> None:
    path = slowed(()).write(tmp_path)
    write_sidecar(path, evaluated(EVALUATION, {**EVALUATION, "after": 99}))
    report, text = shown(tmp_path)
    assert steps_of(report).evaluated_steps == (2,)
    assert "An evaluation ran after some steps, whose time holds it (2)." in text


def test_a_step_before_an_evaluation_is_not_unsteady(tmp_path: Path) -> None:
    path = slowed((2,), slow_ms=40).write(tmp_path)
    codes = {finding.code for finding in shown(tmp_path)[0].findings}
    write_sidecar(path, evaluated(EVALUATION))
    assert codes - {finding.code for finding in shown(tmp_path)[0].findings} == {"unsteady-steps"}


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({"training_loop": "While"}, "several"),
        ({"replica_runs": 10}, "up to 10"),
    ],
)
def test_a_call_that_holds_the_training_loop_is_named(
    fields: dict[str, Any], most: str, tmp_path: Path
) -> None:
    path = slowed(()).write(tmp_path)
    function = {**graph({"GPU:0": 3}, name="epoch"), **fields}
    write_sidecar(path, {"placement": {"functions": [function]}})
    report, text = shown(tmp_path)
    assert steps_of(report).loop_function == "epoch"
    said = f"One step here is one call of epoch that runs {most} training steps in its graph;"
    assert said in text
