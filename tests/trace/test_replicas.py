"""Every op of a CPU-only strategy is assigned to the replica that ran it, even if its name has another one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

import traceview
from scripts.cuda_trace import CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import Step, marked_steps, new_trace
from tests.sidecars import mirrored, write_sidecar
from traceview.report.model import Report
from traceview.trace.device.op_names import Phase, event_phases
from traceview.trace.model import Trace
from traceview.trace.strategy.replicas import least_replica_counts

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


def gradients_of(trace: Trace) -> dict[str, int]:
    """Gradient ops by device."""
    columns, is_gradient = trace.device_columns, trace.once(event_phases) == Phase.BACKWARD
    devices = range(len(trace.device_list))
    return {trace.device_key(d): int(is_gradient[columns.rows_of(d)].sum()) for d in devices}


def test_any_other_op_tells_whose_component_it_is(tmp_path: Path) -> None:
    two_components([FIRST, "replica_1/model/dense/BiasAdd:BiasAdd"], [SECOND]).write(tmp_path)
    assert gradients_of(traceview.load(tmp_path)) == {"replica:1": 8}


def replicas_with_compute(report: Report) -> dict[str, int]:
    assert report.results.device_time is not None
    return {
        row.device: row.activity["compute"].count if row.activity else 0
        for row in report.results.device_time.devices
    }


def test_one_op_of_another_replica_does_not_decide(tmp_path: Path) -> None:
    """Replica 1 flushes its summaries where the writer is, in the component of replica 0 (TensorFlow 2.21)."""
    flush = "replica_1/write_summary/FlushSummaryWriter:FlushSummaryWriter"
    two_components([FIRST, FIRST, flush], [SECOND, SECOND]).write(tmp_path)
    assert replicas_with_compute(traceview.analyze(tmp_path)) == {"replica:0": 12, "replica:1": 8}


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
        trace.write(tmp_path / name)
        found = least_replica_counts(traceview.load(tmp_path / name))
        assert found == ({} if count is None else {0: count}), name


PROGRAM: Final = "CpuExecutable::ExecuteAsyncOnStream"


def test_a_program_that_python_calls_runs_on_the_cpu(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        step.host(PROGRAM, 1, 21)
    trace.write(tmp_path)
    assert replicas_with_compute(traceview.analyze(tmp_path)) == {"replica:0": 4}
