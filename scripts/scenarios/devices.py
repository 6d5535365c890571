"""Which GPUs were used, how evenly, and for what? Runs that differ in what the devices did."""

from __future__ import annotations

from scripts.cuda_trace import PROFILE_START_NS, U64, CudaTrace, Line, Ref, Stats
from scripts.scenarios.model import (
    ORIGIN_PS,
    Scenario,
    Step,
    Truth,
    device_truth,
    findings_truth,
    idle_truth,
    marked_steps,
    ms,
    new_trace,
    steps_truth,
    window_truth,
)

WINDOW_MS = 199.9
AMD_STATS: Stats = {
    "device_vendor": "AMD",
    "clock_rate": 2_100_000,
    "core_count": 304,
    "memory_bandwidth": U64(2_662_400_000_000),
    "memory_size": U64(206_141_652_992),
    "compute_cap_major": 9,
    "compute_cap_minor": 4,
}


def _truth(devices: Truth, **others: Truth) -> Truth:
    return {
        "windows": window_truth(WINDOW_MS),
        "steps": steps_truth([50, 50, 50, 49.9], 50),
        "device_time": devices,
        **others,
    }


def eight_balanced() -> Scenario:
    """Eight GPUs train alike and hide half of each all-reduce: nothing to complain about."""
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(8):
            step.kernel(ordinal, 0.1, 45)
            step.all_reduce(ordinal, 42, 48)
    device = device_truth(WINDOW_MS, compute=179.6, collective=12, idle=8.3)
    devices = [f"GPU:{ordinal}" for ordinal in range(8)]
    truth = _truth(
        dict.fromkeys(devices, device),
        balance={"concurrency_ratio": 1.0},
        findings=findings_truth(
            [],
            ["unused-gpu", "marginal-gpu", "straggler-gpu", "serial-gpus", "collective-exposed"],
        ),
    )
    return Scenario({"host0": trace}, truth)


def slower_gpu() -> Scenario:
    """GPU 2 of four needs 36 ms for what takes the others 30; they wait in the all-reduce."""
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(4):
            end_ms = 38 if ordinal == 2 else 32
            step.kernel(ordinal, 2, end_ms)
            step.all_reduce(ordinal, end_ms, 40)
    fast = device_truth(WINDOW_MS, compute=120, collective=32, idle=47.9)
    slow = device_truth(WINDOW_MS, compute=144, collective=8, idle=47.9)
    devices = {f"GPU:{ordinal}": slow if ordinal == 2 else fast for ordinal in range(4)}
    truth = _truth(
        devices,
        findings=findings_truth(["straggler-gpu"], ["marginal-gpu"]),
    )
    return Scenario({"host0": trace}, truth)


