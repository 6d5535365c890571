"""The report says how sure the bounds of steps are, and that a step may hold several training steps."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.cuda_trace import CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import Step, marked_steps, new_trace
from tests.sidecars import write_sidecar
from traceview.analysis.gpu_time.steps import UNSURE
from traceview.document.screen import render
from traceview.report.document import document_of

LOOP = "A loop in the graph runs"
CALL = "One step here is one call"


def looping(iterations: int, *, loops_in: int = 4, updates: int = 0) -> CudaTrace:
    """Four steps; in the first `loops_in` an executor runs a loop of so many iterations; the optimizer runs `updates` times."""
    trace = new_trace()
    line = trace.thread("executor", 77)
    for number, step in enumerate(marked_steps(trace)):
        # In the last one only the condition of the loop runs.
        for iteration in range(iterations + 1 if number < loops_in else 1):
            stats = {"id": 5, "iter_num": iteration}
            start_ms = 1 + iteration
            step.host("ExecutorState::Process", start_ms, start_ms + 0.5, stats, thread=line)
        step.kernel(0, 30, 40)
        for update in range(updates):
            step.kernel(
                0,
                41 + update,
                41.5 + update,
                op="adam/update_0/ResourceApplyAdam:ResourceApplyAdam",
            )
    return trace


def shown(logdir: Path) -> tuple[traceview.Report, str]:
    report = traceview.analyze(logdir)
    text = render(document_of(report, is_brief=True), width=100, color=False)
    return report, " ".join(text.split())


@pytest.mark.parametrize(
    ("name", "method", "reliability"),
    [
        ("plain", "marker", "high"),
        ("keras_batches", "keras", "high"),
        ("stored_steps", "group", "medium"),
        ("function_steps", "function", "medium"),
    ],
)
def test_how_sure_the_bounds_are(name: str, method: str, reliability: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report, text = shown(tmp_path)
    assert report.results.steps is not None
    assert (report.results.steps.method, report.results.steps.reliability) == (method, reliability)
    assert UNSURE not in text


def test_what_is_only_found_by_its_repetition_is_said_to_be_unsure(tmp_path: Path) -> None:
    trace = new_trace(length_ms=400)
    for number in range(6):
        step = Step(trace, 50 * number)
        for place, name in enumerate(("gemm", "relu", "softmax", "adam")):
            step.kernel(0, 2 + 8 * place, 8 + 8 * place, name=name, op=None)
    trace.write(tmp_path)
    report, text = shown(tmp_path)
    assert report.results.steps is not None
    assert (report.results.steps.method, report.results.steps.reliability) == ("period", "low")
    assert UNSURE in text


@pytest.mark.parametrize(
    ("updates", "note"),
    [
        (1, ""),
        (8, f"{CALL} that runs 8 training steps in its graph;"),
        (0, f"{LOOP} 8 times in each step. If it is the training loop"),
    ],
)
def test_the_optimizer_shows_whether_it_is_the_training_loop(
    updates: int, note: str, tmp_path: Path
) -> None:
    looping(8, updates=updates).write(tmp_path)
    report, text = shown(tmp_path)
    assert report.results.steps is not None
    assert report.results.steps.updates_per_step == (updates or None)
    assert note in text
    assert (LOOP in text) is note.startswith(LOOP)


@pytest.mark.parametrize(("iterations", "loops_in"), [(1, 4), (8, 1)])
def test_no_loop_or_one_in_few_steps(iterations: int, loops_in: int, tmp_path: Path) -> None:
    looping(iterations, loops_in=loops_in).write(tmp_path)
    report, text = shown(tmp_path)
    assert report.results.steps is not None
    assert report.results.steps.loop_iterations is None
    assert LOOP not in text


@pytest.mark.parametrize(
    ("recorded", "known", "is_said"),
    [([4], 4, True), ([3, 4], 4, True), ([1], 1, False), ([], None, False), ([0], None, False)],
)
def test_calls_of_several_steps(
    recorded: list[int], known: int | None, is_said: bool, tmp_path: Path
) -> None:
    path = looping(1).write(tmp_path)
    write_sidecar(path, {"window": {"steps_per_call": recorded}})
    report, text = shown(tmp_path)
    assert report.results.steps is not None
    assert report.results.steps.steps_per_call == known
    assert (CALL in text) is is_said
    assert ("up to 4 training steps" in text) is is_said
