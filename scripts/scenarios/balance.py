"""Who keeps the others waiting, and why? Runs that differ in how evenly the devices work."""

from __future__ import annotations

from scripts.cuda_trace import NCCL_NAME, PROFILE_START_NS, V100_STATS
from scripts.scenarios.devices import slower_gpu
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
ALL_REDUCE_OP = "CollectiveReduceV2:CollectiveReduceV2"
T4_STATS = {**V100_STATS, "gpu_device_name": "Tesla T4", "clock_rate": 1_590_000, "core_count": 40}


def _truth(devices: Truth, **others: Truth) -> Truth:
    return {
        "windows": window_truth(WINDOW_MS),
        "steps": steps_truth([50, 50, 50, 49.9], 50),
        "device_time": devices,
        **others,
    }


def _all_reduce(step: Step, ordinal: int, start_ms: float, end_ms: float) -> None:
    step.kernel(ordinal, start_ms, end_ms, name=NCCL_NAME, op=ALL_REDUCE_OP, stream=22)


def more_work() -> Scenario:
    """GPU 1 runs one kernel more than GPU 0 in every step, 10 ms long; GPU 0 waits for it in the all-reduce."""
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 2, 32)
        step.kernel(1, 32, 42, name="reduce_kernel")
        _all_reduce(step, 0, 32, 46)
        _all_reduce(step, 1, 42, 46)
    devices = {
        "GPU:0": device_truth(
            WINDOW_MS, compute=120, collective=56, idle=23.9, kernels=4, collectives=4
        ),
        "GPU:1": device_truth(
            WINDOW_MS, compute=160, collective=16, idle=23.9, kernels=8, collectives=4
        ),
    }
    balance: Truth = {
        "concurrency_ratio": 1.0,
        "straggler": {"device": "GPU:1", "reason": "work", "share": 1.0},
        "devices": {
            "GPU:0": {
                "compute_ps_per_step": ms(30),
                "waits_ps_per_step": ms(10),
                "waited_for_ps_per_step": 0,
            },
            "GPU:1": {
                "compute_ps_per_step": ms(40),
                "waits_ps_per_step": 0,
                "waited_for_ps_per_step": ms(10),
            },
        },
    }
    truth = _truth(devices, balance=balance, findings=findings_truth(["straggler-gpu"]))
    return Scenario("more_work", {"host0": trace}, truth)


def late_start() -> Scenario:
    """GPU 1 of three computes as long as the others and begins 8 ms later; they wait in the all-reduce."""
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(3):
            late_ms = 8 if ordinal == 1 else 0
            step.kernel(ordinal, 2 + late_ms, 32 + late_ms, launch_ms=1.9 + late_ms)
            _all_reduce(step, ordinal, 32 + late_ms, 44)
    early = device_truth(WINDOW_MS, compute=120, collective=48, idle=31.9, kernels=4, collectives=4)
    late = device_truth(WINDOW_MS, compute=120, collective=16, idle=63.9, kernels=4, collectives=4)
    balance: Truth = {
        "straggler": {"device": "GPU:1", "reason": "start", "share": 1.0},
        "devices": {
            "GPU:0": {"waits_ps_per_step": ms(8)},
            "GPU:1": {"waits_ps_per_step": 0, "waited_for_ps_per_step": ms(8)},
        },
    }
    truth = _truth(
        {"GPU:0": early, "GPU:1": late, "GPU:2": early},
        balance=balance,
        findings=findings_truth(["straggler-gpu"], ["serial-gpus"]),
    )
    return Scenario("late_start", {"host0": trace}, truth)


