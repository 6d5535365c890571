"""Who keeps the others waiting, and why? Runs that differ in how evenly the devices work."""

from __future__ import annotations

from scripts.cuda_trace import PROFILE_START_NS, V100_STATS
from scripts.scenarios.devices import slower_gpu
from scripts.scenarios.model import (
    Scenario,
    Truth,
    findings_truth,
    marked_steps,
    ms,
    new_trace,
    scenario,
)

T4_STATS = {**V100_STATS, "gpu_device_name": "Tesla T4", "clock_rate": 1_590_000, "core_count": 40}


def more_work() -> Scenario:
    """GPU 1 runs one kernel more than GPU 0 in every step, 10 ms long; GPU 0 waits for it in the all-reduce."""
    trace = new_trace()
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 2, 32)
        step.kernel(1, 32, 42, name="reduce_kernel")
        step.all_reduce(0, 32, 46)
        step.all_reduce(1, 42, 46)
    return scenario(
        trace,
        ["straggler-gpu"],
        balance={
            "concurrency_ratio": 1.0,
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
        },
    )


def late_batch() -> Scenario:
    """The thread of GPU 1 gets its batch 10 ms into each step, so that GPU 0 waits 10 ms in the all-reduce."""
    trace = new_trace()
    thread = trace.thread("tf_gpu_private_1", 7)
    for step in marked_steps(trace):
        step.host("IteratorGetNext:IteratorGetNext", 0.1, 11.9, thread=thread)
        step.kernel(0, 2, 32, launch_ms=1.9)
        step.kernel(1, 12, 42, launch_ms=11.95, launch_thread=thread)
        step.all_reduce(0, 32, 46)
        step.all_reduce(1, 42, 46)
    return scenario(trace, ["input-bound"])


def two_of_eight() -> Scenario:
    """Two of eight GPUs train alike; the strategy was given no more."""
    trace = new_trace()
    for ordinal in range(8):
        trace.gpu(ordinal)
    for step in marked_steps(trace):
        for ordinal in range(2):
            step.kernel(ordinal, 2, 42)
    return scenario(
        trace,
        ["unused-gpu"],
        ["straggler-gpu", "serial-gpus"],
        balance={"concurrency_ratio": 1.0},
    )


def mixed_models() -> Scenario:
    """A V100 and a T4 get equal batches: the T4 takes 40 ms for what the V100 does in 20."""
    trace = new_trace()
    trace.gpu(0)
    trace.gpu(1, stats=T4_STATS)
    for step in marked_steps(trace):
        step.kernel(0, 2, 22)
        step.kernel(1, 2, 42)
        step.all_reduce(0, 22, 46)
        step.all_reduce(1, 42, 46)
    return scenario(
        trace,
        ["straggler-gpu"],
    )


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
    return Scenario(slower.traces, truth, {"host0": {"outside_view": view}})


def empty_last_batch() -> Scenario:
    """Of the last batch one example is left: GPU 0 computes 4 ms on it, and GPU 1 0.5 ms on nothing."""
    trace = new_trace()
    for index, step in enumerate(marked_steps(trace)):
        step.kernel(0, 2, 42 if index < 3 else 6)
        step.kernel(1, 2, 42 if index < 3 else 2.5)
    return scenario(trace, must_not=["straggler-gpu", "serial-gpus", "marginal-gpu"])


def logical_cpus_in_turn() -> Scenario:
    """Two models on logical devices of a CPU, the second after the first: each computes 20 of 50 ms.

    The part of CPU:1 starts first and says who it is by what it sends; nothing shows the device of the other one.
    """
    trace, local = new_trace(length_ms=500), "/job:localhost/replica:0/task:0/device:CPU"
    for number, step in enumerate(marked_steps(trace, count=8)):
        for place, device in enumerate((1, 0)):
            line, begin_ms = trace.thread(f"tf_Compute/{device}", 900 + device), 2 + 20 * device
            key = 100 * (number + 1) + device
            step.host("FunctionRun", 1 + place, 1.5 + place, {"id": number, "_pt": 3, "_p": key})
            part = {"id": number, "_ct": 3, "_c": key}
            step.host("ExecutorState::Process", begin_ms, begin_ms + 20, part, thread=line)
            op = f"MatMul_{device}:MatMul" if device else "MatMul:MatMul"
            step.host(op, begin_ms, begin_ms + 19, thread=line)
            if device:
                sent = {"key": f"{local}:1;12ab;{local}:0;12ab;loss;0:0"}
                step.host("loss/_1:_Send", begin_ms + 19.2, begin_ms + 19.3, sent, thread=line)
    asked = {"step": "train", "ops_per_device": {f"{local}:0": 30, f"{local}:1": 30}}
    sidecar = {"placement": {"functions": [asked]}, "cores": {"usable_count": 2}}
    return scenario(trace, ["serial-gpus"], ["host-bound"], sidecar=sidecar)


