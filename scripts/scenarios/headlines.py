"""Runs whose one headline is known: the finding with the largest share of the GPU time.

`SHARES` holds the integers behind it: the time that all visible devices spend in the leading state, over devices × steps ×
length, in the used steps. The last marker of a run ends with its step, so that all steps count whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from scripts.cuda_trace import CudaTrace, Plane, Stats
from scripts.scenarios.collectives import all_reduce
from scripts.scenarios.model import (
    ORIGIN_PS,
    Scenario,
    Step,
    device_truth,
    findings_truth,
    idle_truth,
    marked_steps,
    ms,
    new_trace,
    scenario,
)

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


def _healthy_step(step: Step, ordinals: Iterable[int], period_ms: float = PERIOD_MS) -> None:
    """Compute from 0.1 ms on, and an all-reduce in the last 0.9 ms: of 50 ms, 98 % compute."""
    for ordinal in ordinals:
        step.kernel(ordinal, 0.1, period_ms - 0.9)
        step.all_reduce(ordinal, period_ms - 0.9, period_ms)


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
    return scenario(
        trace,
        device_time={"TPU:0": device_truth(200, compute=12, h2d=186, idle=2)},
        must=["h2d-exposed"],
    )


def xla_on_cpus() -> Scenario:
    """Two CPU devices of a program that XLA compiled: ops on whichever thread, one of which ends on another one.

    CPU:1 computes for 30 ms of 50 and CPU:0 for 10; both are in the all-reduce until 32 ms. Python has the rest. The op is
    left to other threads, the last of which ends when the all-reduce begins.

    Both run one program, which does the same whatever its data: CPU:1 has no more work.
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
            done: Stats = {"_ct": 0, "_c": key}
            step.host("end: dot.3", 0.4 + busy_ms, 0.5 + busy_ms, done, thread=pool)
            step.host("all-reduce.5", 0.5 + busy_ms, 32, stats, thread=thread)
        step.host("PjitFunction(step)", 49.9, 50, thread=main)
    devices = {
        "CPU:0": device_truth(200, compute=40, collective=86, idle=74),
        "CPU:1": device_truth(200, compute=120, collective=6, idle=74),
    }
    return scenario(trace, device_time=devices, must=["between-calls"])


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
    return scenario(trace, must=["float64-compute"])


# GPUs that compute nothing


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
    return scenario(trace, must=["unused-gpu"], must_not=["marginal-gpu", "serial-gpus"])


# GPUs that wait for each other


def four_serial_gpus() -> Scenario:
    """Four GPUs compute 11.06 of 44.3 ms each; all is launched at once, and a GPU begins when the one before it ends."""
    trace = new_trace()
    for step in _steps(trace, period_ms=44.3):
        for ordinal in range(4):
            begin_ms, end_ms = (round(0.06 + 11.06 * turn, 6) for turn in (ordinal, ordinal + 1))
            step.kernel(ordinal, begin_ms, end_ms)
    return scenario(trace, ["serial-gpus"], ["marginal-gpu", "straggler-gpu"])