def late_batch() -> Scenario:
    """The thread of GPU 1 gets its batch 10 ms into each step, so that GPU 0 waits 10 ms in the all-reduce."""
    trace = new_trace()
    thread = trace.thread("tf_gpu_private_1", 7)
    for step in marked_steps(trace):
        step.host("IteratorGetNext:IteratorGetNext", 0.1, 11.9, thread=thread)
        step.kernel(0, 2, 32, launch_ms=1.9)
        step.kernel(1, 12, 42, launch_ms=11.95, launch_thread=thread)
        _all_reduce(step, 0, 32, 46)
        _all_reduce(step, 1, 42, 46)
    devices = {
        "GPU:0": device_truth(
            WINDOW_MS, compute=120, collective=56, idle=23.9, kernels=4, collectives=4
        ),
        "GPU:1": device_truth(
            WINDOW_MS, compute=120, collective=16, idle=63.9, kernels=4, collectives=4
        ),
    }
    balance: Truth = {
        "straggler": {"device": "GPU:1", "reason": "input"},
    }
    truth = _truth(
        devices,
        balance=balance,
        findings=findings_truth(["input-bound"]),
    )
    return Scenario("late_batch", {"host0": trace}, truth)


def two_of_eight() -> Scenario:
    """Two of eight GPUs train alike; the strategy was given no more."""
    trace = new_trace()
    for ordinal in range(8):
        trace.gpu(ordinal)
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 2, 42)
    used = device_truth(WINDOW_MS, compute=160, idle=39.9, kernels=4)
    unused = device_truth(WINDOW_MS, status="empty", idle=WINDOW_MS)
    devices = {f"GPU:{ordinal}": used if ordinal < 2 else unused for ordinal in range(8)}
    balance: Truth = {
        "concurrency_ratio": 1.0,
        "straggler": None,
    }
    truth = _truth(
        devices,
        balance=balance,
        findings=findings_truth(["unused-gpu"], ["straggler-gpu", "serial-gpus"]),
    )
    return Scenario("two_of_eight", {"host0": trace}, truth)


def mixed_models() -> Scenario:
    """A V100 and a T4 get equal batches: the T4 takes 40 ms for what the V100 does in 20."""
    trace = new_trace()
    trace.gpu(0)
    trace.gpu(1, stats=T4_STATS)
    for step in marked_steps(trace):
        step.kernel(0, 2, 22)
        step.kernel(1, 2, 42)
        _all_reduce(step, 0, 22, 46)
        _all_reduce(step, 1, 42, 46)
    devices = {
        "GPU:0": device_truth(
            WINDOW_MS, compute=80, collective=96, idle=23.9, kernels=4, collectives=4
        ),
        "GPU:1": device_truth(
            WINDOW_MS, compute=160, collective=16, idle=23.9, kernels=4, collectives=4
        ),
    }
    balance: Truth = {
        "straggler": {"device": "GPU:1", "reason": "slower"},
    }
    truth = _truth(
        devices,
        balance=balance,
        findings=findings_truth(["straggler-gpu"]),
    )
    return Scenario("mixed_models", {"host0": trace}, truth)


def throttled_gpu() -> Scenario:
    """GPU 2 of four is hot: its driver runs it at 900 of 1530 MHz in half of the samples, and the others wait."""
    slower = slower_gpu()
    times = [PROFILE_START_NS + 10_000_000 * number for number in range(20)]
    devices = [
        {
            "ordinal": ordinal,
            "sm_clock_max_hz": 1_530_000_000,
            "other_processes": [],
            "samples": {
                "t_ns": times,
                "sm_clock_hz": [900_000_000 if ordinal == 2 else 1_530_000_000] * 20,
                # Software thermal slowdown, by nvml.h.
                "throttle_reasons": [0x20 if ordinal == 2 and n % 2 else 0 for n in range(20)],
            },
        }
        for ordinal in range(4)
    ]
    truth: Truth = {
        **slower.truth,
        "outside_view": {
            "GPU:0": {"throttled_ratio": 0.0, "sm_clock_hz": 1_530_000_000},
            "GPU:2": {
                "throttled_ratio": 0.5,
                "throttle_reasons": {"software thermal slowdown": 0.5},
                "sm_clock_hz": 900_000_000,
            },
        },
        "findings": findings_truth(["straggler-gpu", "gpu-throttled"]),
    }
    view = {"devices": devices}
    return Scenario("throttled_gpu", slower.traces, truth, {"host0": {"outside_view": view}})


