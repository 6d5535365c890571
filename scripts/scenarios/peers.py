"""Where did other tools answer wrongly? Cases A to G, on which XProf 2.24.2 was seen to be wrong.

All share one scaffold: no `Task Environment`, GPU planes numbered from 10, four steps of 50 ms
whose markers last 49.9 ms, so that the window is 199.9 ms, and one `cuLaunchKernel` per device
event at the start of its step.
"""

from __future__ import annotations

from scripts.cuda_trace import NCCL_NAME, CudaTrace
from scripts.scenarios.model import (
    Builder,
    Scenario,
    Step,
    Truth,
    device_truth,
    findings_truth,
    idle_truth,
    marked_steps,
    steps_truth,
    window_truth,
)

WINDOW_MS = 199.9
BF16_KERNEL = "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"


def _scaffold(gpu_count: int) -> tuple[CudaTrace, list[Step]]:
    trace = CudaTrace("host0")
    for ordinal in range(gpu_count):
        trace.gpu(ordinal, plane_id=10 + ordinal)
    return trace, marked_steps(trace, launch_name="cuLaunchKernel")


def _truth(devices: Truth, idle: Truth, **others: Truth) -> Truth:
    return {
        "windows": window_truth(WINDOW_MS),
        "steps": steps_truth([50, 50, 50, 49.9], 50),
        "device_time": devices,
        "idle": idle,
        **others,
    }


def _unused() -> Truth:
    return device_truth(WINDOW_MS, status="empty", idle=199.9)


def _all_unused() -> Truth:
    return idle_truth(states={"no_work": 199.9})


def h2d_as_compute() -> Scenario:
    """A: copies from pinned memory fill half of each step; XProf counts them as compute."""
    trace, steps = _scaffold(2)
    for step in steps:
        step.copy(0, "H2D", 2, 27, size=100_000_000)
        step.kernel(0, 30, 40, details=None)
    gpu0 = device_truth(WINDOW_MS, compute=40, h2d=100, idle=59.9)
    truth = _truth(
        {"GPU:0": gpu0, "GPU:1": _unused()},
        {"GPU:0": idle_truth(states={}), "GPU:1": _all_unused()},
        findings=findings_truth(["h2d-exposed", "unused-gpu"], ["input-bound"]),
    )
    return Scenario({"host0": trace}, truth)


def p2p_and_nccl() -> Scenario:
    """B: a peer copy and an all-reduce; XProf counts the peer copy as compute."""
    trace, steps = _scaffold(2)
    nccl = {"name": NCCL_NAME, "op": "NcclAllReduce:NcclAllReduce", "details": None}
    for step in steps:
        step.copy(0, "P2P", 2, 14, size=100, dest=1)
        step.kernel(0, 15, 25, stream=22, **nccl)
        step.kernel(0, 30, 40, details=None)
        step.kernel(1, 15, 25, stream=22, **nccl)
        step.kernel(1, 30, 40, details=None)
    gpu0 = device_truth(WINDOW_MS, compute=40, collective=40, d2d=48, idle=71.9)
    gpu1 = device_truth(WINDOW_MS, compute=40, collective=40, idle=119.9)
    truth = _truth(
        {"GPU:0": gpu0, "GPU:1": gpu1},
        {
            "GPU:0": idle_truth(states={"no_work": 0}),
            "GPU:1": idle_truth(states={"no_work": 0}),
        },
        findings=findings_truth(["collective-exposed", "d2d-copies"], ["unused-gpu"]),
    )
    return Scenario({"host0": trace}, truth)


def straggler() -> Scenario:
    """C: one GPU works eight times as long as the other; XProf sees only the busy one."""
    trace, steps = _scaffold(2)
    for step in steps:
        step.kernel(0, 2, 42, details=None)
        step.kernel(1, 2, 7, details=None)
    truth = _truth(
        {
            "GPU:0": device_truth(WINDOW_MS, compute=160, idle=39.9),
            "GPU:1": device_truth(WINDOW_MS, status="marginal", compute=20, idle=179.9),
        },
        {
            "GPU:0": idle_truth(states={"no_work": 0}),
            "GPU:1": idle_truth(states={"no_work": 4 * 35}),
        },
        balance={"concurrency_ratio": 1.0},
        findings=findings_truth(["marginal-gpu"], ["straggler-gpu", "serial-gpus", "unused-gpu"]),
    )
    return Scenario({"host0": trace}, truth)


def one_of_eight() -> Scenario:
    """D: eight GPUs visible, one used; XProf writes the same report as for C."""
    trace, steps = _scaffold(8)
    for step in steps:
        step.kernel(0, 2, 42, details=None)
    unused = [f"GPU:{ordinal}" for ordinal in range(1, 8)]
    truth = _truth(
        {
            "GPU:0": device_truth(WINDOW_MS, compute=160, idle=39.9),
            **{device: _unused() for device in unused},
        },
        {
            "GPU:0": idle_truth(states={"no_work": 0}),
            **{device: _all_unused() for device in unused},
        },
        balance={"concurrency_ratio": None},
        findings=findings_truth(["unused-gpu"], ["marginal-gpu", "serial-gpus"]),
    )
    return Scenario({"host0": trace}, truth)


def overlapping_streams() -> Scenario:
    """E: two streams busy at once; XProf's op table adds them up and finds no idle time."""
    trace, steps = _scaffold(1)
    for step in steps:
        step.kernel(0, 2, 47, stream=20, details=None)
        step.kernel(0, 2, 47, stream=30, details=None)
    truth = _truth(
        {"GPU:0": device_truth(WINDOW_MS, compute=180, idle=19.9)},
        {"GPU:0": idle_truth(states={"no_work": 0})},
    )
    return Scenario({"host0": trace}, truth)


def bf16() -> Scenario:
    """F: all compute is bfloat16 on tensor cores; XProf reports 0 % 16-bit and advises it."""
    trace, steps = _scaffold(1)
    for step in steps:
        step.kernel(0, 2, 42, name=BF16_KERNEL, details=None)
    truth = _truth(
        {"GPU:0": device_truth(WINDOW_MS, compute=160, idle=39.9)},
        {"GPU:0": idle_truth(states={"no_work": 0})},
        precision={"GPU:0": {"bf16": 160_000_000_000}, "tensor_core_ratio": 1.0},
        findings=findings_truth([], ["low-precision-unused"]),
    )
    return Scenario({"host0": trace}, truth)


def starved_input() -> Scenario:
    """G: the host waits 30 of 50 ms for input; XProf shortens the step and sees no wait."""
    trace, steps = _scaffold(2)
    for step in steps:
        step.host("IteratorGetNext:IteratorGetNext", 1, 31)
        step.kernel(0, 32, 42, launch_ms=31.5, details=None)
        step.kernel(1, 32, 42, launch_ms=31.5, details=None)
    device = device_truth(WINDOW_MS, compute=40, idle=159.9)
    idle = idle_truth(states={"input": 120, "no_work": 0})
    truth = _truth(
        {"GPU:0": device, "GPU:1": device},
        {"GPU:0": idle, "GPU:1": idle},
        input={"input_ratio": 0.6},
        balance={"concurrency_ratio": 1.0},
        findings=findings_truth(["input-bound"], ["serial-gpus", "marginal-gpu"]),
    )
    return Scenario({"host0": trace}, truth)


CASES: dict[str, Builder] = {
    "A": h2d_as_compute,
    "B": p2p_and_nccl,
    "C": straggler,
    "D": one_of_eight,
    "E": overlapping_streams,
    "F": bf16,
    "G": starved_input,
}
