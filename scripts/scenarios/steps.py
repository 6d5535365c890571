"""Where does one step end and the next begin? Runs that differ in what marks their steps."""

from __future__ import annotations

from scripts.cuda_trace import U64, CudaTrace
from scripts.scenarios.model import (
    Scenario,
    Step,
    Truth,
    device_truth,
    findings_truth,
    idle_truth,
    marked_steps,
    ms,
    new_trace,
    scenario,
    steps_truth,
    window_truth,
)

WINDOW_MS = 199.9
EXECUTOR = 2
"""Producer and consumer type of the TensorFlow executor."""


def _four_steps(method: str = "marker", **others: Truth) -> Truth:
    """One kernel of 40 ms in each of four steps of 50 ms."""
    return {
        "windows": window_truth(WINDOW_MS),
        "steps": steps_truth([50, 50, 50, 49.9], 50, method=method),
        "device_time": {"GPU:0": device_truth(WINDOW_MS, compute=160, idle=39.9)},
        **others,
    }


def _linked_kernel(
    trace: CudaTrace, index: int, *, run_ms: float, start_ms: float, end_ms: float
) -> None:
    """FunctionRun → ExecutorState::Process on another thread → launch → kernel, as recorded.

    `run_ms` is when the main thread calls the function; the executor begins half a ms later.
    """
    executor = trace.thread("tf_gpu_private_0", 8_001)
    step = Step(trace, 50 * index, thread=executor)
    key = U64(2**63 + 5000 + index)
    call = {"id": 1000 + index, "_r": 1, "_pt": EXECUTOR, "_p": key}
    step.host("FunctionRun", run_ms, run_ms + 0.3, call)
    process = {"id": 1000 + index, "iter_num": 0, "_ct": EXECUTOR, "_c": key}
    step.host("ExecutorState::Process", run_ms + 0.5, run_ms + 2, process, thread=executor)
    step.kernel(0, start_ms, end_ms, launch_ms=run_ms + 1)


def keras_batches() -> Scenario:
    """Keras' TensorBoard callback marks steps as `Profiled batch`, without a root level."""
    trace = new_trace()
    for index in range(4):
        step = Step(trace, 50 * index)
        step.host("Profiled batch", 0, 49.9, {"step_num": index + 1})
        step.kernel(0, 2, 42)
    truth = _four_steps("keras")
    truth["steps"]["number"] = [1, 2, 3, 4]
    return Scenario({"host0": trace}, truth)


def keras_epochs() -> Scenario:
    """Step numbers begin again with the second epoch."""
    trace = new_trace(length_ms=350)
    for index in range(6):
        step = Step(trace, 50 * index)
        trace.marker(index % 3, step.at(0), step.at(49.9))
        step.kernel(0, 2, 42)
    return scenario(
        trace,
        windows=window_truth(299.9),
        steps={
            **steps_truth([50, 50, 50, 50, 50, 49.9], 50),
            "number": [0, 1, 2, 3, 4, 5],
            "recorded_number": [0, 1, 2, 0, 1, 2],
        },
        device_time={"GPU:0": device_truth(299.9, compute=240, idle=59.9)},
    )


def stored_steps() -> Scenario:
    """No marker, but a `Steps` line that the writer derived: four steps on each of two GPUs."""
    trace = new_trace()
    for index in range(4):
        step = Step(trace, 50 * index)
        step.kernel(0, 2, 42, stats={"group_id": index})
        step.kernel(1, 4, 44, stats={"group_id": index})
        end_ms = 52 if index < 3 else 44
        for ordinal in (0, 1):
            line = trace.gpu(ordinal).line(-559038737, "Steps")
            line.add(str(index), step.at(2), step.at(end_ms), {"group_id": index})
    device = device_truth(192, compute=160, idle=32)
    return scenario(
        trace,
        ["no-step-marker"],
        windows=window_truth(192, start_ps=1_000_000 + ms(2)),
        steps=steps_truth([50, 50, 50, 42], 50, starts_ms=[2, 52, 102, 152], method="group"),
        device_time={"GPU:0": device, "GPU:1": device},
    )


def function_steps() -> Scenario:
    """No marker: the repeated root `FunctionRun` is the step; a tf.data thread's roots are not."""
    trace = new_trace()
    data = trace.thread("tf_data_private_threadpool", 8_100)
    for index in range(4):
        _linked_kernel(trace, index, run_ms=0.5, start_ms=2, end_ms=42)
        step = Step(trace, 50 * index)
        for offset_ms in (5, 25):
            own_id = {"id": 77}
            step.host(
                "InstantiatedCapturedFunction::Run", offset_ms, offset_ms + 4, own_id, thread=data
            )
            root = {"id": 77, "_r": 1}
            step.host("FunctionRun", offset_ms + 1, offset_ms + 2, root, thread=data)
    return scenario(
        trace,
        ["no-step-marker"],
        windows=window_truth(191.5, start_ps=1_000_000 + ms(0.5)),
        steps=steps_truth(
            [50, 50, 50, 41.5], 50, starts_ms=[0.5, 50.5, 100.5, 150.5], method="function"
        ),
        device_time={"GPU:0": device_truth(191.5, compute=160, idle=31.5)},
    )


