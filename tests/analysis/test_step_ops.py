"""Side work in the step and a step of mostly updates are findings, on both sides of each limit."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.cuda_trace import CudaTrace
from scripts.scenarios.model import Step, marked_steps, ms, new_trace
from traceview.analysis.base import Finding
from traceview.analysis.step_ops.findings import HOST_OP, OPTIMIZER_BOUND
from traceview.analysis.step_ops.result import DeviceStepOps
from traceview.trace.side_work import SideWork, side_work_of

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


def analyzed(folder: Path, trace: CudaTrace) -> tuple[list[DeviceStepOps], list[Finding]]:
    trace.write(folder)
    report = traceview.analyze(folder)
    rows = report.results.step_ops.devices if report.results.step_ops else ()
    codes = ("host-op-in-step", "optimizer-bound", "straggler-gpu")
    return list(rows), [finding for finding in report.findings if finding.code in codes]


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
    """The function runs from 10 to 20 ms, the model from 2 to 14: 6 ms alone, 10 in all, of 18 ms of compute."""
    ops = {"model/MatMul:MatMul": (2.0, 14.0), "EagerPyFunc:EagerPyFunc": (10.0, 20.0)}
    (row,), (finding,) = analyzed(tmp_path, run_of(ops))
    (kind,) = row.kinds
    assert (kind.kind, kind.op_types, kind.count) == ("python", ("EagerPyFunc",), 4)
    assert (kind.ps_per_step, kind.alone_ps_per_step) == (ms(10), ms(6))
    assert kind.compute_ratio == pytest.approx(10 / 18)
    assert row.idle_ps_per_step == (4 * ms(32) - ms(0.1)) // 4
    assert (finding.code, finding.severity, finding.cost_statistic) == (
        "host-op-in-step",
        "warning",
        "mean",
    )
    assert finding.cost_ps_per_step == ms(6)
    assert finding.title == (
        "tf.py_function inside the step takes 6.00 ms of the mean 50.0 ms step on replica:0 (12.0%), counted as compute"
    )


@pytest.mark.parametrize(("length_ms", "is_reported"), [(2.5, True), (2.4, False)])
def test_a_twentieth_of_the_step_is_worth_a_finding(
    length_ms: float, is_reported: bool, tmp_path: Path
) -> None:
    ops = {"model/MatMul:MatMul": (2.0, 30.0), "PrintV2:PrintV2": (30.0, 30.0 + length_ms)}
    _, findings = analyzed(tmp_path, run_of(ops))
    assert bool(findings) == is_reported


@pytest.mark.parametrize(
    ("model_ms", "update_ms", "is_reported"),
    [(10, 15.1, True), (10.2, 15, False), (1, 15.1, True), (1, 14.9, False)],
)
def test_most_of_the_compute_and_much_of_the_step(
    model_ms: float, update_ms: float, is_reported: bool, tmp_path: Path
) -> None:
    """From 60 % of the compute and 30 % of the step on."""
    ops = {
        "model/MatMul:MatMul": (2.0, 2 + model_ms),
        "adam/Mul:Mul": (20.0, 20 + update_ms),
    }
    _, findings = analyzed(tmp_path, run_of(ops))
    assert [finding.code for finding in findings] == ["optimizer-bound"] * is_reported


@pytest.mark.parametrize(("update", "is_sparse"), [("UnsortedSegmentSum", True), ("Mul", False)])
def test_sparse_gradients_have_their_own_advice(
    update: str, is_sparse: bool, tmp_path: Path
) -> None:
    rows, (finding,) = analyzed(tmp_path, run_of({f"adam/update_0/op:{update}": (2.0, 32.0)}))
    assert rows[0].updates_sparse == is_sparse
    (of_sparse,) = OPTIMIZER_BOUND.advice_where.values()
    assert finding.advice.startswith(of_sparse) == is_sparse
    assert finding.advice.endswith(OPTIMIZER_BOUND.advice)


def test_an_optimizer_that_devices_run_by_turns_costs_together(tmp_path: Path) -> None:
    """Replica 1 updates what replica 0 waits for: the path has 12 ms of one and 20 of the other, which is more than either."""
    first = {"model/MatMul:MatMul": (2.0, 4.0), "adam/Mul:Mul": (4.0, 16.0)}
    second = {
        "replica_1/model/MatMul:MatMul": (2.0, 3.0),
        "replica_1/adam/Mul:Mul": (16.0, 36.0),
    }
    rows, findings = analyzed(tmp_path, run_of(first, second))
    (finding,) = (finding for finding in findings if finding.code == "optimizer-bound")
    assert [row.kinds[0].path_ps_per_step for row in rows] == [ms(12), ms(20)]
    assert (finding.devices, finding.cost_ps_per_step) == (("replica:0", "replica:1"), ms(32))
    assert finding.title == (
        "replica:0 and replica:1 spend 85.7–95.2% of their compute on the optimizer, which takes by turns 32.0 ms of the "
        "mean 50.0 ms step on the critical path (64.0%)"
    )
    shares = {row.where: row.value for row in finding.evidence if row.metric == "compute_ratio"}
    assert shares == {"replica:0": pytest.approx(12 / 14), "replica:1": pytest.approx(20 / 21)}


def test_one_device_with_an_optimizer_takes_no_turns(tmp_path: Path) -> None:
    _, (finding,) = analyzed(tmp_path, run_of({"adam/Mul:Mul": (2.0, 34.0)}))
    assert finding.title == (
        "replica:0 spends 100% of its compute on the optimizer, which takes 32.0 ms of the mean 50.0 ms step on the critical "
        "path (64.0%)"
    )


def test_what_is_not_on_the_path_costs_nothing(tmp_path: Path) -> None:
    """Replica 0 prints for 6 ms and is idle longer; replica 1 limits the step and does not print."""
    first = {"model/MatMul:MatMul": (2.0, 8.0), "PrintV2:PrintV2": (8.0, 14.0)}
    second = {"replica_1/model/MatMul:MatMul": (2.0, 40.0), "replica_1/Sum:Sum": (40.0, 41.0)}
    rows, findings = analyzed(tmp_path, run_of(first, second))
    assert [len(row.kinds) for row in rows] == [1, 0]
    assert "host-op-in-step" not in {finding.code for finding in findings}


def test_devices_that_take_turns_cost_together(tmp_path: Path) -> None:
    """Replica 1 calls its function when that of replica 0 has returned: the path has 10 ms of one and 20 of the other."""
    function = "EagerPyFunc:EagerPyFunc"
    first = {"model/MatMul:MatMul": (2.0, 4.0), function: (4.0, 14.0)}
    second = {
        "replica_1/model/MatMul:MatMul": (2.0, 3.0),
        f"replica_1/{function}": (14.0, 34.0),
        "replica_1/Sum:Sum": (34.0, 35.0),
    }
    rows, (finding, *_) = analyzed(tmp_path, run_of(first, second))
    assert [row.kinds[0].path_ps_per_step for row in rows] == [ms(10), ms(20)]
    assert (finding.code, finding.cost_ps_per_step) == ("host-op-in-step", ms(30))
    assert finding.devices == ("replica:0", "replica:1")
    assert finding.title == (
        "tf.py_function inside the step takes 30.0 ms of the mean 50.0 ms step on replica:0 and replica:1, one after "
        "the other (60.0%), counted as compute"
    )
    counts = [(row.value, row.where) for row in finding.evidence if row.metric == "op_count"]
    assert counts == [(4, "replica:0"), (4, "replica:1")]
    types = [(row.value, row.where) for row in finding.evidence if row.metric == "op_type"]
    assert types == [("EagerPyFunc", "replica:0 and replica:1")]


@pytest.mark.parametrize(
    ("types", "words"),
    [
        (("PyFunc",), "tf.numpy_function inside the step takes"),
        (("PyFuncStateless",), "tf.numpy_function inside the step takes"),
        (("PyFunc", "EagerPyFunc"), "tf.py_function and tf.numpy_function inside the step take"),
    ],
)
def test_the_type_of_the_op_shows_which_call_made_it(
    types: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    lengths = zip(types, ((8.0, 12.0), (12.0, 20.0)), strict=False)
    ops = {"model/MatMul:MatMul": (2.0, 8.0), **{f"{t}:{t}": span for t, span in lengths}}
    _, (finding,) = analyzed(tmp_path, run_of(ops))
    assert finding.title.startswith(f"{words} ")
    assert finding.advice == HOST_OP.advice_where["for Python functions"]


def test_checks_after_every_op_cost_at_least_what_they_take(tmp_path: Path) -> None:
    """Ops between checks are not fused: the cost is a bound, that of a single check is not."""
    model = {"model/MatMul:MatMul": (2.0, 8.0)}
    every = {**model, "model/MatMul/DebugNumericSummaryV2:DebugNumericSummaryV2": (8.0, 18.0)}
    one = {**model, "loss/CheckNumerics:CheckNumerics": (8.0, 18.0)}
    _, (of_every,) = analyzed(tmp_path / "every", run_of(every))
    _, (of_one,) = analyzed(tmp_path / "one", run_of(one))
    assert of_every.title.startswith(
        "tf.debugging.enable_check_numerics inside the step takes at least 10.0 ms "
    )
    assert of_one.title.startswith("tf.debugging.check_numerics inside the step takes 10.0 ms ")
    assert (of_every.cost_bound, of_one.cost_bound) == ("lower", None)
    assert "lower bound" in of_every.explanation
    assert "lower bound" not in of_one.explanation
    assert of_every.advice == HOST_OP.advice_where["for checks for NaN"]


@pytest.mark.parametrize(("print_ms", "codes"), [(20, ["host-op-in-step"]), (8, None)])
def test_printing_explains_a_straggler_if_it_is_at_least_half_of_it(
    print_ms: float, codes: list[str] | None, tmp_path: Path
) -> None:
    """Replica 0 computes 20 ms longer than replica 1: because it prints, or mostly not."""
    first = {
        "model/MatMul:MatMul": (2.0, 32 - print_ms),
        "PrintV2:PrintV2": (32.0 - print_ms, 32.0),
    }
    second = {"replica_1/model/MatMul:MatMul": (2.0, 12.0), "replica_1/Sum:Sum": (11.0, 12.0)}
    _, findings = analyzed(tmp_path, run_of(first, second))
    assert sorted(finding.code for finding in findings) == (
        codes or ["host-op-in-step", "straggler-gpu"]
    )


def test_ops_of_the_input_pipeline_never_count(tmp_path: Path) -> None:
    trace = run_of({"model/MatMul:MatMul": (2.0, 8.0)})
    worker = trace.thread("tf_data_private_threadpool", 950)
    trace.host_event("EagerPyFunc:EagerPyFunc", ms(10), ms(40), thread=worker)
    (row,), findings = analyzed(tmp_path, trace)
    assert (row.kinds, findings) == ((), [])


def test_without_steps_nothing_is_said(tmp_path: Path) -> None:
    trace = new_trace()
    trace.host_event("model/MatMul:MatMul", ms(1), ms(2))
    trace.write(tmp_path)
    report = traceview.analyze(tmp_path)
    assert report.results.step_ops is None
    assert report.skipped["step_ops"] == "no used step"