def copy_only() -> Scenario:
    """GPU 1 is sent data and computes nothing with it."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 42)
        step.copy(1, "H2D", 2, 3, size=1000)
    gpu1 = device_truth(WINDOW_MS, status="copy_only", h2d=4, idle=195.9)
    truth = _truth(
        {"GPU:0": device_truth(WINDOW_MS, compute=160, idle=39.9), "GPU:1": gpu1},
        idle={"GPU:1": idle_truth(states={"no_work": 195.9})},
        findings=findings_truth(["unused-gpu"], ["marginal-gpu"]),
    )
    return Scenario({"host0": trace}, truth)


def memory_only() -> Scenario:
    """GPU 1 holds 512 MiB, had held 600 MiB, and runs nothing."""
    trace = new_trace()
    trace.gpu(0)
    trace.gpu(1)
    for step in marked_steps(trace):
        step.kernel(0, 2, 42)
    mib = 2**20
    trace.allocation(1, ms(3), held_bytes=600 * mib, peak_bytes=600 * mib, changed_bytes=88 * mib)
    trace.allocation(
        1, ms(60), held_bytes=512 * mib, peak_bytes=600 * mib, changed_bytes=88 * mib, freed=True
    )
    gpu0 = device_truth(WINDOW_MS, compute=160, idle=39.9)
    gpu1 = device_truth(WINDOW_MS, status="memory_only", idle=199.9)
    truth = _truth(
        {"GPU:0": gpu0, "GPU:1": gpu1},
        idle={"GPU:1": idle_truth(states={"no_work": 199.9})},
        findings=findings_truth(["unused-gpu"]),
    )
    return Scenario({"host0": trace}, truth)


def two_hosts() -> Scenario:
    """Two hosts, the second began to record 3 ms later: their steps are at the same time."""
    traces = {}
    for host, delay_ms in (("host0", 0), ("host1", 3)):
        begin_ns = PROFILE_START_NS + delay_ms * 1_000_000
        trace = CudaTrace(host, start_ns=begin_ns, stop_ns=begin_ns + 250_000_000)
        for step in marked_steps(trace, first_ms=10 - delay_ms):
            step.kernel(0, 2, 42)
        traces[host] = trace
    device = device_truth(WINDOW_MS, compute=160, idle=39.9)
    start_ps = ORIGIN_PS + ms(10)
    truth: Truth = {
        "windows": {
            **window_truth(WINDOW_MS, host="host0", start_ps=start_ps),
            **window_truth(WINDOW_MS, host="host1", start_ps=start_ps),
        },
        "device_time": {"host0/GPU:0": device, "host1/GPU:0": device},
        # They share no collective, so nothing shows that their clocks agree.
        "balance": {"concurrency_ratio": None, "is_serial": None},
        "findings": findings_truth([], ["unused-gpu", "serial-gpus"]),
    }
    return Scenario(traces, truth)


def hidden_transfers() -> Scenario:
    """Every class at once, each partly hidden by the ones before it, and kernels that overlap.

    Per step: kernels 2–20 and 15–30 on stream 20 and 10–38 on stream 30, an all-reduce 36–40,
    copies H2D 39–42, D2H 41–43, D2D 42–44, P2P 43–45, and a fill 44–46.
    """
    trace = new_trace()
    fill: Stats = {"Memset_details": Ref("kind:device num_bytes:4096 async:1")}
    for step in marked_steps(trace):
        step.kernel(0, 2, 20)
        step.kernel(0, 15, 30)
        step.kernel(0, 10, 38, stream=30)
        step.all_reduce(0, 36, 40)
        step.copy(0, "H2D", 39, 42, size=1000)
        step.copy(0, "D2H", 41, 43, size=100, stream=23)
        step.copy(0, "D2D", 42, 44, size=10, stream=24)
        step.copy(0, "P2P", 43, 45, size=1, dest=1, stream=25)
        trace.device_event(
            0, "Memset 1", step.at(44), step.at(46), stream=26, type_="Memset", stats=fill,
            launch_ps=step.at(0.06), launch_name="Memset",
        )  # fmt: skip
    device = device_truth(
        WINDOW_MS, compute=144, collective=8, h2d=8, d2h=4, d2d=8, memset=4, idle=23.9
    )
    return Scenario({"host0": trace}, _truth({"GPU:0": device}))


def _rocm_copy(step: Step, thread: Line, call: str, start_ms: float, end_ms: float) -> None:
    """A copy as ROCm's tracer sees it: a kernel; only the call on the host knows its direction."""
    trace = step.trace
    details: Stats = {"kernel_details": Ref(" grid:1,1,1 block:512,1,1 private_mem:0 occ_pct:0")}
    fills = call == "hipMemsetAsync"
    name = "__amd_rocclr_fillBufferAligned.kd" if fills else "__amd_rocclr_copyBuffer.kd"
    number = trace.device_event(
        0, name, step.at(start_ms), step.at(end_ms), stream=16, type_="Kernel", stats=details
    )
    copied: Stats = {"memcpy_details": Ref("kind:Unknown size:0 dest:512 async:1")}
    host = copied if call.startswith("hipMemcpy") else None
    at_ps = step.at(start_ms) - ms(0.05)
    trace.launch(call, at_ps, number, device_id=47_645, thread=thread, stats=host)


