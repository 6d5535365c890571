"""Where are gradients computed, and why on one GPU only? Runs with what `traceview capture` notes beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scripts.cuda_trace import CudaTrace
from scripts.scenarios.collectives import all_reduce
from scripts.scenarios.model import (
    Scenario,
    Step,
    marked_steps,
    ms,
    new_trace,
    scenario,
)

FORWARD = "{scope}model/dense/MatMul:MatMul"
BACKWARD = "gradient_tape/{scope}model/dense/MatMul/MatMul_1:MatMul"
OPTIMIZER = "Adam/Adam/update_{replica}/ResourceApplyAdam:ResourceApplyAdam"
LOCAL = "/job:localhost/replica:0/task:0/device:"
GPU_BYTES = 16_000_000_000

Sidecar = Mapping[str, Any]


def train(step: Step, ordinal: int, phases: str = "fbo") -> None:
    """10 ms of forward, 20 of backward and 5 of the optimizer, of those whose first letter is asked for."""
    scope = f"replica_{ordinal}/" if ordinal else ""
    if "f" in phases:
        step.kernel(ordinal, 2, 12, op=FORWARD.format(scope=scope))
    if "b" in phases:
        step.kernel(ordinal, 12, 32, op=BACKWARD.format(scope=scope))
    if "o" in phases:
        step.kernel(ordinal, 32, 37, op=OPTIMIZER.format(replica=ordinal))


def mirrored(*devices: str, found_by: str = "variables") -> dict[str, Any]:
    """The group `strategy` of a MirroredStrategy on local devices such as `GPU:0`."""
    names = [f"{LOCAL}{device}" for device in devices]
    return {
        "class": "MirroredStrategy",
        "found_by": found_by,
        "replicas": len(names),
        "devices": names,
    }


def graph(ops: Mapping[str, int], *, name: str = "train", alone: int = 0) -> dict[str, Any]:
    """One function of the group `placement`. `alone`: trainable variables that are not mirrored."""
    return {
        "step": name,
        "name": name,
        "ops_per_device": {
            (device if device.startswith("/") else f"{LOCAL}{device}"): count
            for device, count in ops.items()
        },
        "not_mirrored": alone,
    }


def _physical(count: int) -> Sidecar:
    return {
        "physical": [
            {"name": f"/physical_device:GPU:{number}", "type": "GPU", "logical_devices": 1}
            for number in range(count)
        ],
        "logical": [f"/device:GPU:{number}" for number in range(count)],
    }


def _scenario(
    trace: CudaTrace,
    must: Sequence[str] = (),
    reasons: Sequence[str] = (),
    *,
    sidecar: Sidecar | None = None,
) -> Scenario:
    never = {"single-gpu-gradients", "marginal-gpu", "straggler-gpu", "unused-gpu"}
    must_not = sorted(never - set(must))
    return scenario(trace, must, must_not, sidecar=sidecar, gradients={"reasons": tuple(reasons)})


def _one_of_two(sidecar: Sidecar, *reasons: str) -> Scenario:
    """GPU 0 trains, GPU 1 runs a forward pass only, as for validation; the sidecar shows why."""
    trace = new_trace()
    for step in marked_steps(trace):
        train(step, 0)
        step.kernel(1, 2, 12, op=FORWARD.format(scope=""))
    return _scenario(trace, ["single-gpu-gradients"], reasons, sidecar=sidecar)


def strategy_not_used() -> Scenario:
    """The script has a strategy, and trains a model without it."""
    sidecar = {"strategy": mirrored("GPU:0", "GPU:1", found_by="memory")}
    return _one_of_two(sidecar, "unused_strategy")


def built_outside_the_scope() -> Scenario:
    """The strategy is used, and six variables of the model were made before its scope was entered."""
    sidecar = {
        "strategy": mirrored("GPU:0", "GPU:1"),
        "placement": {"functions": [graph({"GPU:0": 90, "GPU:1": 60}, alone=6)]},
    }
    return _one_of_two(sidecar, "outside_scope")


def strategy_of_one_replica() -> Scenario:
    """The strategy was given the first of two GPUs."""
    sidecar = {"strategy": mirrored("GPU:0"), "devices": _physical(2)}
    return _one_of_two(sidecar, "one_replica")


def one_gpu_without_a_strategy() -> Scenario:
    """CUDA_VISIBLE_DEVICES shows one of the machine's four GPUs: nothing says that more were wanted."""
    trace = new_trace()
    for step in marked_steps(trace):
        train(step, 0)
    return _scenario(
        trace,
        sidecar={
            "variables": {"CUDA_VISIBLE_DEVICES": "2"},
            "devices": _physical(1),
        },
    )


