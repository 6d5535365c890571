"""Side work in the step and a step of mostly updates are findings, on both sides of each limit; ops are measured per step."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.cuda_trace import CudaTrace
from scripts.scenarios.model import Step, marked_steps, ms, new_trace
from tests.analysis.made import loss_of, lost_ps, the
from tests.python_sidecars import clocks_group
from tests.sidecars import write_sidecar
from traceview.analysis.gpu_time.op_steps import MOST_OPS, OpInSteps, OpSteps, kernel_stem
from traceview.analysis.rules.finding import Finding
from traceview.analysis.workload.compute_rules import HOST_OP
from traceview.report.build import analyze
from traceview.trace.device.op_names import SideWork, side_work_of

Spans = dict[str, tuple[float, float]]


def run_component(step: Step, number: int, ops: Spans) -> None:
    """The ops of one component, each on a thread of its own, so that they may overlap."""
    key = round(step.start_ms) * 10 + number
    step.host("FunctionRun", 1, 1.1, {"_pt": 3, "_p": key})
    consumed = {"_ct": 3, "_c": key, "id": 1, "iter_num": 0}
    for place, (op, (start_ms, end_ms)) in enumerate(ops.items()):
        executor = step.trace.thread(f"tf_Compute_{number}_{place}", 900 + 20 * number + place)
        step.host("ExecutorState::Process", 2, 49, consumed, thread=executor)
        step.host(op, start_ms, end_ms, thread=executor)


def run_of(*components: Spans) -> CudaTrace:
    """Four steps of 50 ms (the last one 49.9 ms) with these components."""
    trace = new_trace()
    for step in marked_steps(trace):
        for number, ops in enumerate(components):
            run_component(step, number, ops)
    return trace


def analyzed(folder: Path, trace: CudaTrace) -> list[Finding]:
    trace.write(folder)
    codes = ("host-op-in-step", "optimizer-bound", "straggler-gpu")
    return [finding for finding in traceview.analyze(folder).findings if finding.code in codes]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (b"EagerPyFunc:EagerPyFunc", SideWork.PYTHON),
        (b"loop/PyFunc_3:PyFunc", SideWork.PYTHON),
        (b"StringFormat:StringFormat", SideWork.PRINTING),
        (b"PrintV2:PrintV2", SideWork.PRINTING),
        (b"loss/write_summary/WriteScalarSummary:WriteScalarSummary", SideWork.SUMMARIES),
        (b"loss/write_summary_2/buckets/cond/Sum:Sum", SideWork.SUMMARIES),
        (b"replica_1/FlushSummaryWriter:FlushSummaryWriter", SideWork.SUMMARIES),
        (b"model/mul/DebugNumericSummaryV2_1:DebugNumericSummaryV2", SideWork.CHECKS),
        (b"loss/CheckNumerics:CheckNumerics", SideWork.CHECKS),
        (b"StringSplit/StringSplitV2:StringSplitV2", SideWork.TEXT),
        (b"StaticRegexReplace:StaticRegexReplace", SideWork.TEXT),
        (b"loss/StringSplit_1/strided_slice:StridedSlice", SideWork.TEXT),
        (b"loss/StringSplitter/strided_slice:StridedSlice", None),
        (b"model/StringFormatted:RaggedTensorToTensor", None),
        (b"model/write_summary:Sum", None),
        (b"model/dense/MatMul:MatMul", None),
        (b"EagerPyFunc", None),
        (b"fusion_3", None),
    ],
)
def test_what_a_name_shows(name: bytes, kind: SideWork | None) -> None:
    assert side_work_of(name) is kind


def test_what_sticks_out_of_the_model_is_measured(tmp_path: Path) -> None:
    """The function runs from 10 to 20 ms, the model from 2 to 14: 6 ms alone, of 18 ms of compute."""
    ops = {"model/MatMul:MatMul": (2.0, 14.0), "EagerPyFunc:EagerPyFunc": (10.0, 20.0)}
    (finding,) = analyzed(tmp_path, run_of(ops))
    assert (finding.code, finding.severity, lost_ps(finding)) == (
        "host-op-in-step",
        "warning",
        ms(6),
    )
    assert finding.title == "replica:0 spends 6.00 of 50.0 ms (12%) in tf.py_function"


@pytest.mark.parametrize(("update_ms", "is_reported"), [(20.0, True), (19.9, False)])
def test_an_optimizer_may_take_less_than_two_fifths(
    update_ms: float, is_reported: bool, tmp_path: Path
) -> None:
    ops = {"model/MatMul:MatMul": (2.0, 12.0), "adam/Mul:Mul": (20.0, 20 + update_ms)}
    findings = analyzed(tmp_path, run_of(ops))
    assert [finding.code for finding in findings] == ["optimizer-bound"] * is_reported


def test_the_loss_is_the_share_of_the_time_of_all_devices(tmp_path: Path) -> None:
    """Replica 1 calls its function when that of replica 0 has returned: each waits for the function of the other one."""
    function = "EagerPyFunc:EagerPyFunc"
    first = {"model/MatMul:MatMul": (2.0, 4.0), function: (4.0, 14.0)}
    second = {
        "replica_1/model/MatMul:MatMul": (2.0, 3.0),
        f"replica_1/{function}": (14.0, 34.0),
        "replica_1/Sum:Sum": (34.0, 35.0),
    }
    finding, *_ = analyzed(tmp_path, run_of(first, second))
    assert (finding.code, finding.devices) == ("host-op-in-step", ("replica:0", "replica:1"))
    assert (loss_of(finding).ps_per_step, loss_of(finding).gpu_time_ps) == (ms(30), 4 * ms(60))


@pytest.mark.parametrize(("cores", "lost_ms"), [(None, 30), (1, 30), (2, 20)])
def test_replicas_lose_no_more_to_ops_than_these_take_of_the_cores_that_they_share(
    cores: int | None, lost_ms: float, tmp_path: Path
) -> None:
    first = {"model/MatMul:MatMul": (2.0, 4.0), "crop/x:Mul": (4.0, 14.0)}
    second = {
        "replica_1/model/MatMul:MatMul": (2.0, 3.0),
        "replica_1/crop/x:Mul": (14.0, 34.0),
        "replica_1/Sum:Sum": (34.0, 35.0),
    }
    groups = {"cores": {"machine_count": 8, "usable_count": cores}} if cores else {}
    graphs = {"graphs": {"batch_ops": ["crop/x", "replica_1/crop/x"]}}
    write_sidecar(run_of(first, second).write(tmp_path), graphs | groups)
    found = the(traceview.analyze(tmp_path), "batch-work-in-step")
    assert loss_of(found).ps_per_step == ms(lost_ms)
    assert (loss_of(found).gain_ps_per_step or 0) <= ms(lost_ms)


@pytest.mark.parametrize(("factor", "reason"), [(1.4, None), (1.6, "work")])
def test_a_replica_that_takes_much_longer_has_more_data(
    factor: float, reason: str | None, tmp_path: Path
) -> None:
    """The names of the ops of two replicas differ; cores that are dealt out unevenly make no such difference."""
    collective = "CollectiveReduceV2:CollectiveReduceV2"
    trace = new_trace()
    for step in marked_steps(trace):
        for replica, length_ms in enumerate((12.0, 12.0 * factor)):
            prefix = f"replica_{replica}/" if replica else ""
            ops = {
                f"{prefix}model/MatMul:MatMul": (2.0, 2 + length_ms),
                f"{prefix}{collective}": (2 + length_ms, 40.0),
            }
            run_component(step, replica, ops)
    findings = analyzed(tmp_path, trace)
    assert [row.sentences[0] for row in findings] == ([reason] if reason else [])
    # Half of what the one has more the other one can have.
    gains = [row.loss.gain_ps_per_step for row in findings if row.loss]
    assert gains == ([ms(3.6)] if reason else [])


def test_the_limit_is_of_the_time_of_all_devices(tmp_path: Path) -> None:
    first = {"model/MatMul:MatMul": (2.0, 4.0), "adam/Mul:Mul": (4.0, 34.0)}
    second = {"replica_1/model/MatMul:MatMul": (2.0, 3.0), "replica_1/adam/Mul:Mul": (16.0, 24.0)}
    findings = analyzed(tmp_path, run_of(first, second))
    assert [finding.code for finding in findings] == ["straggler-gpu"]


def test_checks_after_every_op_cost_at_least_what_they_take(tmp_path: Path) -> None:
    """Ops between checks are not fused: the loss is a bound, that of a single check is not."""
    model = {"model/MatMul:MatMul": (2.0, 8.0)}
    every = {**model, "model/MatMul/DebugNumericSummaryV2:DebugNumericSummaryV2": (8.0, 18.0)}
    one = {**model, "loss/CheckNumerics:CheckNumerics": (8.0, 18.0)}
    (of_every,) = analyzed(tmp_path / "every", run_of(every))
    (of_one,) = analyzed(tmp_path / "one", run_of(one))
    assert of_every.title.endswith("in tf.debugging.enable_check_numerics")
    assert of_one.title.endswith("in tf.debugging.check_numerics")
    assert " at least " in of_every.title
    assert " at least " not in of_one.title
    assert of_every.action == of_one.action == HOST_OP.actions["checks"][0]


def test_ops_of_the_input_pipeline_never_count(tmp_path: Path) -> None:
    trace = run_of({"model/MatMul:MatMul": (2.0, 8.0)})
    worker = trace.thread("tf_data_private_threadpool", 950)
    trace.host_event("EagerPyFunc:EagerPyFunc", ms(10), ms(40), thread=worker)
    assert analyzed(tmp_path, trace) == []


# Ops per used step


def op_steps(folder: Path, *, lengths: tuple[float, ...], names: int = 1) -> OpSteps:
    """Steps in which two GPUs run `dense` for these milliseconds, and GPU:0 short kernels of other names before."""
    trace = new_trace()
    for step, length in zip(marked_steps(trace, count=len(lengths)), lengths, strict=True):
        for ordinal in (0, 1):
            begin, name = 5 + ordinal, f"void dense<float, {ordinal}>(float*)"
            step.kernel(ordinal, begin, begin + length, name=name, op="replica_1/dense:MatMul")
        for number in range(names):
            step.kernel(0, 1 + number / 100, 1 + number / 100 + 0.005, name=f"k{number}", op=None)
    trace.write(folder)
    result = analyze(folder).results.op_steps
    assert result is not None
    return result


def row_of(result: OpSteps, op: str) -> OpInSteps:
    return next(row for row in result.rows if row.op == op)


def test_one_step_has_no_noise(tmp_path: Path) -> None:
    row = row_of(op_steps(tmp_path, lengths=(10,)), "dense")
    assert (row.error_ps, row.error_degrees) == (None, None)


def test_of_many_ops_the_longest_are_kept(tmp_path: Path) -> None:
    result = op_steps(tmp_path, lengths=(10, 10), names=3 * MOST_OPS)
    assert len(result.rows) + result.left_out_count == 3 * MOST_OPS + 1
    assert MOST_OPS <= len(result.rows) <= 2 * MOST_OPS
    assert result.left_out_ps_per_step == ms(0.005)


def test_compute_is_of_the_layer_of_all_its_ops(tmp_path: Path) -> None:
    """Three ops of a layer, one of them a gradient, on two GPUs; what has no layer, and what computes nothing, is in no part."""
    trace = new_trace()
    for number, step in enumerate(marked_steps(trace, count=3)):
        for ordinal in (0, 1):
            step.kernel(ordinal, 1, 2, op="net/dense/MatMul:MatMul")
            step.kernel(ordinal, 2, 3 + number, op="net/dense/BiasAdd:BiasAdd")
            step.kernel(ordinal, 6, 7, op="gradient_tape/net/dense/MatMul/MatMul:MatMul")
            step.kernel(ordinal, 8, 9, op=None)
            step.kernel(ordinal, 9.5, 9.8, name="ncclDevKernel_AllReduce", op="net/dense/Sum:Sum")
        step.copy(0, "H2D", 9, 9.5, size=8)
    trace.write(tmp_path)
    result = analyze(tmp_path).results.op_steps
    assert result is not None
    (part,) = result.parts
    assert (part.layer, part.source_line) == ("net/dense", None)
    assert (part.device_count, part.count) == (2, 18)
    of_layer = [
        row for row in result.rows if row.op and "dense" in row.op and row.class_ == "compute"
    ]
    assert len(of_layer) == 3
    assert part.ps_per_step == sum(row.ps_per_step for row in of_layer) == ms(8)
    assert part.path_ps == sum(row.path_ps for row in of_layer)
    # Only one of its ops varies.
    assert part.error_ps == max(row.error_ps or 0 for row in of_layer)


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("void gemm<float, 4>(float*)", "gemm"),
        ("void a::(anonymous namespace)::softmax<float>(float*)", "a::softmax"),
        ("<unnamed>", "<unnamed>"),
    ],
)
def test_a_kernel_is_known_by_its_stem(name: str, stem: str) -> None:
    assert kernel_stem(name) == stem


def test_parts_are_of_what_the_ledger_calls_compute(tmp_path: Path) -> None:
    """The thread of the op waits for a core, which another process has, for half of the time: that is none of the compute."""
    trace = new_trace(length_ms=1000)
    executor = trace.thread("tf_Compute", 41)
    for step in marked_steps(trace, count=8, period_ms=100, marker_ms=100):
        step.host("FunctionRun", 0, 90)
        step.host("replica_0/net/dense/MatMul:MatMul", 10, 90, thread=executor)
    own_ns = 500_000_000
    sidecar = {
        "threads": clocks_group({1: (0.0, 0.0), 41: (0.4, 0.4)}, length_ms=1000),
        "cores": {"machine_count": 2, "usable_count": 2},
        "load": {"elapsed_ns": 10**9, "busy_ns": 2 * 10**9, "own_ns": own_ns, "cores": 2},
    }
    write_sidecar(trace.write(tmp_path), sidecar)
    results = analyze(tmp_path).results
    assert results.op_steps is not None
    assert results.ledger is not None
    (device,), (part,) = results.ledger.devices, results.op_steps.parts
    assert device.states["no_core"] > ms(20)
    assert part.layer == "net/dense"
    assert abs(part.ps_per_step - device.states["compute"]) <= 1
    assert results.op_steps.rows[0].ps_per_step > ms(79)
