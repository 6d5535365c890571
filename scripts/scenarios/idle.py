"""Why does the GPU wait? One run per cause, with odd lengths, and mixtures of two.

All have one GPU and four steps of 61.3 ms. A step begins with what delays it; then the main thread calls the
step function, an executor thread launches one kernel, and the kernel runs for 23.7 ms, or where the delay is
short, for most of the step: after it the host records nothing. What delays it lies inside the host's part of a gap, so
that its length is the truth of its cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from scripts.cuda_trace import NCCL_NAME, U64, Line
from scripts.scenarios.model import (
    Scenario,
    Step,
    idle_truth,
    ms,
    new_trace,
    scenario,
)

PERIOD_MS = 61.3
KERNEL_MS = 23.7
LONG_KERNEL_MS = 41.3
STEP_COUNT = 4
MARKER_MS = 59.9
EXECUTOR = 2
"""Producer and consumer type of the TensorFlow executor."""


class Run:
    """The recording of one run: its trace, and the threads that steps use."""

    def __init__(self) -> None:
        self.trace = new_trace(length_ms=300)
        self.executor: Line = self.trace.thread("tf_gpu_private_0", 8_001)
        self._calls = 0

    def steps(self, marker_ms: float = MARKER_MS) -> Iterator[Step]:
        """Four steps, each with its marker."""
        for index in range(STEP_COUNT):
            step = Step(self.trace, index * PERIOD_MS)
            self.trace.marker(index, step.at(0), step.at(marker_ms))
            yield step

    def scenario(
        self,
        states: dict[str, float],
        must: Sequence[str],
        must_not: Sequence[str] = (),
    ) -> Scenario:
        """The run, with the idle time in ms that each cause has in it."""
        return scenario(self.trace, must, must_not, idle={"GPU:0": idle_truth(states=states)})

    def call(
        self,
        step: Step,
        at_ms: float,
        *,
        kernel_ms: float = KERNEL_MS,
        queued_ms: float = 0.005,
    ) -> float:
        """Call the step function at a moment of the step; returns when its kernel ends."""
        key = U64(2**63 + 7000 + self._calls)
        call_id = 500 + self._calls
        self._calls += 1
        launch_ms = at_ms + 0.02
        end_ms = launch_ms + 0.02
        run = {"id": call_id, "_r": 1, "_pt": EXECUTOR, "_p": key}
        step.host("FunctionRun", at_ms, end_ms + 0.01, run)
        process = {"id": call_id, "iter_num": 0, "_ct": EXECUTOR, "_c": key}
        step.host("ExecutorState::Process", at_ms + 0.01, end_ms, process, thread=self.executor)
        start_ms = launch_ms + queued_ms
        step.kernel(
            0, start_ms, start_ms + kernel_ms, launch_ms=launch_ms, launch_thread=self.executor
        )
        return start_ms + kernel_ms


def waits_for_input() -> Scenario:
    """17.3 ms of each step in the iterator."""
    run = Run()
    for step in run.steps():
        step.host("IteratorGetNext:IteratorGetNext", 0.5, 17.8)
        run.call(step, 17.8)
    return run.scenario({"input": 4 * 17.3}, ["input-bound"], ["host-bound"])


def waits_for_input_in_the_graph() -> Scenario:
    """As in Keras `fit`: 18.7 ms of each step the step function's own iterator op waits on a tf.data thread."""
    run = Run()
    data = run.trace.thread("tf_data_iterator_get_next", 8_300)
    for index, step in enumerate(run.steps()):
        call_id, key = 900 + index, U64(2**63 + 9000 + index)
        step.host("FunctionRun", 0.5, 20, {"id": call_id, "_r": 1, "_pt": EXECUTOR, "_p": key})
        wait = {"id": call_id, "iter_num": 0}
        step.host("IteratorGetNextOp::DoCompute", 0.7, 19.4, wait, thread=data)
        process = {"id": call_id, "iter_num": 0, "_ct": EXECUTOR, "_c": key}
        step.host("ExecutorState::Process", 19.4, 19.9, process, thread=run.executor)
        step.kernel(0, 19.5, 43.2, launch_ms=19.49, launch_thread=run.executor)
    return run.scenario({"input": 4 * 18.7}, ["input-bound"])


