"""Asynchronous ops in flight: what a graph waits for in them (docs/method.md, "Asynchronous ops")."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from scripts.cuda_trace import Line
from scripts.scenarios.model import Step, marked_steps, new_trace
from tests.analysis.made import analyzed
from traceview.report.model import Report

KIND: Final = "ExecutorState::ProcessAsync"


def in_flight(
    step: Step, op: str, start_ms: float, end_ms: float, begins: Line, ends: Line, *, number: int
) -> None:
    """An op `scope/name:Type` that an executor begins, and a thread ends."""
    name, _, type_ = op.rpartition(":")
    key = round(step.start_ms * 100) + number
    stats = {"name": name, "kernel_type": type_} if op else {}
    step.host(
        f"{KIND}::Start", start_ms, start_ms + 0.01, {**stats, "_pt": 2, "_p": key}, thread=begins
    )
    step.host(f"{KIND}::Done", end_ms, end_ms + 0.01, {**stats, "_ct": 2, "_c": key}, thread=ends)


def states(report: Report, device: str = "replica:0") -> dict[str, float]:
    """What a device did in a step, milliseconds."""
    assert report.results.ledger is not None
    (row,) = (row for row in report.results.ledger.devices if row.device == device)
    return {state: ps / 1e9 for state, ps in row.states.items()}


def titles(report: Report) -> dict[str, str]:
    return {finding.code: finding.title for finding in report.findings}


def waits_in(folder: Path, *ops: str) -> Report:
    """Steps of 50 ms: an executor begins these ops at 1, 2 … ms, and they end at 30, 29 … ms; then it computes for 19 ms."""
    trace = new_trace()
    executor, other = trace.thread("tf_Compute/1", 901), trace.thread("tf_Compute/2", 902)
    for step in marked_steps(trace, marker_ms=50):
        step.host("FunctionRun", 0.1, 49.9)
        for place, op in enumerate(ops):
            in_flight(step, op, 1 + place, 30 - place, executor, other, number=place)
        step.host("replica_0/MatMul:MatMul", 30.1, 49.1, thread=executor)
    return analyzed(folder, trace)


def test_the_op_that_began_last_is_named(tmp_path: Path) -> None:
    found = titles(waits_in(tmp_path, "outer:BarrierTakeMany", "inner:QueueDequeueV2"))
    assert "QueueDequeueV2" in found["cpu-heavy-op"], found


@pytest.mark.parametrize(
    "op", ["x:_Recv", "x:RemoteCall", "x:StatefulPartitionedCall", "x:While", ""]
)
def test_what_other_threads_record_has_no_name_nor_has_what_was_recorded_without(
    op: str, tmp_path: Path
) -> None:
    assert "cpu-heavy-op" not in titles(waits_in(tmp_path, op))


# Critical sections


def in_sections(
    folder: Path, held_ms: float, *, ops_inside: int = 1, replicas: tuple[int, int] = (0, 1)
) -> Report:
    """Two replicas, of which the second waits for a section that the first is in for so long; steps of 50 ms on two cores."""
    trace = new_trace()
    locks = trace.thread("tf_Compute/9", 909)
    for number, step in enumerate(marked_steps(trace, marker_ms=50)):
        for replica in range(2):
            scope, line = (
                f"replica_{replica}/",
                trace.thread(f"tf_Compute/{replica}", 901 + replica),
            )
            key, given_ms = 100 * (number + 1) + replica, 0.6 + held_ms * replica
            step.host("FunctionRun", 0.2 + replica / 10, 0.3 + replica / 10, {"_pt": 3, "_p": key})
            step.host("ExecutorState::Process", 0.5, 49.9, {"_ct": 3, "_c": key}, thread=line)
            asks = f"replica_{replicas[replica]}/section/MutexLock:MutexLock"
            in_flight(step, asks, 0.59, given_ms, line, locks, number=50 + replica)
            step.host(f"{scope}section/MatMul:MatMul", given_ms, given_ms + held_ms, thread=line)
            step.host(f"{scope}MatMul:MatMul", given_ms + held_ms, 49.5, thread=line)
        for place in range(1, ops_inside):
            beside = trace.thread(f"tf_Compute/{10 + place}", 910 + place)
            step.host("replica_0/section/Mul:Mul", 0.6, 0.6 + held_ms, thread=beside)
    return analyzed(folder, trace, sidecar={"cores": {"usable_count": 2}})


def test_a_replica_waits_for_the_one_in_the_section(tmp_path: Path) -> None:
    report = in_sections(tmp_path, 20)
    assert states(report, "replica:1")["turn"] == pytest.approx(20, abs=0.1)
    assert states(report).get("turn", 0) < 0.02
    assert titles(report)["serial-gpus"] == (
        "replica:1 waits 20.0 of 50.0 ms (40%) for a replica in a critical section"
    )


@pytest.mark.parametrize(("held_ms", "is_reported"), [(4.9, False), (5.1, True)])
def test_sections_cost_five_percent(held_ms: float, is_reported: bool, tmp_path: Path) -> None:
    """Of both replicas: one of them waits for a tenth of the step."""
    assert ("serial-gpus" in titles(in_sections(tmp_path, held_ms))) == is_reported


def test_who_would_have_no_core_waits_for_no_turn(tmp_path: Path) -> None:
    assert states(in_sections(tmp_path, 20, ops_inside=2), "replica:1").get("turn", 0) < 0.02


def test_a_replica_does_not_wait_for_itself(tmp_path: Path) -> None:
    assert "turn" not in states(in_sections(tmp_path, 20, replicas=(1, 1)), "replica:1")


# Loops over data sets


def loops(folder: Path, stage: str, *, type_: str = "ReduceDataset") -> Report:
    """The step of 50 ms runs a data set for 40 ms; for 10 of them a stage of it runs a function of one op."""
    trace = new_trace()
    names = ("tf_Compute/1", "tf_data_reduce_dataset/2", "tf_data_private_threadpool/3")
    executor, runner, pool = (trace.thread(name, 901 + at) for at, name in enumerate(names))
    for number, step in enumerate(marked_steps(trace, marker_ms=50)):
        part = {"id": 500 + number, "_ct": 3, "_c": number + 1}
        step.host("FunctionRun", 0.1, 49.9, {"id": 500 + number, "_pt": 3, "_p": number + 1})
        step.host("ExecutorState::Process", 0.2, 5, part, thread=executor)
        step.host("MatMul:MatMul", 0.2, 5, thread=executor)
        in_flight(step, f"loop:{type_}", 4.9, 45, executor, runner, number=50)
        step.host("ReduceDatasetOp::DoCompute", 5, 44.9, {"id": 500 + number}, thread=runner)
        if stage:
            step.host(stage, 20, 40, thread=runner)
        run = {"id": 700 + number}
        step.host("InstantiatedCapturedFunction::Run", 25, 36, run, thread=runner)
        step.host("ExecutorState::Process", 25.1, 35.9, run, thread=pool)
        step.host("body/MatMul:MatMul", 25.5, 35.5, thread=pool)
        step.host("replica_0/Tail:MatMul", 45.1, 49.9, thread=executor)
    return analyzed(folder, trace)


@pytest.mark.parametrize(
    ("stage", "is_body"),
    [
        pytest.param("ReduceIterator::Root::Scan", True, id="scan"),
        pytest.param("ReduceIterator::Root::Prefetch::TakeWhile::Scan", True, id="with break"),
        pytest.param("", True, id="reduction"),
        pytest.param("ReduceIterator::Root::Prefetch::Scan::Map", False, id="map of the data set"),
        pytest.param("ReduceIterator::Root::BatchV2::Scan", False, id="scan of the data set"),
        pytest.param("Iterator::Root::Scan", False, id="another data set"),
    ],
)
def test_the_body_of_a_loop_is_compute_of_the_step(
    stage: str, is_body: bool, tmp_path: Path
) -> None:
    found = states(loops(tmp_path, stage))
    assert found["compute"] == pytest.approx(19.6 if is_body else 9.6, abs=0.01)
    assert found["input"] == pytest.approx(29 if is_body else 40, abs=0.3)


def test_another_op_runs_no_data_set(tmp_path: Path) -> None:
    report = loops(tmp_path, "ReduceIterator::Root::Scan", type_="QueueDequeueV2")
    assert "input" not in states(report)
