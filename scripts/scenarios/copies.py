"""What do copies cost the training? Runs that differ in how data travels between the host and a GPU."""

from __future__ import annotations

from scripts.cuda_trace import Ref, Stats
from scripts.scenarios.model import Scenario, device_truth, marked_steps, new_trace, scenario

WINDOW_MS = 199.9
SMALL_COPY_COUNT = 300
SMALL_COPY_BYTES = 4096


def overlapped_copies() -> Scenario:
    """The next batch travels while this one is computed: 20 of 50 ms, and none of it is waited for."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.copy(0, "H2D", 5, 25, size=100_000_000)
        step.kernel(0, 2, 46)
    device = device_truth(WINDOW_MS, compute=176, idle=23.9)
    return scenario(trace, must_not=["h2d-exposed"], device_time={"GPU:0": device})


def small_copies() -> Scenario:
    """300 copies of 4 KiB before each kernel, 10 µs each and 10 µs apart."""
    trace = new_trace()
    for step in marked_steps(trace):
        for index in range(SMALL_COPY_COUNT):
            start_ms = 1 + 0.02 * index
            step.copy(0, "H2D", start_ms, start_ms + 0.01, size=SMALL_COPY_BYTES)
        step.kernel(0, 7, 47)
    device = device_truth(WINDOW_MS, compute=160, h2d=12, idle=27.9)
    return scenario(trace, ["h2d-exposed"], device_time={"GPU:0": device})


def read_back() -> Scenario:
    """A metric is read in every step: the thread asks at 1 ms and does nothing until 30.5 ms."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 30)
        step.copy(0, "D2H", 30, 30.5, size=4, launch_ms=1)
    device = device_truth(WINDOW_MS, compute=112, d2h=2, idle=85.9)
    return scenario(trace, must_not=["h2d-exposed"], device_time={"GPU:0": device})


def cpu_op_between() -> Scenario:
    """`Where` runs on the CPU between two kernels: its input comes down and its result goes up again."""
    trace = new_trace()
    executor = trace.thread("tf_Compute", 8_001)
    down: Stats = {"tf_op": Ref("model/dense/MatMul/_5:_HostRecv")}
    up: Stats = {"tf_op": Ref("model/where/Where/_7:_Recv")}
    for step in marked_steps(trace):
        step.kernel(0, 2, 10)
        step.copy(0, "D2H", 10, 11, size=1_000_000, stats=down, stream=22)
        step.host("model/where/Where:Where", 11.1, 13, thread=executor)
        step.copy(0, "H2D", 13.2, 14.2, size=500_000, stats=up, launch_ms=13.1)
        step.kernel(0, 14.3, 40)
    device = device_truth(WINDOW_MS, compute=134.8, d2h=4, h2d=4, idle=57.1)
    return scenario(trace, ["cpu-heavy-op"], ["h2d-exposed"], device_time={"GPU:0": device})
