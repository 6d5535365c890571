"""Gradients: which devices compute them, what is known where a part of a step was recorded, and why only one does."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import marked_steps, new_trace
from tests.analysis.made import analyzed, finding_of, the
from tests.sidecars import write_sidecar
from traceview.analysis.exchange.gradients import BACKWARD_RATIO
from traceview.trace.device.op_names import Phase, phase_of

CODE = "single-gpu-gradients"
FORWARD = "model/dense/MatMul:MatMul"
BACKWARD = "gradient_tape/model/dense/MatMul:MatMul"


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        (b"model/dense/MatMul:MatMul", Phase.FORWARD),
        (b"gradient_tape/replica_1/model/dense/MatMul:MatMul", Phase.BACKWARD),
        (b"gradients/model/dense/MatMul_grad/MatMul:MatMul", Phase.BACKWARD),
        (b"model/relu:ReluGrad", Phase.BACKWARD),
        (b"x/conv:Conv2DBackpropFilter", Phase.BACKWARD),
        (b"x/norm:FusedBatchNormGradV3", Phase.BACKWARD),
        (b"x/jit(step)/transpose(jvp(dense))/dot_general", Phase.BACKWARD),
        (b"Adam/Adam/update_1/ResourceApplyAdam:ResourceApplyAdam", Phase.OPTIMIZER),
        (b"sgd/update_0_3/mul:Mul", Phase.OPTIMIZER),
        (b"StatefulPartitionedCall/adam_1/mul:Mul", Phase.OPTIMIZER),
        # As Keras 3 writes the name of `RMSprop`.
        (b"rm_sprop_1/Mul:Mul", Phase.OPTIMIZER),
        (b"sgd/CollectiveReduceV2:CollectiveReduceV2", Phase.REDUCTION),
        (b"x/NcclAllReduce:NcclAllReduce", Phase.REDUCTION),
        (b"adamant/MatMul:MatMul", Phase.FORWARD),
        (b"fusion_3", Phase.UNKNOWN),
        (b"", Phase.UNKNOWN),
    ],
)
def test_names_show_the_phase(name: bytes, phase: Phase) -> None:
    assert phase_of(name) is phase


@pytest.mark.parametrize(("above_ms", "is_reached"), [(0.1, True), (-0.1, False)])
def test_constants_of_the_backward_pass_are_not_it(
    above_ms: float, is_reached: bool, tmp_path: Path
) -> None:
    """20 ms in all."""
    length = 20 * BACKWARD_RATIO + above_ms
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 2, 22 - length)
            if ordinal == 0:
                step.kernel(ordinal, 22 - length, 22, op=BACKWARD)
    assert (finding_of(analyzed(tmp_path, trace), CODE) is not None) == is_reached


@pytest.mark.parametrize(("length_ms", "is_alone"), [(0.3, False), (0.1, True)])
def test_a_device_with_much_other_work_computes_gradients_too(
    length_ms: float, is_alone: bool, tmp_path: Path
) -> None:
    """Those of the first take 1 ms: a fifth of that is no constant, however little it is of the 20 ms of the second."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 3)
        step.kernel(0, 3, 4, op=BACKWARD)
        step.kernel(1, 2, 22 - length_ms)
        step.kernel(1, 22 - length_ms, 22, op=BACKWARD)
    assert (finding_of(analyzed(tmp_path, trace), CODE) is not None) == is_alone


# One device


def reasons(folder: Path) -> tuple[str, ...]:
    finding = the(traceview.analyze(folder), CODE)
    return finding.sentences[3:]


def test_a_strategy_of_one_device_asks_for_it_itself(tmp_path: Path) -> None:
    of_one = SCENARIOS["strategy_of_one_replica"]()
    pinned = SCENARIOS["pinned_to_one_gpu"]().sidecars["host0"]
    (path,) = of_one.write(tmp_path)
    write_sidecar(path, {**of_one.sidecars["host0"], "placement": pinned["placement"]})
    assert reasons(tmp_path) == ("one_replica",)


def test_a_divided_gpu_runs_several_replicas(tmp_path: Path) -> None:
    (path,) = SCENARIOS["replicas_on_one_gpu"]().write(tmp_path)
    physical = [{"type": "GPU", "logical_devices": 2}]
    write_sidecar(path, {"devices": {"physical": physical}})
    assert reasons(tmp_path) == ()
