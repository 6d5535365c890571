"""What a host does between step markers: saving and evaluating take the Python around them, and cost whole steps."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

import traceview
from scripts.cuda_trace import CudaTrace
from scripts.scenarios.model import Step, ms, new_trace
from tests.analysis.made import lost_ps
from traceview.analysis.rules.finding import Finding

STEP_MS, PAUSE_MS, LONG_PAUSE_MS = 40, 2, 60
GRAPH, INPUT, SAVE = "FunctionRun", "IteratorGetNext:IteratorGetNext", "SaveV2:SaveV2"


def run_of(
    count: int, events: tuple[str, ...], long_after: Collection[int], pause_ms: int = PAUSE_MS
) -> CudaTrace:
    """Steps of 40 ms with short pauses between, and long ones in which each event takes 10 ms in the middle."""
    trace = new_trace(length_ms=1000)
    start_ms = 0.0
    for number in range(count):
        step = Step(trace, start_ms)
        trace.marker(number, step.at(0), step.at(STEP_MS))
        step.kernel(0, 0, STEP_MS)
        for place, event in enumerate(events if number in long_after else ()):
            step.host(event, STEP_MS + 15 + 10 * place, STEP_MS + 25 + 10 * place)
        start_ms += STEP_MS + (LONG_PAUSE_MS if number in long_after else pause_ms)
    return trace


def findings_of(folder: Path, trace: CudaTrace) -> dict[str, Finding]:
    trace.write(folder)
    return {row.code: row for row in traceview.analyze(folder).findings}


def test_python_around_a_save_is_the_save(tmp_path: Path) -> None:
    found = findings_of(tmp_path, run_of(8, (SAVE,), long_after=(2, 6)))
    assert lost_ps(found["checkpoint-stall"]) == 2 * ms(LONG_PAUSE_MS) // 8
    assert found["checkpoint-stall"].steps == (2, 6)
    assert found["checkpoint-stall"].title == (
        "GPU:0 waits 15.0 of 56.2 ms (27%) for checkpoints, in 2 of 8 used steps"
    )
    assert "It occurs in 2 of 8 used steps, 60.0 ms each." in found["checkpoint-stall"].explanation
    assert "callback-stall" not in found


def test_python_elsewhere_is_other_python(tmp_path: Path) -> None:
    found = findings_of(tmp_path, run_of(8, (SAVE,), long_after=(2,), pause_ms=6))
    assert lost_ps(found["callback-stall"]) == 6 * ms(6) // 8


def test_a_device_that_evaluates_is_not_idle_and_costs_as_much(tmp_path: Path) -> None:
    trace = run_of(8, (INPUT, GRAPH), long_after=(3,))
    Step(trace, 3 * (STEP_MS + PAUSE_MS)).kernel(0, STEP_MS + 30, STEP_MS + 55)
    found = findings_of(tmp_path, trace)
    assert lost_ps(found["validation-stall"]) == ms(55) // 8


@pytest.mark.parametrize("events", [(INPUT,), (GRAPH,)])
def test_input_or_a_graph_alone_is_no_evaluation(events: tuple[str, ...], tmp_path: Path) -> None:
    assert "validation-stall" not in findings_of(tmp_path, run_of(8, events, long_after=(3,)))


@pytest.mark.parametrize(("count", "is_evaluation"), [(3, True), (4, False)])
def test_what_follows_most_steps_is_the_training(
    count: int, is_evaluation: bool, tmp_path: Path
) -> None:
    """Of seven spans between eight markers."""
    found = findings_of(tmp_path, run_of(8, (INPUT, GRAPH), long_after=range(count)))
    assert ("validation-stall" in found) is is_evaluation
