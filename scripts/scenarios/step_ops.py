"""What else than the model runs in the step? Printing, factoring, sorting, an optimizer that takes most of the compute."""

from __future__ import annotations

from scripts.scenarios.gradients import BACKWARD, FORWARD, OPTIMIZER
from scripts.scenarios.model import (
    Builder,
    Scenario,
    device_truth,
    findings_truth,
    marked_steps,
    new_trace,
    steps_truth,
    window_truth,
)

WINDOW_MS = 199.9


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
    return Scenario(
        "printing_in_step",
        {"host0": trace},
        {
            "windows": window_truth(WINDOW_MS),
            "steps": steps_truth([50, 50, 50, 49.9], 50),
            "device_time": {
                "replica:0": device_truth(WINDOW_MS, compute=132, idle=67.9, kernels=16)
            },
            "findings": findings_truth(must=["host-op-in-step"], must_not=["optimizer-bound"]),
        },
    )


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
    return Scenario(
        "factoring_in_step",
        {"host0": trace},
        {
            "windows": window_truth(200),
            "steps": steps_truth([50] * 4, 50),
            "device_time": dict.fromkeys(
                ("replica:0", "replica:1"), device_truth(200, compute=152, idle=48, kernels=12)
            ),
            "findings": findings_truth(must=["matrix-factoring"], must_not=["host-op-in-step"]),
        },
    )


def sorting_in_step() -> Scenario:
    """Steps of 50 ms on one GPU: 20 ms of the model, then 16 ms of a sort."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 22, op="model/dense/MatMul:MatMul")
        step.kernel(0, 22, 38, op="model/rank/TopKV2:TopKV2")
    return Scenario(
        "sorting_in_step",
        {"host0": trace},
        {
            "windows": window_truth(WINDOW_MS),
            "steps": steps_truth([50, 50, 50, 49.9], 50),
            "device_time": {"GPU:0": device_truth(WINDOW_MS, compute=144, idle=55.9, kernels=8)},
            "findings": findings_truth(must=["costly-ops"], must_not=["matrix-factoring"]),
        },
    )


def mostly_optimizer() -> Scenario:
    """Steps of 50 ms on one GPU: 4 ms forward, 8 ms backward, 30 ms of the optimizer."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 6, op=FORWARD.format(scope=""))
        step.kernel(0, 6, 14, op=BACKWARD.format(scope=""))
        step.kernel(0, 14, 44, op=OPTIMIZER.format(replica=0))
    return Scenario(
        "mostly_optimizer",
        {"host0": trace},
        {
            "windows": window_truth(WINDOW_MS),
            "steps": steps_truth([50, 50, 50, 49.9], 50),
            "device_time": {"GPU:0": device_truth(WINDOW_MS, compute=168, idle=31.9, kernels=12)},
            "findings": findings_truth(must=["optimizer-bound"], must_not=["host-op-in-step"]),
        },
    )


CASES: dict[str, Builder] = {
    "printing_in_step": printing_in_step,
    "factoring_in_step": factoring_in_step,
    "sorting_in_step": sorting_in_step,
    "mostly_optimizer": mostly_optimizer,
}
