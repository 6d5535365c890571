"""On CPU devices, side work has its share of the cores that it takes, and many small ops are dispatch, on both sides of limits."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.cuda_trace import MS
from scripts.scenarios.model import marked_steps, new_trace
from tests.analysis.made import analyzed
from tests.sidecars import write_sidecar
from tests.trace.test_replicas import component
from traceview.ledger.states import State
from traceview.report.model import Report

MODEL, PRINT = "model/a:MatMul", "StringFormat:StringFormat"


def cores(count: int) -> dict[str, object]:
    return {"cores": {"machine_count": 8, "usable_count": count}}


def states(report: Report) -> dict[str, int]:
    assert report.results.ledger is not None
    (row,) = report.results.ledger.devices
    return {state: ps for state, ps in row.states.items() if ps}


@pytest.mark.parametrize(
    ("usable_count", "lost_ms"),
    [pytest.param(2, 9.9, id="two ops on two cores"), pytest.param(3, None, id="a core is free")],
)
def test_side_work_beside_the_model(
    usable_count: int, lost_ms: float | None, tmp_path: Path
) -> None:
    """Four steps of 50 ms, in which an op of the model and the formatting of a text run side by side for 19.8 ms."""
    trace = new_trace()
    for step in marked_steps(trace):
        component(step, 1, 2, MODEL, each_ms=20)
        component(step, 2, 2, PRINT, each_ms=20)
    report = analyzed(tmp_path, trace, sidecar=cores(usable_count))
    lost = [row.loss for row in report.findings if row.code == "host-op-in-step"]
    assert [row.ps_per_step / MS for row in lost if row] == ([lost_ms] if lost_ms else [])
    assert states(report)["compute"] == 19.8 * MS


@pytest.mark.parametrize(
    ("count", "length_us", "is_dispatch"), [(1000, 9, True), (999, 9, False), (1000, 10, False)]
)
def test_many_small_ops(count: int, length_us: int, is_dispatch: bool, tmp_path: Path) -> None:
    """Four steps of 50 ms with ops of some microseconds, one every 20 µs."""
    trace = new_trace()
    for step in marked_steps(trace):
        executor = step.trace.thread("tf_Compute_1", 901)
        key = round(step.start_ms) * 10 + 1
        step.host("FunctionRun", 1, 1.1, {"_pt": 3, "_p": key})
        consumed = {"_ct": 3, "_c": key, "id": 1, "iter_num": 0}
        step.host("ExecutorState::Process", 2, 2 + 0.02 * count, consumed, thread=executor)
        for place in range(count):
            begin = 2 + 0.02 * place
            step.host(f"model/op_{place}:Mul", begin, begin + length_us / 1000, thread=executor)
    write_sidecar(trace.write(tmp_path), cores(2))
    ledger = traceview.load(tmp_path).ledger()
    computed_ps = int(ledger.columns.duration_ps[ledger.rows(states=(State.COMPUTE,))].sum())
    assert computed_ps == (0 if is_dispatch else 4 * count * length_us * 10**6)


@pytest.mark.parametrize(
    ("gap_ms", "is_executed", "waits"),
    [
        pytest.param(0.1, True, False, id="a thread is at work for it"),
        pytest.param(0.11, True, True, id="that thread waits in an op"),
        pytest.param(0.1, False, True, id="no thread has begun its next op"),
    ],
)
def test_a_replica_between_two_of_its_ops_waits_for_no_other(
    gap_ms: float, is_executed: bool, waits: bool, tmp_path: Path
) -> None:
    """Four steps of 50 ms, in which another replica computes the whole time."""
    trace = new_trace()
    for number, step in enumerate(marked_steps(trace)):
        ends = (2, 4 + gap_ms, 6 + gap_ms)
        own = [(1, 6 + gap_ms)] if is_executed else [(1, 4), (4 + gap_ms, 6 + gap_ms)]
        for replica, processes in ((0, own), (1, [(1, 30)])):
            thread = step.trace.thread(f"tf_Compute_{replica}", 901 + replica)
            key = 10 * number + replica + 1
            step.host(
                "FunctionRun", 0.1 + 0.2 * replica, 0.2 + 0.2 * replica, {"_pt": 3, "_p": key}
            )
            for begin, end in processes:
                consumed = {"_ct": 3, "_c": key, "id": 1 + replica, "iter_num": 0}
                step.host("ExecutorState::Process", begin, end, consumed, thread=thread)
            prefix = f"replica_{replica}/" if replica else ""
            for begin, end in ((ends[0], 4), ends[1:]) if not replica else ((1.5, 29),):
                step.host(f"{prefix}model/a:MatMul", begin, end, thread=thread)
    trace.write(tmp_path)
    recording = traceview.load(tmp_path)
    columns = recording.ledger().columns
    own_rows = recording.ledger().rows(states=(State.DEVICE_WAIT,), devices=(0,))
    between = columns.start_ps[own_rows] % (50 * MS)
    assert bool(((between > 3 * MS) & (between < 5 * MS)).any()) is waits


def test_what_goes_on_on_other_threads_leaves_the_device_to_ops_that_run(tmp_path: Path) -> None:
    """A copy is done 19 ms after its thread went on; a product runs for 10 ms of that, and its end is said 2 ms later."""
    trace = new_trace()
    for number, step in enumerate(marked_steps(trace)):
        first, second = trace.thread("first", 70), trace.thread("second", 71)
        for place, (name, begin, own_end, end) in enumerate(
            (("copy.1", 1, 2, 20), ("dot.1", 5, 15, 17))
        ):
            linked = 10 * number + place
            stats = {"device_ordinal": 0, "_pt": 15, "_p": linked}
            step.host(name, begin, own_end, stats, thread=first)
            step.host(f"end: {name}", end, end, {"_ct": 15, "_c": linked}, thread=second)
    trace.write(tmp_path)
    recording = traceview.load(tmp_path)
    columns = recording.ledger().columns
    is_busy = columns.state == State.COMPUTE
    shares = {
        recording.names.text(name): int(columns.duration_ps[is_busy & (columns.by == name)].sum())
        for name in set(columns.by[is_busy].tolist())
    }
    assert shares == {"copy.1": 4 * 9 * MS, "dot.1": 4 * 10 * MS}
