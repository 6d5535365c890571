"""Ops that Python runs one by one between steps are to go into a graph, if that saves most of their time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.scenarios.model import Step, marked_steps, new_trace
from traceview.analysis.rules.finding import Finding

PERIOD_MS, SPACING_MS = 50, 0.4


def eager(step: Step, start_ms: float, call_ms: float, own_ms: float, *, is_graph: bool) -> None:
    """One call of an op from Python, in which the op itself runs for a part, as TensorFlow 2.21 records it."""
    step.host("EagerLocalExecute: AddV2", start_ms, start_ms + call_ms)
    step.host("EagerKernelExecute", start_ms + 0.01, start_ms + 0.01 + own_ms)
    if is_graph:
        step.host("FunctionRun", start_ms + 0.02, start_ms + own_ms)


def found(
    folder: Path,
    *,
    count: int = 70,
    first_ms: float = 21,
    spacing_ms: float = SPACING_MS,
    own_ms: float = 0.05,
    is_graph: bool = False,
    marker_ms: float = 20,
) -> Finding:
    """The finding on what follows the markers of steps of 50 ms."""
    trace = new_trace()
    for step in marked_steps(trace, period_ms=PERIOD_MS, marker_ms=marker_ms):
        step.kernel(0, 0, marker_ms)
        for place in range(count):
            eager(step, first_ms + spacing_ms * place, 0.25, own_ms, is_graph=is_graph)
    trace.write(folder)
    findings = traceview.analyze(folder).findings
    return next(finding for finding in findings if finding.code == "callback-stall")


def test_a_graph_saves_the_time_between_ops(tmp_path: Path) -> None:
    finding = found(tmp_path)
    assert finding.action.startswith("Put the ops between steps into a graph: @tf.function ")
    # After three of four steps 69 times 0.4 ms and a call of 0.25 ms, of which 70 times 0.05 ms are the ops.
    assert "Python runs 70 ops per step one by one" in finding.explanation
    assert "most often AddV2. That takes 20.9 ms, of which the ops themselves take 2.62 ms." in (
        finding.explanation
    )
    values = {evidence.metric: evidence.value for evidence in finding.evidence}
    assert values["eager_ops_per_step"] == 70


def test_from_twenty_ops_on_a_graph_is_worth_it(tmp_path: Path) -> None:
    finding = found(tmp_path, count=20, marker_ms=41, first_ms=41.5)
    assert finding.action.startswith("Put the ops between steps into a graph")


@pytest.mark.parametrize(
    "shape",
    [
        {"count": 19, "marker_ms": 41, "first_ms": 41.5},
        {"own_ms": 0.2},
        {"is_graph": True},
        # Python of its own between the ops.
        {"count": 35, "spacing_ms": 0.8},
        # Within the markers.
        {"count": 40, "first_ms": 1},
    ],
    ids=str,
)
def test_otherwise_it_is_any_python(shape: dict[str, Any], tmp_path: Path) -> None:
    finding = found(tmp_path, **shape)
    assert "a graph" not in finding.action
    assert "eager_ops_per_step" not in {evidence.metric for evidence in finding.evidence}
