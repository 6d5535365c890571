"""Ops that run many times in each compiled step, and are short, are a loop; what dispatches them is a part of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.scenarios.model import marked_steps, ms, new_trace
from tests.analysis.made import analyzed, finding_of, loss_of
from traceview.analysis.rules.finding import Finding

GAP_MS = 0.16


def found(
    folder: Path,
    *,
    turns: int = 16,
    length_ms: float = 0.04,
    other_ms: float = 10.0,
    gap_ms: float = GAP_MS,
    scope: str = "map/while",
    code: str = "loop-bound",
    sidecar: dict[str, Any] | None = None,
) -> Finding | None:
    """Four steps of 50 ms on one device; two ops of a loop come again and again, with gaps in which the host dispatches."""
    trace = new_trace()
    for step in marked_steps(trace):
        executor = trace.thread("tf_Compute_1", 901)
        step.host("FunctionRun", 1, 1.1, {"_pt": 3, "_p": round(step.start_ms) * 10})
        at_ms, each_ms = 12.0, length_ms + gap_ms
        runs: dict[str, Any] = {"_ct": 3, "_c": round(step.start_ms) * 10, "id": 1, "iter_num": 0}
        step.host("ExecutorState::Process", 1.2, 40, runs, thread=executor)
        step.host("model/dense/MatMul:MatMul", 2, 2 + other_ms, thread=executor)
        for turn in range(turns):
            for place, op in enumerate((f"{scope}/Exp:Exp", f"{scope}/Add:AddV2")):
                begin_ms = at_ms + (2 * turn + place) * each_ms + gap_ms
                step.host(op, begin_ms, begin_ms + length_ms, thread=executor)
    return finding_of(analyzed(folder, trace, sidecar=sidecar), code)


def test_a_loop_costs_its_ops_and_their_dispatch(tmp_path: Path) -> None:
    finding = found(tmp_path)
    assert finding is not None
    assert "in loops of small ops, 16 iterations in a step: " in finding.title
    assert finding.title.startswith("replica:0 spends")
    assert loss_of(finding).ps_per_step == pytest.approx(32 * ms(0.04 + GAP_MS) * 12 / 12, rel=0.1)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"turns": 15}, id="few turns"),
        pytest.param({"length_ms": 0.06}, id="long ops"),
        pytest.param({"other_ms": 0.01, "turns": 64}, id="the loop is the step"),
    ],
)
def test_what_is_no_loop_of_small_ops(changes: dict[str, Any], tmp_path: Path) -> None:
    assert found(tmp_path, **changes) is None


def test_vectorized_maps_that_fall_back_are_told_so(tmp_path: Path) -> None:
    finding = found(tmp_path, scope="loop_body/CropAndResize/pfor/while")
    assert finding is not None
    assert "tf.vectorized_map runs a loop" in finding.action


@pytest.mark.parametrize(
    ("length_ms", "is_found"), [(0.32, True), (0.3, False)], ids=["enough", "little"]
)
def test_a_loop_whose_iterations_need_those_before(
    length_ms: float, is_found: bool, tmp_path: Path
) -> None:
    """24 iterations of two ops take 15.4 of 50 ms, or 14.4; the model may be made of them."""
    carried = {"graphs": {"carried_ops": ["map/while/Exp", "map/while/Add"]}}
    changes: dict[str, Any] = {"turns": 24, "length_ms": length_ms, "gap_ms": 0.01}
    finding = found(tmp_path, **changes, sidecar=carried)
    assert (finding is not None) == is_found
    if finding is not None:
        assert "in loops of 24 iterations per step, each after the one before" in finding.title
        assert (finding.severity, finding.confidence) == ("warning", "medium")


def test_what_the_loop_dispatches_is_told_once(tmp_path: Path) -> None:
    assert found(tmp_path, code="host-bound") is None


@pytest.mark.parametrize(
    ("field", "code"), [("untrained_ops", "untrained-compute"), ("batch_ops", "batch-work-in-step")]
)
def test_ops_that_a_step_could_be_without_cost_their_dispatch(
    field: str, code: str, tmp_path: Path
) -> None:
    """15 times two ops of 0.04 ms, each after 0.16; the op that is needed waits for its dispatch by itself."""
    sidecar = {"graphs": {field: ["map/while/Exp", "map/while/Add"]}}
    finding = found(tmp_path / "left out", turns=15, code=code, sidecar=sidecar)
    assert finding is not None
    assert loss_of(finding).ps_per_step == pytest.approx(30 * ms(0.04 + GAP_MS), rel=0.1)
    assert "The loss holds their dispatch." in finding.explanation
    assert found(tmp_path / "dispatch", turns=15, code="host-bound", sidecar=sidecar) is None
    assert found(tmp_path / "all", turns=15, code="host-bound") is not None


def test_what_an_op_waits_for_beside_its_dispatch_is_not_its_own(tmp_path: Path) -> None:
    """Gaps of 0.22 ms are longer than the dispatch of an op."""
    sidecar = {"graphs": {"untrained_ops": ["map/while/Exp", "map/while/Add"]}}
    assert found(tmp_path, turns=15, gap_ms=0.22, code="untrained-compute", sidecar=sidecar) is None