def empty_last_batch() -> Scenario:
    """Of the last batch one example is left: GPU 0 computes 4 ms on it, and GPU 1 0.5 ms on nothing."""
    trace = new_trace()
    for index, step in enumerate(marked_steps(trace)):
        step.kernel(0, 2, 42 if index < 3 else 6)
        step.kernel(1, 2, 42 if index < 3 else 2.5)
    devices = {
        "GPU:0": device_truth(WINDOW_MS, compute=124, idle=75.9, kernels=4),
        "GPU:1": device_truth(WINDOW_MS, compute=120.5, idle=79.4, kernels=4),
    }
    balance: Truth = {
        "straggler": None,
    }
    truth = _truth(
        devices,
        balance=balance,
        findings=findings_truth([], ["straggler-gpu", "serial-gpus", "marginal-gpu"]),
    )
    return Scenario("empty_last_batch", {"host0": trace}, truth)


def uneven_last_batch() -> Scenario:
    """Of the last, short batch GPU 0 gets its whole part, and GPU 1 nothing."""
    trace = new_trace()
    for index, step in enumerate(marked_steps(trace)):
        for ordinal in range(2):
            if index < 3 or ordinal == 0:
                step.kernel(ordinal, 2, 42)
    devices = {
        "GPU:0": device_truth(WINDOW_MS, compute=160, idle=39.9, kernels=4),
        "GPU:1": device_truth(WINDOW_MS, compute=120, idle=79.9, kernels=3),
    }
    balance: Truth = {
        "straggler": None,
    }
    truth = _truth(
        devices,
        balance=balance,
        findings=findings_truth([], ["straggler-gpu", "serial-gpus", "marginal-gpu"]),
    )
    return Scenario("uneven_last_batch", {"host0": trace}, truth)


def _training(step: Step, ordinal: int, phases: str) -> None:
    """10 ms of forward, 20 of backward and 5 of the optimizer; `phases` holds their first letters."""
    if "f" in phases:
        step.kernel(ordinal, 2, 12, op="model/dense/MatMul:MatMul")
    if "b" in phases:
        step.kernel(ordinal, 12, 32, op="gradient_tape/model/dense/MatMul/MatMul_1:MatMul")
    if "o" in phases:
        step.kernel(ordinal, 32, 37, op="Adam/Adam/ResourceApplyAdam:ResourceApplyAdam")


def gradients_on_one() -> Scenario:
    """GPU 0 trains; GPU 1 only runs a forward pass, as for validation."""
    trace = new_trace()
    for step in marked_steps(trace):
        _training(step, 0, "fbo")
        _training(step, 1, "f")
    devices = {
        "GPU:0": device_truth(WINDOW_MS, compute=140, idle=59.9, kernels=12),
        "GPU:1": device_truth(WINDOW_MS, compute=40, idle=159.9, kernels=4),
    }
    gradients: Truth = {
        "computed": ("GPU:0",),
        "is_single": True,
        "reasons": (),
    }
    truth = _truth(
        devices,
        gradients=gradients,
        findings=findings_truth(["single-gpu-gradients"], ["marginal-gpu", "straggler-gpu"]),
    )
    return Scenario("gradients_on_one", {"host0": trace}, truth)


def data_parallel() -> Scenario:
    """Two GPUs train alike, forward, backward and optimizer: nothing to complain about."""
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(2):
            _training(step, ordinal, "fbo")
            _all_reduce(step, ordinal, 37, 40)
    device = device_truth(
        WINDOW_MS, compute=140, collective=12, idle=47.9, kernels=12, collectives=4
    )
    gradients: Truth = {
        "computed": ("GPU:0", "GPU:1"),
        "is_single": False,
    }
    truth = _truth(
        {"GPU:0": device, "GPU:1": device},
        balance={"straggler": None},
        gradients=gradients,
        findings=findings_truth([], ["single-gpu-gradients", "straggler-gpu"]),
    )
    return Scenario("data_parallel", {"host0": trace}, truth)


CASES: dict[str, Builder] = {
    build.__name__: build
    for build in (
        more_work,
        late_start,
        late_batch,
        two_of_eight,
        mixed_models,
        throttled_gpu,
        empty_last_batch,
        uneven_last_batch,
        gradients_on_one,
        data_parallel,
    )
}