def replicas_on_one_gpu() -> Scenario:
    """Both replicas compute their gradients on GPU 0, and GPU 1 only updates its variables: no sidecar is needed."""
    trace = new_trace()
    for step in marked_steps(trace):
        train(step, 0, "f")
        step.kernel(0, 12, 22, op=BACKWARD.format(scope=""))
        step.kernel(0, 22, 32, op=BACKWARD.format(scope="replica_1/"))
        step.kernel(1, 32, 42, op=OPTIMIZER.format(replica=1))
    return _scenario(
        trace,
        ["single-gpu-gradients", "serial-gpus"],
        ["replicas_together"],
    )


def gpu_held_by_another() -> Scenario:
    """Another process holds three quarters of GPU 1, and this job trains on GPU 0 alone."""
    samples = {"t_ns": [0], "memory_total_bytes": [GPU_BYTES]}
    other = {"pid": 7, "memory_bytes": GPU_BYTES * 3 // 4}
    view = {
        "devices": [
            {
                "ordinal": 1,
                "memory_total_bytes": GPU_BYTES,
                "other_processes": [other],
                "samples": samples,
            }
        ],
    }
    found = _one_of_two({"outside_view": view})
    found.truth["findings"]["must"].append("gpu-shared")
    return found


def replicas_reached_on_two() -> Scenario:
    """Of eight replicas, 4 and 6 ran the forward pass before the recording ended; GPU 1 holds 4 GB.

    The host sends to replica 6 what the backward pass will need, and names replica 7 on the way.
    """
    trace = new_trace()
    for ordinal in range(8):
        trace.gpu(ordinal)
    held = 4_000_000_000
    trace.allocation(1, ms(0.5), held_bytes=held, peak_bytes=held, changed_bytes=held)
    for step in marked_steps(trace):
        for ordinal in (4, 6):
            train(step, ordinal, "f")
        step.host("gradient_tape/replica_7/model/dense/Const:Const", 3, 3.1)
    return _scenario(trace, ["unused-gpu"])


def eager_training() -> Scenario:
    """Without a graph the ops of gradients are named like those of the forward pass; the optimizer tells."""
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 2, 32, op="MatMul:MatMul")
            step.kernel(ordinal, 32, 37, op="ResourceApplyAdam:ResourceApplyAdam")
    return _scenario(trace)


def healthy_strategy() -> Scenario:
    """Four GPUs train alike under a strategy whose sidecar shows nothing wrong."""
    trace = new_trace()
    for index, step in enumerate(marked_steps(trace)):
        for ordinal in range(4):
            train(step, ordinal)
        all_reduce(step, [(36, 38)] * 4, instance=100 + index, asked_ms=0.5)
    gpus = [f"GPU:{ordinal}" for ordinal in range(4)]
    return _scenario(
        trace,
        sidecar={
            "strategy": mirrored("GPU:0", "GPU:1", "GPU:2", "GPU:3"),
            "devices": _physical(4),
            "batch": {"global": 256, "per_replica": 64, "found_by": "arguments"},
            "placement": {"functions": [graph(dict.fromkeys(gpus, 60))]},
        },
    )


def active_devices_change() -> Scenario:
    """GPU 1 works in the first two steps, GPU 2 in the last two, GPU 0 in all of them."""
    trace = new_trace()
    for index, step in enumerate(marked_steps(trace)):
        train(step, 0)
        train(step, 1 if index < 2 else 2)
    return _scenario(trace)
