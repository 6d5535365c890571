"""Where are gradients computed, and why on one GPU only? Runs with what `traceview capture` notes beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripts.scenarios.collectives import all_reduce
from scripts.scenarios.model import (
    Builder,
    Scenario,
    Step,
    Truth,
    device_truth,
    findings_truth,
    marked_steps,
    ms,
    new_trace,
    steps_truth,
    window_truth,
)

WINDOW_MS = 199.9
FORWARD = "{scope}model/dense/MatMul:MatMul"
BACKWARD = "gradient_tape/{scope}model/dense/MatMul/MatMul_1:MatMul"
OPTIMIZER = "Adam/Adam/update_{replica}/ResourceApplyAdam:ResourceApplyAdam"
DEVICE = "/job:localhost/replica:0/task:0/device:"
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


def strategy(*gpus: int, found_by: str = "variables") -> Sidecar:
    """The group of a MirroredStrategy over these GPUs."""
    names = [f"{DEVICE}GPU:{ordinal}" for ordinal in gpus]
    return {
        "class": "MirroredStrategy",
        "found_by": found_by,
        "replicas": len(names),
        "devices": names,
        "parameter_devices": names,
    }


def graph(ops: Mapping[str, int], *, alone: int = 0) -> Sidecar:
    """The group `placement` of a step whose graph asks for so many ops of each device; `alone`: not mirrored."""
    return {
        "functions": [
            {
                "step": "train",
                "name": "train",
                "op_count": sum(ops.values()),
                "ops_per_device": {f"{DEVICE}{device}": count for device, count in ops.items()},
                "not_mirrored": alone,
            }
        ]
    }


def _physical(count: int) -> Sidecar:
    return {
        "physical": [
            {"name": f"/physical_device:GPU:{number}", "type": "GPU", "logical_devices": 1}
            for number in range(count)
        ],
        "visible": [f"/physical_device:GPU:{number}" for number in range(count)],
        "logical": [f"/device:GPU:{number}" for number in range(count)],
    }


def _truth(devices: Truth, gradients: Truth, must: list[str]) -> Truth:
    never = {"single-gpu-gradients", "marginal-gpu", "straggler-gpu", "unused-gpu"}
    return {
        "windows": window_truth(WINDOW_MS),
        "steps": steps_truth([50, 50, 50, 49.9], 50),
        "device_time": devices,
        "gradients": gradients,
        "findings": findings_truth(must, sorted(never - set(must))),
    }


_TRAINS = device_truth(WINDOW_MS, compute=140, idle=59.9, kernels=12)
_FORWARD_ONLY = device_truth(WINDOW_MS, compute=40, idle=159.9, kernels=4)
_UNUSED = device_truth(WINDOW_MS, status="empty", idle=WINDOW_MS)


def _one_of_two(name: str, sidecar: Sidecar, *reasons: str) -> Scenario:
    """GPU 0 trains, GPU 1 runs a forward pass only, as for validation; the sidecar shows why."""
    trace = new_trace()
    for step in marked_steps(trace):
        train(step, 0)
        step.kernel(1, 2, 12, op=FORWARD.format(scope=""))
    gradients: Truth = {
        "computed": ("GPU:0",),
        "is_single": True,
        "reasons": reasons,
    }
    truth = _truth({"GPU:0": _TRAINS, "GPU:1": _FORWARD_ONLY}, gradients, ["single-gpu-gradients"])
    return Scenario(name, {"host0": trace}, truth, {"host0": sidecar})


def strategy_not_used() -> Scenario:
    """The script has a strategy, and trains a model without it."""
    sidecar = {"strategy": strategy(0, 1, found_by="memory")}
    return _one_of_two("strategy_not_used", sidecar, "unused_strategy")


def built_outside_the_scope() -> Scenario:
    """The strategy is used, and six variables of the model were made before its scope was entered."""
    sidecar = {
        "strategy": strategy(0, 1),
        "placement": graph({"GPU:0": 90, "GPU:1": 60}, alone=6),
    }
    return _one_of_two("built_outside_the_scope", sidecar, "outside_scope")


def pinned_to_one_gpu() -> Scenario:
    """Nine in ten ops of the step ask for GPU 0, as below tf.device, and none for GPU 1."""
    sidecar = {"strategy": strategy(0, 1), "placement": graph({"GPU:0": 90, "CPU:0": 10})}
    return _one_of_two("pinned_to_one_gpu", sidecar, "pinned_ops")


def strategy_of_one_replica() -> Scenario:
    """The strategy was given the first of two GPUs."""
    sidecar = {"strategy": strategy(0), "devices": _physical(2)}
    return _one_of_two("strategy_of_one_replica", sidecar, "one_replica")


def one_gpu_without_a_strategy() -> Scenario:
    """CUDA_VISIBLE_DEVICES shows one of the machine's four GPUs: nothing says that more were wanted."""
    trace = new_trace()
    for step in marked_steps(trace):
        train(step, 0)
    sidecar = {
        "variables": {"CUDA_VISIBLE_DEVICES": "2"},
        "devices": _physical(1),
        "links": {"gpus": [{"name": f"GPU {number}"} for number in range(4)]},
    }
    gradients: Truth = {"computed": ("GPU:0",), "is_single": False, "reasons": ()}
    truth = _truth({"GPU:0": _TRAINS}, gradients, [])
    return Scenario("one_gpu_without_a_strategy", {"host0": trace}, truth, {"host0": sidecar})