def hands_on_after_a_wait() -> Scenario:
    """The host waits until the kernel of the step before is done, and only then dispatches the next step for 8.19 ms.

    It could do so while the kernel runs, so that time is of the wait. In the first step nothing runs meanwhile.
    """
    run = Run()
    for index, step in enumerate(run.steps()):
        step.host("cuStreamSynchronize", 0.5, 4.33, {"correlation_id": 90_000 + index})
        step.host("EagerExecute", 4.4, 12.59)
        run.call(step, 12.6, kernel_ms=53 if index < STEP_COUNT - 1 else 40)
        step.host("cuStreamSynchronize", 20, MARKER_MS - 0.1, {"correlation_id": 95_000 + index})
    gap_ms, silent_ms = 12.625 - 4.325, 0.07
    return run.scenario(
        {
            "sync": 3.83 + 3 * (gap_ms - silent_ms) + MARKER_MS - 0.1 - 52.625,
            "launch": 12.625 - 4.4,
            "between_calls": 4 * silent_ms,
            "unknown": 0.5 + 0.1,
        },
        ["d2h-sync"],
    )


def reads_a_value_unseen() -> Scenario:
    """No call that waits is recorded: a copy to the host is asked for, and its thread is still until it ends.

    The copy waits 6.3 ms in the queue and takes 0.2 ms, in which the host could have launched the kernel.
    """
    run = Run()
    for step in run.steps():
        step.copy(0, "D2H", 7.3, 7.5, size=4, launch_ms=1)
        run.call(step, 8)
    return run.scenario({"sync": 4 * (6.3 + 0.025)}, ["d2h-sync"], ["launch-bound"])


def stages_a_copy() -> Scenario:
    """A copy call blocks 9.7 ms of each step until its copy of 0.1 ms has begun and ended.

    9.6 ms of the call are idle time; the kernel that follows the copy starts 25 µs after it, of which the host
    is late for 20.
    """
    run = Run()
    for step in run.steps():
        copy = run.trace.copy(
            0, "H2D", step.at(10.1), step.at(10.2), size=4_000_000, host_kind="pageable"
        )
        run.trace.launch("MemcpyH2D", step.at(0.5), copy, duration_ps=ms(9.7))
        run.call(step, 10.2, kernel_ms=LONG_KERNEL_MS)
    return run.scenario({"h2d": 4 * 9.605}, ["h2d-exposed"], ["input-bound"])


def calls_new_functions() -> Scenario:
    """Each step calls a function for the first time: its graph is prepared for 45 ms, with a copy of a constant.

    The copy and its call take 0.1 ms of that. The thread is at it from the end of the call before, of which 6.3 ms are
    idle time of the step before.
    """
    run = Run()
    for step in run.steps():
        stats: dict[Any, Any] = {"tf_op": "MakeTensorFromProto"}
        copy = run.trace.copy(0, "H2D", step.at(10.01), step.at(10.09), size=64, stats=stats)
        run.trace.launch("MemcpyH2D", step.at(10), copy, duration_ps=ms(0.1))
        run.call(step, 45, kernel_ms=9.975)
    return run.scenario(
        {"compile": 4 * 44.9 + 3 * 6.3},
        ["first-call"],
        ["compile-in-window", "python-stall", "between-calls"],
    )


def launches_back_to_back() -> Scenario:
    """2000 kernels of 5 µs are launched one every 20 µs, so that 15 µs before each are idle."""
    run = Run()
    for step in run.steps():
        for number in range(2000):
            at_ms = 0.5 + 0.02 * number
            step.kernel(0, at_ms + 0.008, at_ms + 0.013, launch_ms=at_ms)
    states = {"launch": 4 * 1999 * 0.015, "latency": 4 * 0.008}
    return run.scenario(states, ["launch-bound"], ["host-bound"])


def queued_on_another_stream() -> Scenario:
    """A kernel is launched and begins 8.9 ms later, though nothing runs on its GPU."""
    run = Run()
    for step in run.steps():
        run.call(step, 0.5, kernel_ms=LONG_KERNEL_MS, queued_ms=8.9)
    states = {"dependency": 4 * 8.9, "latency": 0}
    must_not = ["launch-bound"]
    return run.scenario(states, [], must_not)


def waits_for_a_peer() -> Scenario:
    """GPU:0 has its next kernel queued for 12.1 ms while GPU:1 still is in the collective."""
    run = Run()
    run.trace.gpu(1)
    for step in run.steps():
        step.kernel(1, 1, 13.1, name=NCCL_NAME, op="NcclAllReduce:NcclAllReduce", launch_ms=0.7)
        step.kernel(1, 13.2, 37, launch_ms=0.8)
        run.call(step, 0.98, queued_ms=12.1)
    return run.scenario({"device_wait": 4 * 12.1, "dependency": 0}, ["straggler-gpu"])


def input_and_callbacks() -> Scenario:
    """Two causes in one gap: 18.3 ms between the markers, then 6.1 ms in the iterator."""
    run = Run()
    for step in run.steps(43):
        step.host("IteratorGetNext:IteratorGetNext", 0, 6.1)
        run.call(step, 6.1)
    states = {"between": 3 * 18.3, "input": 4 * 6.1}
    must = ["callback-stall", "input-bound"]
    return run.scenario(states, must)