def rocm() -> Scenario:
    """ROCm: copies and fills are kernels by name; one copy's host call hides its direction."""
    trace = new_trace()
    trace.gpu(0, stats=AMD_STATS)
    thread = trace.host_plane.line(1083, "Host Threads/1083")
    details = " grid:256,1,1 block:256,1,1 private_mem:0 group_mem:0 occ_pct:0"
    for step in marked_steps(trace):
        number = trace.device_event(
            0,
            "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32.kd",
            step.at(2),
            step.at(42),
            stream=16,
            type_="Kernel",
            stats={"kernel_details": Ref(details)},
        )
        trace.launch("hipModuleLaunchKernel", step.at(1.9), number, device_id=47_645, thread=thread)
        _rocm_copy(step, thread, "hipMemcpyHtoDAsync", 43, 44)
        _rocm_copy(step, thread, "hipMemcpyDtoHAsync", 44.5, 45)
        _rocm_copy(step, thread, "hipMemcpyDtoDAsync", 45, 45.5)
        _rocm_copy(step, thread, "hipLaunchHostFunc", 45.5, 46)
        _rocm_copy(step, thread, "hipMemsetAsync", 46, 46.5)
    device = device_truth(WINDOW_MS, compute=160, h2d=4, d2h=2, d2d=4, memset=2, idle=27.9)
    return Scenario({"host0": trace}, _truth({"GPU:0": device}))


def opaque_graph() -> Scenario:
    """A CUDA graph recorded as one event: compute, inside unknown."""
    trace = new_trace()
    for step in marked_steps(trace):
        trace.device_event(
            0,
            "CudaGraphExec:7",
            step.at(2),
            step.at(42),
            type_="CudaGraph",
            stats={"cuda_graph_exec_id": U64(7)},
            launch_ps=step.at(0.011),
            launch_name="cuGraphLaunch (CudaGraph:7)",
        )
    device = device_truth(WINDOW_MS, compute=160, idle=39.9)
    truth = _truth(
        {"GPU:0": device},
        precision={"GPU:0": {"unknown": ms(160)}, "tensor_core_ratio": 0.0},
        findings=findings_truth([], ["low-precision-unused"]),
    )
    return Scenario({"host0": trace}, truth)


def graph_nodes() -> Scenario:
    """A CUDA graph recorded node by node: one launch owns three kernels."""
    trace = new_trace()
    for step in marked_steps(trace):
        number = trace.correlation_id()
        trace.launch("cuGraphLaunch (CudaGraph:7)", step.at(0.011), number)
        for node, (start_ms, end_ms) in enumerate(((2, 10), (12, 20), (22, 42))):
            node_stats: Stats = {"cuda_graph_id": U64(7), "cuda_graph_node_id": U64(100 + node)}
            trace.kernel(
                0, step.at(start_ms), step.at(end_ms), stats=node_stats, correlation_id=number
            )
    device = device_truth(WINDOW_MS, compute=144, idle=55.9)
    truth = _truth({"GPU:0": device})
    return Scenario({"host0": trace}, truth)


def no_gpu_plane() -> Scenario:
    """The GPU tracer never started: a GPU thread worked, and no plane tells what its GPU did."""
    trace = new_trace()
    thread = trace.thread("tf_gpu_private_0", 77)
    for step in marked_steps(trace):
        step.host("ExecutorState::Process", 1, 40, {"id": 5, "iter_num": 0}, thread=thread)
        step.host("replica_1/model/dense/MatMul:MatMul", 2, 10, thread=thread)
    truth = _truth({}, findings=findings_truth(["no-gpu-plane"], ["unused-gpu"]))
    return Scenario({"host0": trace}, truth)


def gpu_planes_empty() -> Scenario:
    """GPU planes and not one event on any: the numbers are unknown, not zero."""
    trace = new_trace()
    trace.gpu(0)
    trace.gpu(1)
    marked_steps(trace)
    unknown = dict.fromkeys(
        ("busy_ps", "exposed_compute_ps", "idle_ps", "exposed_h2d_ps", "kernel_count", "copy_count")
    )
    truth = _truth(
        {"GPU:0": unknown, "GPU:1": unknown},
        findings=findings_truth(["no-gpu-plane"], ["unused-gpu"]),
    )
    return Scenario({"host0": trace}, truth)