def four_launched_in_turn() -> Scenario:
    """The same, because one thread launches for one GPU after the other: 140 kernels of 79 µs each, 5 µs before they begin."""
    trace = new_trace()
    for step in _steps(trace, period_ms=44.3):
        for number in range(4 * 140):
            begin_ms, end_ms = (round(0.06 + 0.079 * place, 6) for place in (number, number + 1))
            step.kernel(number // 140, begin_ms, end_ms, launch_ms=begin_ms - 0.005)
    # While the thread launches for one GPU the others wait for its launches.
    return scenario(trace, ["serial-gpus"], ["marginal-gpu", "straggler-gpu"])


def one_late_gpu() -> Scenario:
    """GPU 1 of four computes 19 instead of 14 ms before each of two all-reduces per step; the others wait in both."""
    trace = new_trace()
    for step in _steps(trace, period_ms=40):
        for ordinal in range(4):
            busy_ms = 19 if ordinal == 1 else 14
            for begin_ms, end_ms in ((0.1, 20.05), (20.05, 40.0)):
                step.kernel(ordinal, begin_ms, begin_ms + busy_ms)
                step.all_reduce(ordinal, begin_ms + busy_ms, end_ms)
    devices = [f"GPU:{ordinal}" for ordinal in range(4)]
    return scenario(
        trace,
        must=["straggler-gpu"],
        must_not=["serial-gpus"],
        collectives={
            "count": 8,
            "transfer_ps": ms(7.6),
            "last_counts": {device: 8 if device == "GPU:1" else 0 for device in devices},
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
    evaluation = {
        "after": 1,
        "functions": {"test_function": 3},
        "begun_ns": 80_000_000,
        "ended_ns": 140_000_000,
    }
    return scenario(
        trace,
        must=["validation-stall"],
        must_not=["input-bound", "callback-stall"],
        sidecar={"window": {"evaluations": [evaluation]}},
    )


def every_fifth_step() -> Scenario:
    """After every fifth of 16 steps of 19.1 ms a callback runs for 5.4 ms; the Python tracer recorded its frame."""
    trace = new_trace(length_ms=400)
    start_ms = 0.0
    for index in range(16):
        is_slow = index % 5 == 4
        step = Step(trace, start_ms)
        trace.marker(index, step.at(0), step.at(19.1))
        step.kernel(0, 0.05, 19.1)
        if is_slow:
            step.host("$callbacks.py:30 on_train_batch_end", 19.1, 24.5)
        start_ms = round(start_ms + (24.5 if is_slow else 19.1), 6)
    return scenario(
        trace,
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
    return scenario(trace, must_not=["launch-bound", "input-bound"])


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
    states = idle_truth(states={"input": 48})
    return scenario(
        trace,
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
    overhead = {
        "unprofiled_ns": 4_000_000,
        "profiled_ns": 10_000_000,
        "ratio": 1.5,
        "spread_ratio": 0.02,
    }
    return scenario(trace, sidecar={"overhead": overhead})


# Many GPUs, and healthy ones


def sixty_four_healthy() -> Scenario:
    """Eight hosts of eight GPUs train alike and compute 98 % of the time: nothing to complain about."""
    traces = {f"host{number}": new_trace(f"host{number}") for number in range(8)}
    for trace in traces.values():
        for index, step in enumerate(_steps(trace)):
            for ordinal in range(8):
                step.kernel(ordinal, 0.1, 49.1)
            all_reduce(step, [(49.1, 50)] * 8, instance=100 + index, asked_ms=0.5)
    findings = findings_truth([], ["collective-exposed", "straggler-gpu", "missing-host"])
    return Scenario(traces, {"findings": findings})


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
    return scenario(
        trace,
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
    "seven_unused_hold_memory": (7 * 4 * ms(50), 8 * 4 * ms(50)),
    # Another device's turn: the compute of the three others.
    "four_serial_gpus": (4 * 4 * 3 * ms(11.06), 4 * 4 * ms(44.3)),
    "four_launched_in_turn": (4 * 4 * 3 * ms(11.06), 4 * 4 * ms(44.3)),
    # Waiting for a device: three GPUs, each until the last one arrives.
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
    # Host ops.
    "slow_profiler": (2 * 8 * ms(0.8), 2 * 8 * ms(10)),
    "the_next_batch_is_prepared": (4 * ms(20), 4 * ms(50)),
    "an_event_that_no_list_knows": (4 * ms(18), 4 * ms(50)),
    "small_steps": (10 * 16 * ms(0.1), 10 * ms(6.1)),
    # Communication, of runs without a problem.
    "sixty_four_healthy": (64 * 4 * ms(0.9), 64 * 4 * ms(50)),
}
"""Time in the leading state over all visible devices and used steps, and devices × steps × length, in picoseconds."""
