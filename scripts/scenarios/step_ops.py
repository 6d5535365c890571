"""What else than the model runs in the step? Printing, factoring, sorting, work on the batch, metrics, an optimizer that takes most."""

from __future__ import annotations

from scripts.scenarios.gradients import BACKWARD, FORWARD, OPTIMIZER
from scripts.scenarios.model import (
    Scenario,
    marked_steps,
    new_trace,
    scenario,
)


def printing_in_step() -> Scenario:
    """Steps of 50 ms on the CPU: 20 ms of the model, then 10 ms of formatting and 5 ms of printing.

    2 ms of the printing lie beside the model, so printing alone takes 13 of 50 ms.
    """
    trace = new_trace()
    for step in marked_steps(trace):
        key = round(step.start_ms) + 1
        executor, second = trace.thread("tf_Compute_1", 901), trace.thread("tf_Compute_2", 902)
        step.host("FunctionRun", 1, 1.1, {"_pt": 3, "_p": key})
        consumed = {"_ct": 3, "_c": key, "id": 1, "iter_num": 0}
        for thread in (executor, second):
            step.host("ExecutorState::Process", 2, 40, consumed, thread=thread)
        step.host("model/dense/MatMul:MatMul", 3, 23, thread=executor)
        step.host("StringFormat:StringFormat", 23, 33, thread=executor)
        step.host("PrintV2:PrintV2", 33, 36, thread=executor)
        step.host("PrintV2_1:PrintV2", 21, 23, thread=second)
    return scenario(trace, ["host-op-in-step"], ["optimizer-bound"])


def factoring_in_step() -> Scenario:
    """Steps of 50 ms on two replicas of a CPU: 20 ms of the model, then 16 ms of singular values and 2 ms of the model."""
    trace = new_trace()
    for step in marked_steps(trace, marker_ms=50):
        for number, scope in enumerate(("", "replica_1/")):
            thread = trace.thread(f"tf_Compute_{number + 1}", 901 + number)
            key = round(step.start_ms) + number + 1
            step.host("FunctionRun", 1, 1.1, {"_pt": 3, "_p": key})
            consumed = {"_ct": 3, "_c": key, "id": 1, "iter_num": 0}
            step.host("ExecutorState::Process", 2, 40, consumed, thread=thread)
            step.host(f"{scope}model/dense/MatMul:MatMul", 2, 22, thread=thread)
            step.host(f"{scope}model/Svd:Svd", 22, 38, thread=thread)
            step.host(f"{scope}model/AddN:AddN", 38, 40, thread=thread)
    return scenario(trace, ["matrix-factoring"], ["host-op-in-step"])


def sorting_in_step() -> Scenario:
    """Steps of 50 ms on one GPU: 20 ms of the model, then 16 ms of a sort."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 22, op="model/dense/MatMul:MatMul")
        step.kernel(0, 22, 38, op="model/rank/TopKV2:TopKV2")
    return scenario(trace, ["costly-ops"], ["matrix-factoring"])


def misplaced_in_step() -> Scenario:
    """Steps of 50 ms on the CPU: 12 ms of resizing the batch, 14 ms of the model, and 16 ms of sorting for a metric, 4 of them beside it."""
    trace = new_trace()
    for step in marked_steps(trace):
        key = round(step.start_ms) + 1
        executor, second = trace.thread("tf_Compute_1", 901), trace.thread("tf_Compute_2", 902)
        step.host("FunctionRun", 1, 1.1, {"_pt": 3, "_p": key})
        consumed = {"_ct": 3, "_c": key, "id": 1, "iter_num": 0}
        for thread in (executor, second):
            step.host("ExecutorState::Process", 2, 40, consumed, thread=thread)
        step.host("resizing/Scale:ScaleAndTranslate", 2, 14, thread=executor)
        step.host("model/dense/MatMul:MatMul", 14, 24, thread=executor)
        step.host("metric/sort/TopKV2:TopKV2", 24, 40, thread=second)
        step.host("model/dense/Relu:Relu", 28, 32, thread=executor)
    graphs = {"batch_ops": ["resizing/Scale"], "untrained_ops": ["metric/sort/TopKV2"]}
    must = ["batch-work-in-step", "untrained-compute"]
    return scenario(trace, must, ["costly-ops"], sidecar={"graphs": graphs})


def mostly_optimizer() -> Scenario:
    """Steps of 50 ms on one GPU: 4 ms forward, 8 ms backward, 30 ms of the optimizer."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 6, op=FORWARD.format(scope=""))
        step.kernel(0, 6, 14, op=BACKWARD.format(scope=""))
        step.kernel(0, 14, 44, op=OPTIMIZER.format(replica=0))
    return scenario(trace, ["optimizer-bound"], ["host-op-in-step"])