def kernels_after_marker() -> Scenario:
    """Markers of 10 ms, kernels until 45 ms: the last step ends with the kernel it launched."""
    trace = new_trace()
    for index in range(4):
        trace.marker(index, ms(50 * index), ms(50 * index + 10))
        _linked_kernel(trace, index, run_ms=0.5, start_ms=12, end_ms=45)
    return scenario(
        trace,
        ["callback-stall"],
        windows=window_truth(195),
        steps=steps_truth([50, 50, 50, 45], 50),
        device_time={"GPU:0": device_truth(195, compute=132, idle=63)},
        # From the end of each kernel but the last to the next marker the host is in no step.
        idle={"GPU:0": idle_truth(states={"between": 3 * 5})},
    )


def host_runs_ahead() -> Scenario:
    """The host issues a step every 5 ms, the device needs 40: its kernels cut the steps.

    Kernel i of eight runs from 2 + 40 i to 40 + 40 i.
    """
    trace = new_trace(length_ms=350)
    for index in range(8):
        step = Step(trace, 5 * index)
        trace.marker(index, step.at(0), step.at(4.9))
        offset_ms = 35 * index
        step.kernel(0, 2 + offset_ms, 40 + offset_ms)
    return scenario(
        trace,
        windows=window_truth(318, start_ps=1_000_000 + ms(2)),
        steps=steps_truth(
            [40, 40, 40, 40, 40, 40, 40, 38],
            40,
            starts_ms=[2, 42, 82, 122, 162, 202, 242, 282],
            basis="device",
            used_count=7,
        ),
        device_time={"GPU:0": device_truth(318, compute=304, idle=14)},
    )


def nested_markers() -> Scenario:
    """Two micro-batches with markers of their own inside each marked step: the outer ones count."""
    trace = new_trace()
    for index, step in enumerate(marked_steps(trace)):
        for half in (0, 1):
            begin_ms = 5 + 20 * half
            trace.marker(2 * index + half, step.at(begin_ms), step.at(begin_ms + 15))
        step.kernel(0, 2, 42)
    return Scenario({"host0": trace}, _four_steps())


def first_step_traces() -> Scenario:
    """The first step of 200 ms holds 149 ms of tf.function tracing; it is in no median."""
    trace = new_trace(length_ms=400)
    starts_ms, markers_ms = (0, 200, 250, 300), (199.9, 49.9, 49.9, 49.9)
    for index, (start_ms, marker_ms) in enumerate(zip(starts_ms, markers_ms, strict=True)):
        step = Step(trace, start_ms)
        trace.marker(index, step.at(0), step.at(marker_ms))
        mode = "notTraced-nonXla" if index else "traced-nonXla"
        call = {"tf_function_call": mode, "tracing_count": 1}
        traced_ms = 0.2 if index else 150
        step.host("train_step", 0.1 if index else 1, traced_ms, call)
        begin_ms = 2 if index else 152
        step.kernel(0, begin_ms, begin_ms + 40, launch_ms=begin_ms - 1)
    return scenario(
        trace,
        windows=window_truth(349.9),
        steps=steps_truth([200, 50, 50, 49.9], 50, starts_ms=starts_ms, used_count=3),
        device_time={"GPU:0": device_truth(349.9, compute=160, idle=189.9)},
        idle={"GPU:0": idle_truth(states={"compile": 149})},
        must_not=["retracing"],
    )


def retracing() -> Scenario:
    """The third step traces the function again, for 30 of its 50 ms."""
    trace = new_trace()
    for index, step in enumerate(marked_steps(trace)):
        traces = index == 2
        mode = "traced-nonXla" if traces else "notTraced-nonXla"
        call = {"tf_function_call": mode, "tracing_count": 2 if index >= 2 else 1}
        step.host("train_step", 0.5, 31 if traces else 0.9, call)
        if traces:
            step.kernel(0, 32, 48, launch_ms=31.5)
        else:
            step.kernel(0, 2, 42, launch_ms=1)
    truth = _four_steps()
    truth["device_time"] = {"GPU:0": device_truth(WINDOW_MS, compute=136, idle=63.9)}
    truth["idle"] = {"GPU:0": idle_truth(states={"compile": 30.5})}
    truth["findings"] = findings_truth(["retracing"], ["compile-in-window"])
    return Scenario({"host0": trace}, truth)


def no_steps() -> Scenario:
    """Nothing marks or repeats: a report by device only, over first to last device event."""
    trace = new_trace()
    for index, (start_ms, end_ms) in enumerate(((5, 17), (30, 31), (90, 135))):
        step = Step(trace, 0)
        step.kernel(0, start_ms, end_ms, name=f"kernel_{index}", op=None, launch_ms=start_ms - 1)
    return scenario(
        trace,
        ["no-step-marker"],
        windows=window_truth(130, kind="devices", start_ps=1_000_000 + ms(5)),
        device_time={"GPU:0": device_truth(130, compute=58, idle=72)},
        steps={"method": "none", "count": 0},
    )
