"""Every op of a CPU-only strategy is assigned to the replica that ran it, even if its name has another one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pytest

import traceview
from scripts.cuda_trace import CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import Step, marked_steps, new_trace
from tests.analysis.made import analyzed
from tests.sidecars import mirrored, write_sidecar
from tests.trace.recordings import loaded
from traceview.analysis.exchange.gradients import _replicas_together
from traceview.report.model import Report
from traceview.trace.device.op_names import Phase, event_phases
from traceview.trace.host.host_states import HostStates
from traceview.trace.strategy.replicas import gradient_counts, least_replica_counts

FIRST: Final = "gradient_tape/model/dense/MatMul:MatMul"
SECOND: Final = "gradient_tape/replica_1/model/dense/MatMul:MatMul"


def component(step: Step, number: int, start_ms: float, *ops: str, each_ms: float = 2.0) -> None:
    """One part of a step function that runs on a thread of its own: its ops, one after the other."""
    executor = step.trace.thread(f"tf_Compute_{number}", 900 + number)
    key = round(step.start_ms) * 10 + number
    end_ms = start_ms + each_ms * len(ops)
    step.host("FunctionRun", 1, 1.1, {"_pt": 3, "_p": key})
    consumed = {"_ct": 3, "_c": key, "id": 1, "iter_num": 0}
    step.host("ExecutorState::Process", start_ms, end_ms, consumed, thread=executor)
    for place, op in enumerate(ops):
        begin_ms = start_ms + each_ms * place
        step.host(op, begin_ms + 0.1, begin_ms + each_ms - 0.1, thread=executor)


def two_components(first: list[str], second: list[str]) -> CudaTrace:
    trace = new_trace()
    for step in marked_steps(trace):
        component(step, 1, 2, *first)
        component(step, 2, 2, *second)
    return trace


def test_any_other_op_tells_whose_component_it_is(tmp_path: Path) -> None:
    other = "replica_1/model/dense/BiasAdd:BiasAdd"
    trace = loaded(tmp_path, two_components([FIRST, other], [SECOND]))
    (device,) = range(len(trace.device_list))
    assert trace.device_key(device) == "replica:1"
    assert np.count_nonzero(trace.once(event_phases) == Phase.BACKWARD) == 8


def replicas_with_compute(report: Report) -> dict[str, int]:
    assert report.results.device_time is not None
    return {
        row.device: row.activity["compute"].count if row.activity else 0
        for row in report.results.device_time.devices
    }


def test_one_op_of_another_replica_does_not_decide(tmp_path: Path) -> None:
    """Replica 1 flushes its summaries where the writer is, in the component of replica 0 (TensorFlow 2.21)."""
    flush = "replica_1/write_summary/FlushSummaryWriter:FlushSummaryWriter"
    trace = two_components([FIRST] * 4 + [flush], [SECOND, SECOND])
    assert replicas_with_compute(analyzed(tmp_path, trace)) == {"replica:0": 20, "replica:1": 8}


def test_gradients_on_one_device_are_told_by_their_number(tmp_path: Path) -> None:
    """That one of them waited for a core says nothing of whose they are."""
    trace = new_trace()
    for number, step in enumerate(marked_steps(trace)):
        for place, op in enumerate((FIRST, SECOND, SECOND)):
            length_ms = 8 if (number, op) == (0, FIRST) else 0.1
            step.kernel(0, 9 * place + 1, 9 * place + 1 + length_ms, op=op)
    recording = loaded(tmp_path, trace)
    assert gradient_counts(recording, 0) == {0: 4, 1: 8}
    assert _replicas_together(recording, 0) == [0, 1]


# The strategy of the sidecar


def test_names_of_gpu_ops_show_the_strategy(tmp_path: Path) -> None:
    (path,) = SCENARIOS["replicas_reached_on_two"]().write(tmp_path)
    write_sidecar(path, {"strategy": mirrored("GPU:0", "GPU:1", found_by="memory")})
    environment = traceview.analyze(tmp_path).results.environment
    assert environment is not None
    assert environment.hosts[0].strategy.found_by == "recording"


# Names of ops


def gpu_ops(*ops: str) -> CudaTrace:
    trace = new_trace()
    for step in marked_steps(trace):
        for place, op in enumerate(ops):
            step.kernel(0, 2 + 4 * place, 4 + 4 * place, op=op)
    return trace


@pytest.mark.parametrize(
    ("op", "count"),
    [
        ("replica_3/model/MatMul:MatMul", 4),
        ("_send_replica_6/model/MatMul_0:_Send", 7),
        ("gradient_tape/replica_2_1/model/MatMul:MatMul", 3),
        ("model/MatMul:MatMul", None),
        ("replica_0/model/MatMul:MatMul", None),
        # An optimizer numbers variables, too.
        ("Adam/update_12/mul:Mul", None),
        ("model/my_replica_loss:Mul", None),
    ],
)
def test_how_many_replicas_names_show(op: str, count: int | None, tmp_path: Path) -> None:
    on_device, on_host = gpu_ops(op), gpu_ops("MatMul:MatMul")
    on_host.host_event(op, 10, 20)
    for name, trace in (("device", on_device), ("host", on_host)):
        found = least_replica_counts(loaded(tmp_path / name, trace))
        assert found == ({} if count is None else {0: count}), name


PROGRAM: Final = "CpuExecutable::ExecuteAsyncOnStream"


def test_a_program_that_python_calls_runs_on_the_cpu(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        step.host(PROGRAM, 1, 21)
    assert replicas_with_compute(analyzed(tmp_path, trace)) == {"replica:0": 4}


# Logical devices without a strategy

LOCAL: Final = "/job:localhost/replica:0/task:0/device:CPU"


def on_logical_devices(
    folder: Path, *names: str, asked: int = 2, sends: bool = True
) -> dict[str, int]:
    """The ops of each device of a run with a component for each name; the last one starts first, and sends."""
    trace = new_trace()
    for number, step in enumerate(marked_steps(trace)):
        for place, name in reversed([*enumerate(names)]):
            line, key = trace.thread(f"tf_Compute/{place}", 900 + place), 10 * number + place + 1
            started = {"id": number, "_pt": 3, "_p": key}
            step.host("FunctionRun", 1.9 - 0.1 * place, 1.95 - 0.1 * place, started)
            part = {"id": number, "_ct": 3, "_c": key}
            step.host("ExecutorState::Process", 2, 9, part, thread=line)
            for op in range(place + 1):
                step.host(f"{name}_{op}:MatMul", 2 + op, 3 + op, thread=line)
            if sends and place == len(names) - 1:
                sent = {"key": f"{LOCAL}:{place};1;{LOCAL}:0;1;edge;0:0"}
                step.host("x/_1:_Send", 8, 8.1, sent, thread=line)
    counts = {f"{LOCAL}:{place}": 9 for place in range(asked)}
    placement = {"functions": [{"step": "train", "ops_per_device": counts}]}
    return replicas_with_compute(analyzed(folder, trace, sidecar={"placement": placement}))


def test_a_component_is_the_logical_device_that_it_sends_from(tmp_path: Path) -> None:
    """The rest are the devices that are left, in the order in which the components start."""
    assert on_logical_devices(tmp_path / "2", "a", "b") == {"CPU:0": 4, "CPU:1": 8}
    three = on_logical_devices(tmp_path / "3", "a", "b", "c", asked=3)
    assert three == {"CPU:0": 8, "CPU:1": 4, "CPU:2": 12}
    silent = on_logical_devices(tmp_path / "silent", "a", "b", sends=False)
    assert silent == {"CPU:0": 8, "CPU:1": 4}


def test_one_logical_device_is_one_replica(tmp_path: Path) -> None:
    assert on_logical_devices(tmp_path, "a", "b", asked=1) == {"replica:0": 12}


def test_replicas_in_names_count_more_than_logical_devices(tmp_path: Path) -> None:
    named = on_logical_devices(tmp_path, "a", "replica_1/b")
    assert named == {"replica:0": 4, "replica:1": 8}


@pytest.mark.parametrize("turns", [1, 3])
def test_what_an_op_calls_is_of_the_replica_that_runs_the_op(turns: int, tmp_path: Path) -> None:
    """A loop calls its body from the thread of its own op, and then where the last turn has ended; names of ops say nothing."""
    trace = new_trace()
    for step in marked_steps(trace):
        component(step, 1, 2, FIRST)
        component(step, 2, 2, SECOND, each_ms=4)
        step.host("FunctionRun", 1.2, 30)
        caller, body = (
            step.trace.thread(f"tf_Compute_{number}", 900 + number) for number in (2, 3)
        )
        for turn in range(turns):
            key, begin_ms = round(step.start_ms) * 10 + 5 + turn, 3 + 5 * turn
            called_at = (3, caller) if turn == 0 else (begin_ms - 0.5, body)
            step.host(
                "FunctionRun",
                called_at[0],
                called_at[0] + 0.1,
                {"_pt": 3, "_p": key},
                thread=called_at[1],
            )
            runs = {"_ct": 3, "_c": key, "id": 1, "iter_num": 0}
            step.host("ExecutorState::Process", begin_ms + 0.5, begin_ms + 3, runs, thread=body)
            step.host("Exp:Exp", begin_ms + 0.6, begin_ms + 2.9, thread=body)
            ended = {"_ct": 3, "_c": key}
            step.host("ExecutorDoneCallback", begin_ms + 4, begin_ms + 4.9, ended, thread=body)
    report = analyzed(tmp_path, trace)
    assert replicas_with_compute(report) == {"replica:0": 4, "replica:1": 4 * (1 + turns)}
    # The thread of the loop is none of Python, whose ops would be guests.
    assert HostStates(traceview.load(tmp_path), 0).guests == {}
