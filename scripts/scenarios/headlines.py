"""Runs whose one headline is known: the finding with the largest share of the GPU time.

`SHARES` holds the integers behind it: the time that all visible devices spend in the leading state, over devices × steps ×
length, in the used steps. The last marker of a run ends with its step, so that all steps count whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from scripts.cuda_trace import NCCL_NAME, CudaTrace, Plane, Stats
from scripts.scenarios.collectives import all_reduce
from scripts.scenarios.model import (
    ORIGIN_PS,
    Builder,
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

ALL_REDUCE_OP: Final = "CollectiveReduceV2:CollectiveReduceV2"
REPLICA_OPS: Final = ("model/dense/MatMul:MatMul", "replica_1/model/dense/MatMul:MatMul")
HOST_OPS: Final = (
    *("Shape", "StridedSlice", "Pack", "Range", "Cast", "Size", "Prod", "Maximum"),
    *("Minimum", "FloorDiv", "FloorMod", "ConcatV2", "ExpandDims", "Squeeze", "Fill", "Where"),
)
"""Types of small ops that run on the host."""
HELD_BYTES: Final = 14_400_000_000
PERIOD_MS: Final = 50.0


def _steps(trace: CudaTrace, count: int = 4, period_ms: float = PERIOD_MS) -> list[Step]:
    """Steps without a pause between their markers."""
    return marked_steps(trace, count=count, period_ms=period_ms, marker_ms=period_ms)


def _all_reduce(step: Step, ordinal: int, start_ms: float, end_ms: float) -> None:
    step.kernel(ordinal, start_ms, end_ms, name=NCCL_NAME, op=ALL_REDUCE_OP, stream=22)


def _healthy_step(step: Step, ordinals: Iterable[int], period_ms: float = PERIOD_MS) -> None:
    """Compute from 0.1 ms on, and an all-reduce in the last 0.9 ms: of 50 ms, 98 % compute."""
    for ordinal in ordinals:
        step.kernel(ordinal, 0.1, period_ms - 0.9)
        _all_reduce(step, ordinal, period_ms - 0.9, period_ms)


def _healthy_device() -> Truth:
    """One GPU in four healthy steps of 50 ms."""
    return device_truth(200, compute=196, collective=3.6, idle=0.4, kernels=4, collectives=4)


def _scenario(
    name: str,
    trace: CudaTrace,
    devices: Truth,
    durations_ms: Sequence[float],
    *,
    must: Sequence[str] = (),
    must_not: Sequence[str] = (),
    sidecar: Mapping[str, Any] | None = None,
    **others: Truth,
) -> Scenario:
    """A run on one host with the steps of these lengths."""
    starts = [round(sum(durations_ms[:index]), 6) for index in range(len(durations_ms))]
    middle = sorted(durations_ms)[len(durations_ms) // 2]
    truth: Truth = {
        "windows": window_truth(sum(durations_ms)),
        "steps": steps_truth(durations_ms, middle, starts_ms=starts),
        "device_time": devices,
        "findings": findings_truth(must, must_not),
        **others,
    }
    sidecars = {} if sidecar is None else {"host0": sidecar}
    return Scenario(name, {"host0": trace}, truth, sidecars)


# A TPU that waits for its memory


_COPY_START: Final = (
    "%copy-start.3 = (bf16[4096,4096]{1,0}, bf16[4096,4096]{1,0:S(5)}, u32[]{:S(2)}) "
    "copy-start(bf16[4096,4096]{1,0:S(5)} %weights)"
)
_COPY_DONE: Final = (
    "%copy-done.3 = bf16[4096,4096]{1,0} copy-done((bf16[4096,4096]{1,0}, bf16[4096,4096]{1,0:S(5)}, "
    "u32[]{:S(2)}) %copy-start.3)"
)


def tpu_streams_weights() -> Scenario:
    """The loop of a TPU waits 46 of 50 ms for weights that lie in the memory of the host, and computes for the rest."""
    trace = new_trace()
    plane = Plane("/device:TPU:0")
    trace.extra_planes.append(plane)
    ops = plane.line(1, "XLA Ops", stamp_ns=0)

    def op(name: str, start_ps: int, end_ps: int) -> None:
        times: Stats = {
            "device_offset_ps": ORIGIN_PS + start_ps,
            "device_duration_ps": end_ps - start_ps,
        }
        ops.add(name, start_ps, end_ps, times)

    for step in _steps(trace):
        op("%while.1 = (bf16[4096,4096]{1,0}) while(%tuple.1)", step.at(0.5), step.at(50))
        op(_COPY_START, step.at(0.5), step.at(1))
        op(_COPY_DONE, step.at(1), step.at(47))
        op("%fusion.7 = bf16[64,4096]{1,0} fusion(%x, %copy-done.3)", step.at(47), step.at(50))
    return _scenario(
        "tpu_streams_weights",
        trace,
        {
            "TPU:0": device_truth(
                200, compute=12, h2d=186, idle=2, kernels=4, copies=8, h2d_bytes=None
            )
        },
        [50] * 4,
        must=["h2d-exposed"],
    )


def xla_on_cpus() -> Scenario:
    """Two CPU devices of a program that XLA compiled: ops on whichever thread, one of which ends on another one.

    CPU:1 computes for 30 ms of 50 and CPU:0 for 10; both are in the all-reduce until 32 ms. Python has the rest. The op is
    left to other threads, the last of which ends at 31 ms; it counts no longer than to the all-reduce.
    """
    trace = new_trace()
    main, pool = trace.thread(), trace.thread("tf_XLAEigen", 77)
    for number, step in enumerate(_steps(trace)):
        step.host("PjitFunction(step)", 0, 0.2)
        for ordinal, busy_ms in enumerate((10.0, 30.0)):
            stats: Stats = {"device_ordinal": ordinal, "run_id": number}
            key = 1000 + 10 * number + ordinal
            thread = trace.thread("tf_XLAPjRtCpuClient", 70 + ordinal)
            started: Stats = {**stats, "_pt": 0, "_p": key}
            step.host("dot.3", 0.5, 1, started, thread=thread)
            step.host("end: dot.3", 30.9, 31, {"_ct": 0, "_c": key}, thread=pool)
            step.host("all-reduce.5", 0.5 + busy_ms, 32, stats, thread=thread)
        step.host("PjitFunction(step)", 49.9, 50, thread=main)
    devices = {
        "CPU:0": device_truth(200, compute=40, collective=86, idle=74, kernels=4, collectives=4),
        "CPU:1": device_truth(200, compute=120, collective=6, idle=74, kernels=4, collectives=4),
    }
    return _scenario("xla_on_cpus", trace, devices, [50] * 4, must=["straggler-gpu"])


def computes_in_float64() -> Scenario:
    """A GPU whose host is never late: 40 of 50 ms are matrix products in float64, and 9 ms are in float32."""
    trace = new_trace()
    for step in _steps(trace):
        for name, start_ms, end_ms in (
            ("volta_sgemm_64x64_nn", 0.5, 9.5),
            ("volta_dgemm_64x64_nn", 9.5, 49.5),
        ):
            kernel = trace.kernel(0, step.at(start_ms), step.at(end_ms), name=name)
            trace.launch("cuLaunchKernel", step.at(start_ms - 0.1), kernel)
    device = device_truth(200, compute=196, idle=4, kernels=8)
    return _scenario(
        "computes_in_float64", trace, {"GPU:0": device}, [50] * 4, must=["float64-compute"]
    )


# GPUs that compute nothing


def one_of_four_copies() -> Scenario:
    """GPU 1 of four receives 1 ms of data in each step of 50 and computes nothing; the others train."""
    trace = new_trace()
    for step in _steps(trace):
        _healthy_step(step, (0, 2, 3))
        step.copy(1, "H2D", 2, 3, size=10_000_000)
    devices = dict.fromkeys(("GPU:0", "GPU:2", "GPU:3"), _healthy_device())
    devices["GPU:1"] = device_truth(
        200, status="copy_only", h2d=4, idle=196, copies=4, h2d_bytes=40_000_000
    )
    return _scenario(
        "one_of_four_copies",
        trace,
        devices,
        [50] * 4,
        must=["unused-gpu"],
        must_not=["marginal-gpu"],
        idle={"GPU:1": idle_truth(states={"no_work": 196})},
    )


def one_of_four_unused() -> Scenario:
    """GPU 3 of four is visible and has no event; the others train."""
    trace = new_trace()
    for ordinal in range(4):
        trace.gpu(ordinal)
    for step in _steps(trace):
        _healthy_step(step, range(3))
    devices = dict.fromkeys(("GPU:0", "GPU:1", "GPU:2"), _healthy_device())
    devices["GPU:3"] = device_truth(200, status="empty", idle=200)
    return _scenario(
        "one_of_four_unused",
        trace,
        devices,
        [50] * 4,
        must=["unused-gpu"],
        must_not=["marginal-gpu"],
        idle={"GPU:3": idle_truth(states={"no_work": 200})},
    )


def seven_unused_hold_memory() -> Scenario:
    """One GPU of eight trains; the process holds 14.4 GB on each of the seven others and runs nothing there."""
    trace = new_trace()
    for ordinal in range(8):
        trace.gpu(ordinal)
    for step in _steps(trace):
        step.kernel(0, 0.1, 50)
    for ordinal in range(1, 8):
        trace.allocation(
            ordinal, ms(3), held_bytes=HELD_BYTES, peak_bytes=HELD_BYTES, changed_bytes=HELD_BYTES
        )
    unused = {
        **device_truth(200, status="memory_only", idle=200),
        "memory_held_bytes": HELD_BYTES,
        "memory_peak_bytes": HELD_BYTES,
    }
    devices = {f"GPU:{ordinal}": unused for ordinal in range(1, 8)}
    devices["GPU:0"] = device_truth(200, compute=199.6, idle=0.4, kernels=4)
    return _scenario(
        "seven_unused_hold_memory",
        trace,
        devices,
        [50] * 4,
        must=["unused-gpu"],
        must_not=["marginal-gpu", "serial-gpus"],
    )


# GPUs that wait for each other


def four_serial_gpus() -> Scenario:
    """Four GPUs compute 11.06 of 44.3 ms each; all is launched at once, and a GPU begins when the one before it ends."""
    trace = new_trace()
    for step in _steps(trace, period_ms=44.3):
        for ordinal in range(4):
            begin_ms, end_ms = (round(0.06 + 11.06 * turn, 6) for turn in (ordinal, ordinal + 1))
            step.kernel(ordinal, begin_ms, end_ms)
    return _one_after_another("four_serial_gpus", trace, 1, ["serial-gpus"])


def four_launched_in_turn() -> Scenario:
    """The same, because one thread launches for one GPU after the other: 140 kernels of 79 µs each, 5 µs before they begin."""
    trace = new_trace()
    for step in _steps(trace, period_ms=44.3):
        for number in range(4 * 140):
            begin_ms, end_ms = (round(0.06 + 0.079 * place, 6) for place in (number, number + 1))
            step.kernel(number // 140, begin_ms, end_ms, launch_ms=begin_ms - 0.005)
    # While the thread launches for one GPU the others wait for its launches.
    return _one_after_another("four_launched_in_turn", trace, 140, ["serial-gpus"])


def _one_after_another(name: str, trace: CudaTrace, kernels: int, must: list[str]) -> Scenario:
    device = device_truth(177.2, compute=44.24, idle=132.96, kernels=4 * kernels)
    return _scenario(
        name,
        trace,
        {f"GPU:{ordinal}": device for ordinal in range(4)},
        [44.3] * 4,
        must=must,
        must_not=["marginal-gpu", "straggler-gpu"],
    )


def waits_by_turns() -> Scenario:
    """Another GPU of four computes 38 instead of 30 ms in each step, and the other three wait in the all-reduce."""
    trace = new_trace(length_ms=400)
    for index, step in enumerate(_steps(trace, count=8, period_ms=40)):
        for ordinal in range(4):
            end_ms = 38.1 if ordinal == index % 4 else 30.1
            step.kernel(ordinal, 0.1, end_ms)
            _all_reduce(step, ordinal, end_ms, 40)
    # Late in two of eight steps: there 1.9 ms in the collective, in the others 8 more.
    device = device_truth(320, compute=256, collective=63.2, idle=0.8, kernels=8, collectives=8)
    devices = [f"GPU:{ordinal}" for ordinal in range(4)]
    return _scenario(
        "waits_by_turns",
        trace,
        dict.fromkeys(devices, device),
        [40] * 8,
        must=["late-by-turns"],
        must_not=["straggler-gpu", "serial-gpus"],
        collectives={
            "count": 8,
            "transfer_ps": ms(15.2),
            "wait_ps": dict.fromkeys(devices, ms(48)),
            "last_count": dict.fromkeys(devices, 2),
        },
    )


def one_late_gpu() -> Scenario:
    """GPU 1 of four computes 19 instead of 14 ms before each of two all-reduces per step; the others wait in both."""
    trace = new_trace()
    for step in _steps(trace, period_ms=40):
        for ordinal in range(4):
            busy_ms = 19 if ordinal == 1 else 14
            for begin_ms, end_ms in ((0.1, 20.05), (20.05, 40.0)):
                step.kernel(ordinal, begin_ms, begin_ms + busy_ms)
                _all_reduce(step, ordinal, begin_ms + busy_ms, end_ms)
    early = device_truth(160, compute=112, collective=47.6, idle=0.4, kernels=8, collectives=8)
    late = device_truth(160, compute=152, collective=7.6, idle=0.4, kernels=8, collectives=8)
    devices = {f"GPU:{ordinal}": late if ordinal == 1 else early for ordinal in range(4)}
    return _scenario(
        "one_late_gpu",
        trace,
        devices,
        [40] * 4,
        must=["straggler-gpu"],
        must_not=["serial-gpus"],
        collectives={
            "count": 8,
            "transfer_ps": ms(7.6),
            "wait_ps": {device: 0 if device == "GPU:1" else ms(40) for device in devices},
            "last_count": {device: 8 if device == "GPU:1" else 0 for device in devices},
        },
    )


# What ran between steps, and what nothing shows


def evaluation_between_steps() -> Scenario:
    """Three batches are evaluated on both GPUs after the second of four steps of 40 ms: 60 ms, most of it compute.

    After the first and the third step the thread is between markers for 20 µs, in which the GPUs are busy.
    """
    trace = new_trace()
    for index, start_ms in enumerate((0, 40, 140, 180)):
        step = Step(trace, start_ms)
        trace.marker(index, step.at(0), step.at(39.98 if index in (0, 2) else 40))
        _healthy_step(step, range(2), 40)
    for batch in range(3):
        part = Step(trace, 80 + 20 * batch)
        part.host("IteratorGetNext:IteratorGetNext", 0, 2)
        part.host("FunctionRun", 2, 20, {"id": 900 + batch, "_r": 1})
        for ordinal in range(2):
            part.kernel(ordinal, 2.05, 20, launch_ms=2.01 + 0.004 * ordinal)
    # 156 ms in the steps and 53.85 in the evaluation.
    device = device_truth(220, compute=209.85, collective=3.6, idle=6.55, kernels=7, collectives=4)
    evaluation = {
        "after": 1,
        "functions": {"test_function": 3},
        "begun_ns": 80_000_000,
        "ended_ns": 140_000_000,
    }
    return _scenario(
        "evaluation_between_steps",
        trace,
        {"GPU:0": device, "GPU:1": device},
        [40, 100, 40, 40],
        must=["validation-stall"],
        must_not=["input-bound", "callback-stall"],
        sidecar={"window": {"evaluations": [evaluation]}},
    )


def every_fifth_step() -> Scenario:
    """After every fifth of 16 steps of 19.1 ms a callback runs for 5.4 ms; the Python tracer recorded its frame."""
    trace = new_trace(length_ms=400)
    start_ms, durations_ms = 0.0, []
    for index in range(16):
        is_slow = index % 5 == 4
        step = Step(trace, start_ms)
        trace.marker(index, step.at(0), step.at(19.1))
        step.kernel(0, 0.05, 19.1)
        if is_slow:
            step.host("$callbacks.py:30 on_train_batch_end", 19.1, 24.5)
        durations_ms.append(24.5 if is_slow else 19.1)
        start_ms = round(start_ms + durations_ms[-1], 6)
    return _scenario(
        "every_fifth_step",
        trace,
        {"GPU:0": device_truth(321.8, compute=304.8, idle=17, kernels=16)},
        durations_ms,
        must=["callback-stall"],
        must_not=["unsteady-steps"],
        idle={"GPU:0": idle_truth(states={"between": 16.2})},
    )


def one_step() -> Scenario:
    """One step of 59.2 ms: five calls of 10 µs, a kernel of 2.47 ms after each, then 11.7 ms in which nothing is recorded.

    No frame and no sample of Python was recorded either, so that nothing shows what the thread did between the calls.
    """
    trace = new_trace()
    (step,) = _steps(trace, count=1, period_ms=59.2)
    for number in range(5):
        call_ms = round(14.18 * number, 6)
        step.host("FunctionRun", call_ms, call_ms + 0.01, {"id": 500 + number, "_r": 1})
        step.kernel(0, call_ms + 0.01, call_ms + 2.48, launch_ms=call_ms + 0.005)
    return _scenario(
        "one_step",
        trace,
        {"GPU:0": device_truth(59.2, compute=12.35, idle=46.85, kernels=5)},
        [59.2],
        must_not=["launch-bound", "input-bound"],
    )


# Runs without a GPU


def _component(step: Step, replica: int, start_ms: float, end_ms: float, *, op_ms: float) -> None:
    """What one replica computes on a thread of its own: ops of that length without a hole."""
    trace = step.trace
    executor = trace.thread(f"tf_Compute_{replica}", 901 + replica)
    key = round(step.start_ms * 100) + replica
    step.host("FunctionRun", start_ms - 0.02, start_ms, {"_pt": 3, "_p": key})
    consumed: Stats = {"_ct": 3, "_c": key, "id": 1, "iter_num": 0}
    step.host("ExecutorState::Process", start_ms, end_ms, consumed, thread=executor)
    for number in range(round((end_ms - start_ms) / op_ms)):
        begin_ms = round(start_ms + number * op_ms, 6)
        step.host(REPLICA_OPS[replica], begin_ms, round(begin_ms + op_ms, 6), thread=executor)


def replicas_wait_for_input() -> Scenario:
    """Two replicas on the CPU; the thread of the steps waits 12 of 40 ms for the next element before it calls them."""
    trace = new_trace()
    for step in _steps(trace, period_ms=40):
        step.host("IteratorGetNext:IteratorGetNext", 0, 12)
        for replica in range(2):
            _component(step, replica, 12.02, 40, op_ms=27.98)
    device = device_truth(160, compute=111.92, idle=48.08, kernels=4)
    states = idle_truth(states={"input": 48})
    return _scenario(
        "replicas_wait_for_input",
        trace,
        {"replica:0": device, "replica:1": device},
        [40] * 4,
        must=["input-bound"],
        must_not=["serial-gpus"],
        idle={"replica:0": states, "replica:1": states},
    )


def slow_profiler() -> Scenario:
    """Two replicas with 460 ops of 20 µs in each step; recorded steps take 10 ms, those before 4 ms.

    In the first 0.8 ms of a step eager ops are dispatched on the thread of the steps.
    """
    trace = new_trace()
    for step in _steps(trace, count=8, period_ms=10):
        for number in range(39):
            step.host("EagerExecute", 0.02 * number, 0.02 * number + 0.02)
        for replica in range(2):
            _component(step, replica, 0.8, 10, op_ms=0.02)
    device = device_truth(80, compute=73.6, idle=6.4, kernels=8 * 460)
    overhead = {
        "unprofiled_ns": 4_000_000,
        "profiled_ns": 10_000_000,
        "ratio": 1.5,
        "spread_ratio": 0.02,
    }
    return _scenario(
        "slow_profiler",
        trace,
        {"replica:0": device, "replica:1": device},
        [10] * 8,
        sidecar={"overhead": overhead},
    )


# Many GPUs, and healthy ones


def _eight_hosts(
    name: str, traces: Mapping[str, CudaTrace], length_ms: float, device: Truth, **others: Truth
) -> Scenario:
    devices = [f"{host}/GPU:{ordinal}" for host in traces for ordinal in range(8)]
    windows = {host: window_truth(length_ms, host=host)[host] for host in traces}
    rows = dict.fromkeys(devices, device)
    return Scenario(name, traces, {"windows": windows, "device_time": rows, **others})


def sixty_four_wait_for_input() -> Scenario:
    """Eight hosts of eight GPUs wait alike for input in the first 20.4 of 45.6 ms; the all-reduce is hidden."""
    traces = {f"host{number}": new_trace(f"host{number}") for number in range(8)}
    for trace in traces.values():
        for index, step in enumerate(_steps(trace, period_ms=45.6)):
            step.host("IteratorGetNext:IteratorGetNext", 0, 20.4)
            for ordinal in range(8):
                step.kernel(ordinal, 20.41, 45.6, launch_ms=20.4 + 0.001 * ordinal)
            all_reduce(step, [(44, 45.5)] * 8, instance=100 + index, asked_ms=20.45)
    device = device_truth(
        182.4,
        compute=100.76,
        totals={"collective": 6},
        idle=81.64,
        kernels=4,
        collectives=4,
    )
    devices = [f"{host}/GPU:{ordinal}" for host in traces for ordinal in range(8)]
    return _eight_hosts(
        "sixty_four_wait_for_input",
        traces,
        182.4,
        device,
        idle=dict.fromkeys(devices, idle_truth(states={"input": 81.6})),
        findings=findings_truth(["input-bound"], ["straggler-gpu", "serial-gpus", "missing-host"]),
    )


def sixty_four_healthy() -> Scenario:
    """Eight hosts of eight GPUs train alike and compute 98 % of the time: nothing to complain about."""
    traces = {f"host{number}": new_trace(f"host{number}") for number in range(8)}
    for trace in traces.values():
        for index, step in enumerate(_steps(trace)):
            for ordinal in range(8):
                step.kernel(ordinal, 0.1, 49.1)
            all_reduce(step, [(49.1, 50)] * 8, instance=100 + index, asked_ms=0.5)
    return _eight_hosts(
        "sixty_four_healthy",
        traces,
        200,
        _healthy_device(),
        findings=findings_truth([], ["collective-exposed", "straggler-gpu", "missing-host"]),
    )


def four_healthy() -> Scenario:
    """Four GPUs train alike and compute 98 % of the time: nothing to complain about."""
    trace = new_trace()
    for step in _steps(trace):
        _healthy_step(step, range(4))
    return _scenario(
        "four_healthy",
        trace,
        {f"GPU:{ordinal}": _healthy_device() for ordinal in range(4)},
        [50] * 4,
        must_not=["collective-exposed", "straggler-gpu", "serial-gpus"],
    )


def small_steps() -> Scenario:
    """Steps of 6.1 ms in which 16 host ops of 0.1 ms come before the kernel; the profiler made them no longer."""
    trace = new_trace()
    executor = trace.thread("tf_gpu_private_0", 8_001)
    for index, step in enumerate(_steps(trace, count=10, period_ms=6.1)):
        run: Stats = {"id": 500 + index, "_r": 1, "_pt": 2, "_p": 7_000 + index}
        step.host("FunctionRun", 0, 1.62, run)
        consumed: Stats = {"id": 500 + index, "iter_num": 0, "_ct": 2, "_c": 7_000 + index}
        step.host("ExecutorState::Process", 0, 1.61, consumed, thread=executor)
        for number, op in enumerate(HOST_OPS):
            begin_ms, name = round(0.1 * number, 6), f"model/crop/{op}:{op}"
            step.host(name, begin_ms, round(begin_ms + 0.1, 6), thread=executor)
        step.kernel(0, 1.605, 6.1, launch_ms=1.6, launch_thread=executor)
    overhead = {
        "unprofiled_ns": 6_100_000,
        "profiled_ns": 6_100_000,
        "ratio": 0.0,
        "spread_ratio": 0.01,
    }
    return _scenario(
        "small_steps",
        trace,
        {"GPU:0": device_truth(61, compute=44.95, idle=16.05, kernels=10)},
        [6.1] * 10,
        must=["host-bound"],
        must_not=["launch-bound", "input-bound"],
        sidecar={"overhead": overhead},
        idle={"GPU:0": idle_truth(states={"host_ops": 16})},
    )


SHARES: Final[Mapping[str, tuple[int, int]]] = {
    # No work: all of a GPU that computes nothing, and what one with little to do while another computes.
    "A": (ms(199.9), 2 * ms(199.9)),
    "C": (4 * ms(35), 2 * ms(199.9)),
    "D": (7 * ms(199.9), 8 * ms(199.9)),
    "memory_only": (ms(199.9), 2 * ms(199.9)),
    "two_of_eight": (6 * ms(199.9), 8 * ms(199.9)),
    "one_of_four_copies": (4 * ms(50), 4 * 4 * ms(50)),
    "one_of_four_unused": (4 * ms(50), 4 * 4 * ms(50)),
    "seven_unused_hold_memory": (7 * 4 * ms(50), 8 * 4 * ms(50)),
    # Another device's turn: the compute of the three others.
    "four_serial_gpus": (4 * 4 * 3 * ms(11.06), 4 * 4 * ms(44.3)),
    "four_launched_in_turn": (4 * 4 * 3 * ms(11.06), 4 * 4 * ms(44.3)),
    # Waiting for a device: three GPUs, each until the last one arrives.
    "waits_by_turns": (8 * 3 * ms(8), 4 * 8 * ms(40)),
    "one_late_gpu": (4 * 3 * 2 * ms(5), 4 * 4 * ms(40)),
    # Evaluation: all of it, from the end of one marker to the start of the next.
    "evaluation_between_steps": (2 * ms(60), 2 * ms(220)),
    # Between steps: after steps 4, 9 and 14.
    "every_fifth_step": (3 * ms(5.4), ms(321.8)),
    # Unknown: from the end of each kernel but the last to the next call.
    "one_step": (4 * ms(11.7), ms(59.2)),
    # Input.
    "G": (2 * 4 * ms(30), 2 * ms(199.9)),
    "replicas_wait_for_input": (2 * 4 * ms(12), 2 * 4 * ms(40)),
    "sixty_four_wait_for_input": (64 * 4 * ms(20.4), 64 * 4 * ms(45.6)),
    # Host ops.
    "slow_profiler": (2 * 8 * ms(0.8), 2 * 8 * ms(10)),
    "the_next_batch_is_prepared": (4 * ms(20), 4 * ms(50)),
    "an_event_that_no_list_knows": (4 * ms(18), 4 * ms(50)),
    "small_steps": (10 * 16 * ms(0.1), 10 * ms(6.1)),
    # Communication, of runs without a problem.
    "sixty_four_healthy": (64 * 4 * ms(0.9), 64 * 4 * ms(50)),
    "four_healthy": (4 * 4 * ms(0.9), 4 * 4 * ms(50)),
}
"""Time in the leading state over all visible devices and used steps, and devices × steps × length, in picoseconds."""

CASES: dict[str, Builder] = {
    build.__name__: build
    for build in (
        tpu_streams_weights,
        xla_on_cpus,
        computes_in_float64,
        one_of_four_copies,
        one_of_four_unused,
        seven_unused_hold_memory,
        four_serial_gpus,
        four_launched_in_turn,
        waits_by_turns,
        one_late_gpu,
        evaluation_between_steps,
        every_fifth_step,
        one_step,
        replicas_wait_for_input,
        slow_profiler,
        sixty_four_wait_for_input,
        sixty_four_healthy,
        four_healthy,
        small_steps,
    )
}