def replicas_on_one_gpu() -> Scenario:
    """Both replicas compute their gradients on GPU 0, and GPU 1 only updates its variables: no sidecar is needed."""
    trace = new_trace()
    for step in marked_steps(trace):
        train(step, 0, "f")
        step.kernel(0, 12, 22, op=BACKWARD.format(scope=""))
        step.kernel(0, 22, 32, op=BACKWARD.format(scope="replica_1/"))
        step.kernel(1, 32, 42, op=OPTIMIZER.format(replica=1))
    devices = {
        "GPU:0": device_truth(WINDOW_MS, compute=120, idle=79.9, kernels=12),
        "GPU:1": device_truth(WINDOW_MS, compute=40, idle=159.9, kernels=4),
    }
    gradients: Truth = {
        "computed": ("GPU:0",),
        "is_single": True,
        "reasons": ("replicas_together",),
    }
    truth = _truth(devices, gradients, ["single-gpu-gradients", "serial-gpus"])
    return Scenario("replicas_on_one_gpu", {"host0": trace}, truth)


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
    scenario = _one_of_two("gpu_held_by_another", {"outside_view": view})
    scenario.truth["findings"]["must"].append("gpu-shared")
    return scenario


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
    devices = {
        f"GPU:{ordinal}": _FORWARD_ONLY if ordinal in (4, 6) else _UNUSED for ordinal in range(8)
    }
    devices["GPU:1"] = {**_UNUSED, "status": "memory_only"}
    gradients: Truth = {
        "computed": (),
        "is_single": False,
    }
    truth = _truth(devices, gradients, ["unused-gpu"])
    return Scenario("replicas_reached_on_two", {"host0": trace}, truth)


def eager_training() -> Scenario:
    """Without a graph the ops of gradients are named like those of the forward pass; the optimizer tells."""
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 2, 32, op="MatMul:MatMul")
            step.kernel(ordinal, 32, 37, op="ResourceApplyAdam:ResourceApplyAdam")
    gradients: Truth = {
        "computed": (),
        "is_single": False,
    }
    device = device_truth(WINDOW_MS, compute=140, idle=59.9, kernels=8)
    truth = _truth({"GPU:0": device, "GPU:1": device}, gradients, [])
    return Scenario("eager_training", {"host0": trace}, truth)


def inference() -> Scenario:
    """Two GPUs that only predict."""
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(2):
            train(step, ordinal, "f")
    gradients: Truth = {
        "computed": (),
        "is_single": False,
    }
    truth = _truth({"GPU:0": _FORWARD_ONLY, "GPU:1": _FORWARD_ONLY}, gradients, [])
    truth["findings"]["must_not"].remove("straggler-gpu")
    return Scenario("inference", {"host0": trace}, truth)


def healthy_strategy() -> Scenario:
    """Four GPUs train alike under a strategy whose sidecar shows nothing wrong."""
    trace = new_trace()
    for index, step in enumerate(marked_steps(trace)):
        for ordinal in range(4):
            train(step, ordinal)
        all_reduce(step, [(36, 38)] * 4, instance=100 + index, asked_ms=0.5)
    device = device_truth(
        WINDOW_MS,
        compute=140,
        collective=4,
        totals={"collective": 8},
        idle=55.9,
        kernels=12,
        collectives=4,
    )
    gpus = [f"GPU:{ordinal}" for ordinal in range(4)]
    gradients: Truth = {
        "computed": tuple(gpus),
        "is_single": False,
        "reasons": (),
    }
    sidecar = {
        "strategy": strategy(0, 1, 2, 3),
        "devices": _physical(4),
        "batch": {"global": 256, "per_replica": 64, "found_by": "arguments"},
        "placement": graph(dict.fromkeys(gpus, 60)),
    }
    truth = _truth(dict.fromkeys(gpus, device), gradients, [])
    return Scenario("healthy_strategy", {"host0": trace}, truth, {"host0": sidecar})


def active_devices_change() -> Scenario:
    """GPU 1 works in the first two steps, GPU 2 in the last two, GPU 0 in all of them."""
    trace = new_trace()
    for index, step in enumerate(marked_steps(trace)):
        train(step, 0)
        train(step, 1 if index < 2 else 2)
    half = device_truth(WINDOW_MS, compute=70, idle=129.9, kernels=6)
    truth = _truth(
        {"GPU:0": _TRAINS, "GPU:1": half, "GPU:2": half},
        {"computed": ("GPU:0", "GPU:1", "GPU:2"), "is_single": False},
        [],
    )
    return Scenario("active_devices_change", {"host0": trace}, truth)


CASES: dict[str, Builder] = {
    build.__name__: build
    for build in (
        strategy_not_used,
        built_outside_the_scope,
        pinned_to_one_gpu,
        strategy_of_one_replica,
        one_gpu_without_a_strategy,
        replicas_on_one_gpu,
        gpu_held_by_another,
        replicas_reached_on_two,
        eager_training,
        inference,
        healthy_strategy,
        active_devices_change,
    )
}
