"""Who waited for whom? Runs in which overlap, silence or a name that no list knows suggests another cause than the true one.

All have four steps of 50 ms without a pause between their markers.
"""

from __future__ import annotations

from scripts.cuda_trace import CudaTrace, Stats
from scripts.scenarios.model import (
    Scenario,
    Step,
    Truth,
    idle_truth,
    marked_steps,
    new_trace,
    scenario,
)

_EXECUTOR = 2
"""Producer and consumer type of the TensorFlow executor."""


def _steps(trace: CudaTrace) -> list[Step]:
    return marked_steps(trace, period_ms=50, marker_ms=50)


def _scenario(
    trace: CudaTrace,
    states: Truth,
    must: list[str],
    must_not: list[str],
) -> Scenario:
    return scenario(trace, must, must_not, idle={"GPU:0": idle_truth(states=states)})


def the_next_batch_is_prepared() -> Scenario:
    """The thread that launches computes on the host for 20 ms, while another one prepares the batch of the next step.

    The batch of this step was taken within 0.1 ms. What the other thread does overlaps with the idle time, and nothing waits
    for it.
    """
    trace = new_trace()
    executor, data = trace.thread("tf_Compute", 41), trace.thread("tf_data_private_threadpool", 91)
    for index, step in enumerate(_steps(trace)):
        step.host("IteratorGetNext:IteratorGetNext", 0, 0.1)
        run: Stats = {"id": 500 + index, "_r": 1, "_pt": _EXECUTOR, "_p": 7_000 + index}
        step.host("FunctionRun", 0.1, 20.2, run)
        consumed: Stats = {"id": 500 + index, "iter_num": 0, "_ct": _EXECUTOR, "_c": 7_000 + index}
        step.host("ExecutorState::Process", 0.1, 20.15, consumed, thread=executor)
        step.host("model/lookup/PyFunc:PyFunc", 0.1, 20.1, thread=executor)
        step.host("GatherV2:GatherV2", 0.2, 19.9, thread=data)
        step.kernel(0, 20.105, 50, launch_ms=20.1, launch_thread=executor)
    return _scenario(trace, {"host_ops": 80, "input": 0.4}, ["cpu-heavy-op"], ["input-bound"])


def an_event_that_no_list_knows() -> Scenario:
    """XLA prepares buffers for 18 ms before it launches; the driver's calls of that thread are on a line of their own.

    Nothing is recorded on the driver's line meanwhile, and its name is not that of the thread.
    """
    trace = new_trace()
    thread, driver = trace.thread("py_xla_execute", 555), trace.thread("Host Threads", 583)
    driver.name = "Host Threads/583"
    for step in _steps(trace):
        step.host("PjitFunction(step)", 0, 0.2)
        step.host("Execute", 0.2, 22, thread=thread)
        step.host("Build buffer allocations", 0.25, 18.25, thread=thread)
        step.host("ExecuteThunks", 18.3, 21.9, thread=thread)
        for number in range(3):
            begin_ms = 18.4 + 10.5 * number
            end_ms = begin_ms + (10.5 if number < 2 else 10.6)
            launch_ms = 18.35 + 0.1 * number
            step.kernel(0, begin_ms, end_ms, launch_ms=launch_ms, launch_thread=driver)
    return _scenario(
        trace,
        {"host_ops": 72, "between_calls": 0},
        ["cpu-heavy-op"],
        ["launch-bound", "python-stall", "between-calls"],
    )
