"""The report says how sure the bounds of steps are, what a call of several steps holds, and what ran between steps."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.cuda_trace import CudaTrace
from scripts.scenarios.model import Step, marked_steps, ms, new_trace
from tests.sidecars import graph, write_sidecar
from traceview.analysis.measures.step_report import Steps
from traceview.document.screen import render
from traceview.report.document import document_of

LOOP = "A loop in the graph runs"


def looping(iterations: int, *, loops_in: int = 4) -> CudaTrace:
    """Four steps; in the first `loops_in` an executor runs a loop of so many iterations."""
    trace = new_trace()
    line = trace.thread("executor", 77)
    for number, step in enumerate(marked_steps(trace)):
        # In the last one only the condition of the loop runs.
        for iteration in range(iterations + 1 if number < loops_in else 1):
            stats = {"id": 5, "iter_num": iteration}
            start_ms = 1 + iteration
            step.host("ExecutorState::Process", start_ms, start_ms + 0.5, stats, thread=line)
        step.kernel(0, 30, 40)
    return trace


def shown(logdir: Path) -> tuple[traceview.Report, str]:
    report = traceview.analyze(logdir)
    text = render(document_of(report, is_brief=True), width=100, color=False)
    return report, " ".join(text.split())


def test_a_loop_in_the_graph_may_be_that_of_the_training(tmp_path: Path) -> None:
    looping(8).write(tmp_path)
    report, text = shown(tmp_path)
    assert steps_of(report).loop_iterations == 8
    assert f"{LOOP} 8 times in each step. If it is the training loop" in text


@pytest.mark.parametrize(("iterations", "loops_in"), [(1, 4), (8, 1)])
def test_no_loop_or_one_in_few_steps(iterations: int, loops_in: int, tmp_path: Path) -> None:
    looping(iterations, loops_in=loops_in).write(tmp_path)
    report, text = shown(tmp_path)
    assert report.results.steps is not None
    assert report.results.steps.loop_iterations is None
    assert LOOP not in text


# Updates and evaluations

UPDATE = [f"train/adam/cond/then/_2/adam/cond/Mul_{number}:Mul" for number in range(6)]
ADDS_UP = [f"train/adam/cond/else/_3/adam/cond/add_{number}:AddV2" for number in range(3)]
ALWAYS = ["train/adam/Add:AddV2", "train/adam/Equal:Equal"]


def accumulating(updates: Collection[int], *, count: int = 9, update_ms: int = 30) -> CudaTrace:
    """Steps of 20 ms; those with an update take `update_ms` more."""
    trace = new_trace(length_ms=20 * count + update_ms * len(updates) + 50)
    at_ms = 0
    for number in range(count):
        length_ms = 20 + (update_ms if number in updates else 0)
        trace.marker(number, ms(at_ms), ms(at_ms + length_ms) - ms(0.1))
        step = Step(trace, at_ms)
        step.kernel(0, 1, 15, op="train/dense/MatMul:MatMul")
        ops = [*ALWAYS, *(UPDATE if number in updates else ADDS_UP)]
        for place, op in enumerate(ops):
            step.kernel(0, 15.5 + 0.4 * place, 15.8 + 0.4 * place, op=op)
        if number in updates:
            step.kernel(0, 20, 19 + update_ms, op=UPDATE[0])
        at_ms += length_ms
    return trace


def steps_of(report: traceview.Report) -> Steps:
    assert report.results.steps is not None
    return report.results.steps


@pytest.mark.parametrize(("updates", "said"), [((3, 7), "3 and 7"), ((1, 2, 7), "1, 2 and 7")])
def test_gradients_accumulate(updates: tuple[int, ...], said: str, tmp_path: Path) -> None:
    accumulating(updates).write(tmp_path)
    report, text = shown(tmp_path)
    assert steps_of(report).optimizer_steps == updates
    assert f"The optimizer ran in some steps only ({said})." in text
    assert "unsteady-steps" not in {finding.code for finding in report.findings}


@pytest.mark.parametrize("updates", [(0, 1, 2, 3, 5, 6, 7, 8), (), (4,)])
def test_an_update_in_most_steps_or_in_one_is_no_accumulation(
    updates: Collection[int], tmp_path: Path
) -> None:
    accumulating(updates, update_ms=2).write(tmp_path)
    assert steps_of(shown(tmp_path)[0]).optimizer_steps == ()


EVALUATION = {
    "after": 2,
    "functions": {"test_step": 20, "log": 1},
    "begun_ns": 5_000_000,
    "ended_ns": 35_000_000,
}


def evaluated(*evaluations: Any) -> dict[str, Any]:
    return {"window": {"evaluations": [*evaluations]}}


def test_an_evaluation_is_named_with_the_step_that_holds_it(tmp_path: Path) -> None:
    path = accumulating(range(9), update_ms=0).write(tmp_path)
    write_sidecar(path, evaluated(EVALUATION, {**EVALUATION, "after": 99}))
    report, text = shown(tmp_path)
    assert steps_of(report).evaluated_steps == (2,)
    assert "An evaluation ran after some steps, whose time holds it (2)." in text


def test_a_step_before_an_evaluation_is_not_unsteady(tmp_path: Path) -> None:
    path = accumulating((2,), update_ms=40).write(tmp_path)
    codes = {finding.code for finding in shown(tmp_path)[0].findings}
    write_sidecar(path, evaluated(EVALUATION))
    assert codes - {finding.code for finding in shown(tmp_path)[0].findings} == {"unsteady-steps"}


@pytest.mark.parametrize(
    ("iterations", "fields", "said"),
    [
        (
            8,
            {"training_loop": "While"},
            "One step here is one call of epoch that runs up to 8 training steps in its graph;",
        ),
        (
            1,
            {"training_loop": "ScanDataset"},
            "One step here is one call of epoch that runs several training steps in its graph;",
        ),
        (
            1,
            {"replica_runs": 10},
            "One step here is one call of epoch that runs up to 10 training steps in its graph;",
        ),
    ],
)
def test_a_call_that_holds_the_training_loop_is_named(
    iterations: int, fields: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = looping(iterations).write(tmp_path)
    function = {**graph({"GPU:0": 3}, name="epoch"), **fields}
    write_sidecar(path, {"placement": {"functions": [function]}})
    report, text = shown(tmp_path)
    assert steps_of(report).loop_function == "epoch"
    assert said in text