def step_makes_data_set() -> Scenario:
    """The graph of a step of 50 ms makes a data set in 30 ms, and loops over it for 15 ms, of which its body computes 12."""
    trace = new_trace()
    names = ("tf_Compute/1", "tf_data_reduce_dataset/2", "tf_data_private_threadpool/3")
    executor, runner, pool = (trace.thread(name, 901 + at) for at, name in enumerate(names))
    for number, step in enumerate(marked_steps(trace)):
        key, id_ = 10 * (number + 1), 500 + number
        step.host("FunctionRun", 0.5, 0.9, {"id": id_, "_pt": 3, "_p": key})
        part = {"id": id_, "_ct": 3, "_c": key}
        step.host("ExecutorState::Process", 1, 3, part, thread=executor)
        step.host("MatMul:MatMul", 1.1, 2.9, thread=executor)
        op = {"name": "ReduceDataset", "kernel_type": "ReduceDataset"}
        began, ended = {"_pt": 2, "_p": key + 1}, {"_ct": 2, "_c": key + 1}
        kind = "ExecutorState::ProcessAsync"
        step.host(f"{kind}::Start", 2.95, 3, {**op, **began}, thread=executor)
        step.host("ReduceDatasetOp::DoCompute", 3, 48, {"id": id_}, thread=runner)
        step.host("MakeIterator::RootDataset", 12, 33, thread=runner)
        step.host("ReduceIterator::Root", 33, 48, thread=runner)
        step.host("ReduceIterator::Root::Prefetch::Scan", 33, 47.9, thread=runner)
        run = {"id": 700 + number}
        step.host("InstantiatedCapturedFunction::Run", 35, 47.5, run, thread=runner)
        step.host("ExecutorState::Process", 35.1, 47.4, run, thread=pool)
        step.host("body/MatMul:MatMul", 35.2, 47.2, thread=pool)
        step.host(f"{kind}::Done", 48, 48.1, {**op, **ended}, thread=runner)
    return scenario(trace, ["input-bound"], ["host-bound", "cpu-heavy-op"])


def critical_section() -> Scenario:
    """Two replicas compute 20 of 50 ms in a critical section, one after the other; then each computes 8 ms alone."""
    trace, kind = new_trace(), "ExecutorState::ProcessAsync"
    locks = trace.thread("tf_Compute/3", 903)
    for number, step in enumerate(marked_steps(trace)):
        for replica in range(2):
            scope, line = (
                f"replica_{replica}/",
                trace.thread(f"tf_Compute/{replica}", 901 + replica),
            )
            key, begin_ms = 100 * (number + 1) + 10 * replica, 1 + 20 * replica
            step.host("FunctionRun", 0.2 + replica / 10, 0.3 + replica / 10, {"_pt": 3, "_p": key})
            step.host("ExecutorState::Process", 0.5, 49, {"_ct": 3, "_c": key}, thread=line)
            lock = {"name": f"{scope}section/MutexLock", "kernel_type": "MutexLock"}
            began, ended = {"_pt": 2, "_p": key + 1}, {"_ct": 2, "_c": key + 1}
            step.host(f"{kind}::Start", 0.6, 0.7, {**lock, **began}, thread=line)
            step.host(f"{kind}::Done", begin_ms, begin_ms + 0.1, {**lock, **ended}, thread=locks)
            step.host(f"{scope}section/MatMul:MatMul", begin_ms + 0.2, begin_ms + 19.9, thread=line)
            step.host(f"{scope}MatMul:MatMul", begin_ms + 20, begin_ms + 28, thread=line)
    return scenario(trace, ["serial-gpus"], ["host-bound"], sidecar={"cores": {"usable_count": 2}})
