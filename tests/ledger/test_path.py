"""The critical path of hand-made traces fits in the head."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.cuda_trace import NCCL_NAME, CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import Step, marked_steps, ms, new_trace
from tests.ledger.ledgers import Row, Run, busy_wait, ledger_of, path_rows, run_of, step_of
from traceview.ledger.states import State
from traceview.ledger.table import totals
from traceview.trace.model import NONE

Work = list[tuple[str, float, float]]
"""Kernels, collectives and copies of a device in a step: kind, start and end in milliseconds."""

LARGEST = {
    "waits_for_input": State.INPUT,
    "waits_for_input_in_the_graph": State.INPUT,
    "exposed_collectives": State.COMMUNICATION,
    "packs_over_pcie": State.COMMUNICATION,
    "saves_checkpoints": State.CHECKPOINT,
    "waits_for_a_value": State.SYNC,
    "launches_back_to_back": State.LAUNCH,
    "retracing": State.COMPILE,
    "late_batch": State.INPUT,
    "callbacks_between_steps": State.BETWEEN,
    "computes_on_the_host": State.HOST_OPS,
    "stages_a_copy": State.H2D,
    "pageable_copies": State.H2D,
    "queued_on_another_stream": State.DEPENDENCY,
    "slower_gpu": State.COMMUNICATION,
    "more_work": State.COMMUNICATION,
}
"""The largest loss with a recorded cause on the path. A slower GPU makes its compute longer, which is no loss."""


def written(folder: Path, *devices: Work, count: int = 2, step_ms: float = 50) -> Run:
    """Steps in which the devices do the same work; each event is launched when it begins."""
    trace = new_trace()
    for step in marked_steps(trace, count=count, period_ms=step_ms, marker_ms=step_ms):
        for ordinal, work in enumerate(devices):
            add(step, ordinal, work)
    trace.write(folder)
    return run_of(folder)


def add(step: Step, ordinal: int, work: Work) -> None:
    for kind, start, end in work:
        if kind in ("H2D", "D2H"):
            step.copy(ordinal, kind, start, end, size=1_000_000, launch_ms=start)
        elif kind == "nccl":
            step.kernel(ordinal, start, end, name=NCCL_NAME, stream=30, launch_ms=start)
        else:
            step.kernel(ordinal, start, end, op=f"model/{kind}:MatMul", launch_ms=start)


def walked(run: Run) -> list[tuple[str, str, float, float]]:
    """The parts of the first step in time order: device, state, start and length in milliseconds."""
    ledger = run.ledger
    begin = ledger.steps[0].start_ps
    return [
        (run.trace.device_key(device), state, (start - begin) / ms(1), length / ms(1))
        for device, state, start, length in path_rows(ledger)
        if start < ledger.steps[0].end_ps
    ]


def test_one_device_is_its_activity_and_its_gaps(tmp_path: Path) -> None:
    run = written(tmp_path, [("H2D", 0, 5), ("a", 5, 20), ("b", 30, 50)])
    assert walked(run) == [
        ("GPU:0", "h2d", 0, 5),
        ("GPU:0", "compute", 5, 15),
        ("GPU:0", "unknown", 20, 10),
        ("GPU:0", "compute", 30, 20),
    ]


def test_waiting_in_a_collective_goes_on_at_the_device_that_came_last(tmp_path: Path) -> None:
    run = written(
        tmp_path,
        [("a", 0, 20), ("nccl", 20, 50)],
        [("a", 0, 40), ("nccl", 40, 50)],
    )
    assert walked(run) == [
        ("GPU:1", "compute", 0, 40),
        # Both end together; GPU:0 was active for as long.
        ("GPU:0", "communication", 40, 10),
    ]


def test_what_kept_the_last_device_is_on_the_path(tmp_path: Path) -> None:
    """The wait of GPU:0 is not: it costs nothing that GPU:1 does not cost."""
    trace = new_trace()
    for step in marked_steps(trace, count=2, marker_ms=50):
        step.host("IteratorGetNext:IteratorGetNext", 0, 10)
        add(step, 0, [("a", 0, 20), ("nccl", 20, 46)])
        add(step, 1, [("a", 10, 40), ("nccl", 40, 46)])
    trace.write(tmp_path)
    assert walked(run_of(tmp_path)) == [
        ("GPU:1", "input", 0, 10),
        ("GPU:1", "compute", 10, 30),
        ("GPU:0", "communication", 40, 6),
        ("GPU:0", "unknown", 46, 4),
    ]


def test_meeting_twice_is_on_the_path(tmp_path: Path) -> None:
    """GPU:1 comes last to the first collective, GPU:0 to the second one: with one, 10 ms of waiting would not be."""
    run = written(
        tmp_path,
        [("a", 0, 10), ("nccl", 10, 24), ("b", 24, 44), ("nccl", 44, 50)],
        [("a", 0, 20), ("nccl", 20, 24), ("b", 24, 30), ("nccl", 30, 50)],
    )
    assert walked(run) == [
        ("GPU:0", "compute", 0, 10),
        ("GPU:0", "communication", 10, 14),
        ("GPU:0", "compute", 24, 20),
        ("GPU:0", "communication", 44, 6),
    ]


def test_a_wait_is_for_the_collective_that_still_runs(tmp_path: Path) -> None:
    """GPU:0 comes last to a collective that lies inside of the one in which it waits for GPU:1.

    Of its wait of 25 ms as much as GPU:1 waits, 3 ms, comes from meeting twice.
    """
    other = NCCL_NAME.replace("AllReduce", "AllGather")
    trace = new_trace()
    for step in marked_steps(trace, count=2, marker_ms=50):
        step.kernel(0, 0, 40, name=NCCL_NAME, stream=30)
        step.kernel(0, 5, 10, name=other, stream=31)
        step.kernel(1, 2, 10, name=other, stream=31)
        step.kernel(1, 10, 30, op="model/a:MatMul")
        step.kernel(1, 30, 40, name=NCCL_NAME, stream=30)
    trace.write(tmp_path)
    ledger = run_of(tmp_path).ledger
    rows = ledger.rows(devices=[0], steps=[0], by_device=1)
    start = (ledger.columns.start_ps[rows] - ledger.steps[0].start_ps) / ms(1)
    assert start.tolist() == [0, 10]
    assert (ledger.columns.duration_ps[rows] / ms(1)).tolist() == [4.4, 17.6]


def test_streams_that_overlap_count_by_class_and_then_by_start(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace, count=2, marker_ms=50):
        step.copy(0, "H2D", 0, 30, size=1000, launch_ms=0)
        step.kernel(0, 10, 20, op="first:MatMul", launch_ms=0)
        step.kernel(0, 15, 25, op="second:MatMul", stream=9, launch_ms=0)
        step.kernel(0, 40, 50, op="third:MatMul", launch_ms=40)
    trace.write(tmp_path)
    run = run_of(tmp_path)
    assert [part[1:] for part in walked(run)] == [
        ("h2d", 0, 10),
        ("compute", 10, 15),
        ("h2d", 25, 5),
        ("unknown", 30, 10),
        ("compute", 40, 10),
    ]
    path, columns = run.ledger.path, run.ledger.columns
    rows = path.row[columns.state[path.row] == State.COMPUTE][:3]
    names = [run.trace.names.text(number) for number in columns.by[rows].tolist()]
    assert names == ["first:MatMul", "second:MatMul", "third:MatMul"]
    assert columns.duration_ps[rows].tolist() == [ms(10), ms(5), ms(10)]


def test_parts_are_cut_at_the_bounds_of_steps(tmp_path: Path) -> None:
    """A kernel that runs from one step into the next has a part in each."""
    trace = new_trace()
    for step, (start, end) in zip(
        marked_steps(trace, count=3, marker_ms=50), ((0, 60), (20, 50), (0, 50)), strict=True
    ):
        step.kernel(0, start, end, launch_ms=0)
    trace.write(tmp_path)
    path = run_of(tmp_path).ledger.path
    assert path.duration_ps[path.step == 0].tolist() == [ms(50)]
    assert path.duration_ps[path.step == 1].tolist() == [ms(10), ms(10), ms(30)]


def test_a_run_without_steps_is_one_window(tmp_path: Path) -> None:
    trace = CudaTrace("host0")
    trace.kernel(0, ms(1), ms(4))
    trace.kernel(0, ms(8), ms(11))
    trace.write(tmp_path)
    ledger = run_of(tmp_path).ledger
    assert not ledger.steps
    parts = [(state, length) for _, state, _, length in path_rows(ledger)]
    assert parts == [("compute", ms(3)), ("unknown", ms(4)), ("compute", ms(3))]
    assert set(ledger.path.step.tolist()) == {NONE}


def replicas(folder: Path, *components: dict[str, tuple[float, float]]) -> Run:
    """Three steps of 50 ms on CPU replicas; each op is on a thread of its own."""
    trace = new_trace()
    for step in marked_steps(trace, count=3, period_ms=50, marker_ms=50):
        for number, ops in enumerate(components):
            key = round(step.start_ms) * 10 + number
            step.host("FunctionRun", 1, 1.1, {"_pt": 3, "_p": key})
            consumed = {"_ct": 3, "_c": key, "id": 1, "iter_num": 0}
            for place, (op, (start, end)) in enumerate(ops.items()):
                thread = trace.thread(f"tf_Compute_{number}_{place}", 900 + 20 * number + place)
                step.host("ExecutorState::Process", 2, 49, consumed, thread=thread)
                step.host(op, start, end, thread=thread)
    trace.write(folder)
    return run_of(folder)


def test_of_replicas_that_wait_for_each_other_the_one_that_began_last_goes_on(
    tmp_path: Path,
) -> None:
    """At 30 ms replica 1 pauses, and only replica 0 looks busy: it waits in a collective, for replica 1."""
    reduce = "sgd/CollectiveReduceV2:CollectiveReduceV2"
    run = replicas(
        tmp_path,
        {"model/MatMul:MatMul": (2, 6), reduce: (6, 40)},
        {
            "replica_1/model/MatMul:MatMul": (2, 30),
            "replica_1/model/Relu:Relu": (31, 38),
            f"replica_1/{reduce}": (38, 40),
        },
    )
    assert [part for part in walked(run) if 2 <= part[2] < 40] == [
        ("replica:1", "compute", 2, 28),
        ("replica:1", "device_wait", 30, 1),
        ("replica:1", "compute", 31, 7),
        ("replica:0", "communication", 38, 2),
    ]


def test_a_peer_on_another_host_is_followed_if_the_clocks_agree(tmp_path: Path) -> None:
    SCENARIOS["collectives_of_two_hosts"]().write(tmp_path)
    run = run_of(tmp_path)
    path, trace = run.ledger.path, run.trace
    of_first = [
        number
        for number, step in enumerate(run.ledger.steps)
        if trace.hosts[step.host].name == "host0"
    ]
    keys = {
        trace.device_key(int(run.ledger.device[row]))
        for row, step in zip(path.row.tolist(), path.step.tolist(), strict=True)
        if step in of_first
    }
    assert keys > {"host1/GPU:1"}
    assert not path.is_lost.any()


@pytest.mark.parametrize(("name", "state"), LARGEST.items())
def test_a_known_fault_is_the_largest_loss(name: str, state: State, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    ledger = run_of(tmp_path).ledger
    on_path = totals(
        ledger.columns.state[ledger.path.row], ledger.path.duration_ps, len(State)
    ).tolist()
    losses = [other for other in State if other not in (State.COMPUTE, State.UNKNOWN)]
    assert max(losses, key=lambda other: on_path[other]) == state


@pytest.mark.parametrize(("name", "device"), [("slower_gpu", "GPU:2"), ("more_work", "GPU:1")])
def test_the_path_is_on_the_device_that_computes_longest(
    name: str, device: str, tmp_path: Path
) -> None:
    SCENARIOS[name]().write(tmp_path)
    run = run_of(tmp_path)
    parts = [part for part in path_rows(run.ledger) if part[1] == "compute"]
    longest = max(length for *_, length in parts)
    of_device = {
        run.trace.device_key(number) for number, _, _, length in parts if length == longest
    }
    assert of_device == {device}


# A few rows by hand


def test_of_devices_that_are_active_as_late_the_one_active_longest_counts() -> None:
    ledger = ledger_of(
        [Row(State.INPUT, 6), Row(State.COMPUTE, 3), Row(State.LAUNCH, 1)],
        [Row(State.INPUT, 5), Row(State.COMPUTE, 4), Row(State.LAUNCH, 1)],
        [Row(State.INPUT, 5), Row(State.COMPUTE, 4), Row(State.PYTHON, 1)],
        steps=[step_of(0, 10)],
    )
    # Of equal ones the first.
    assert path_rows(ledger) == [(1, "input", 0, 5), (1, "compute", 5, 4), (1, "launch", 9, 1)]


def test_a_device_without_work_holds_nobody_up() -> None:
    ledger = ledger_of(
        [Row(State.COMPUTE, 4), Row(State.TURN, 3, by=1), Row(State.COMPUTE, 3)],
        [Row(State.INPUT, 10)],
        steps=[step_of(0, 10)],
    )
    assert path_rows(ledger) == [(0, "compute", 0, 4), (0, "turn", 4, 3), (0, "compute", 7, 3)]
    assert ledger.path.is_lost.tolist() == [False, True, False]


def test_only_the_part_of_a_wait_that_is_reached_is_left() -> None:
    """GPU:0 waits for GPU:1, which waits for GPU:2 in a part of that."""
    ledger = ledger_of(
        [Row(State.COMPUTE, 2), busy_wait(8, by=1), Row(State.COMMUNICATION, 2)],
        [Row(State.INPUT, 4), Row(State.TURN, 4, by=2), Row(State.COMPUTE, 4)],
        [Row(State.COMPUTE, 9), Row(State.INPUT, 3)],
        steps=[step_of(0, 12)],
    )
    assert path_rows(ledger) == [
        (2, "compute", 0, 8),
        (1, "compute", 8, 2),
        (0, "communication", 10, 2),
    ]


def test_a_wait_for_nobody_known_is_lost() -> None:
    ledger = ledger_of(
        [Row(State.COMPUTE, 2), busy_wait(6), Row(State.COMMUNICATION, 2)], steps=[step_of(0, 10)]
    )
    assert path_rows(ledger)[1] == (0, "device_wait", 2, 6)
    assert ledger.path.is_lost.tolist() == [False, True, False]


def test_of_devices_in_a_circle_the_one_that_began_to_wait_last_goes_on() -> None:
    """At 8 each waits for the next one; GPU:1 had something to do until 6."""
    ledger = ledger_of(
        [Row(State.COMPUTE, 5), busy_wait(3, by=1), Row(State.COMPUTE, 2)],
        [Row(State.INPUT, 6), busy_wait(2, by=2), Row(State.INPUT, 2)],
        [Row(State.COMPUTE, 4), busy_wait(4, by=0), Row(State.INPUT, 2)],
        steps=[step_of(0, 10)],
    )
    assert path_rows(ledger) == [
        (1, "input", 0, 6),
        (1, "device_wait", 6, 2),
        (0, "compute", 8, 2),
    ]
    assert ledger.path.is_lost.tolist() == [False, True, False]


def test_the_way_into_a_circle_is_no_part_of_it() -> None:
    """GPU:0 began to wait last, but nobody waits for it: only GPU:1 and GPU:2 wait for each other."""
    ledger = ledger_of(
        [Row(State.COMPUTE, 7), busy_wait(1, by=1), Row(State.COMPUTE, 2)],
        [Row(State.COMPUTE, 3), busy_wait(5, by=2), Row(State.INPUT, 2)],
        [Row(State.COMPUTE, 5), busy_wait(3, by=1), Row(State.INPUT, 2)],
        steps=[step_of(0, 10)],
    )
    assert path_rows(ledger) == [
        (2, "compute", 0, 5),
        (2, "device_wait", 5, 3),
        (0, "compute", 8, 2),
    ]


@pytest.mark.parametrize(
    ("residuals", "device"), [((None, 5), 1), ((3, 5), 1), ((None, None), 0), ((), 0)]
)
def test_another_host_is_followed_only_on_one_clock(
    residuals: tuple[int | None, ...], device: int
) -> None:
    ledger = ledger_of(
        [Row(State.COMPUTE, 4), busy_wait(4, by=1), Row(State.COMMUNICATION, 2)],
        [Row(State.INPUT, 8), Row(State.COMMUNICATION, 2)],
        hosts=(0, 1),
        steps=[step_of(0, 10)],
        residuals=residuals,
    )
    assert {row[0] for row in path_rows(ledger) if row[2] < 8} == {device}
    assert ledger.path.is_lost.any() == (device == 0)


def test_before_another_host_is_recorded_the_path_is_on_its_own() -> None:
    """GPU:1 of the other host is recorded from 3 on; before that GPU:0 waits for something that is not known."""
    ledger = ledger_of(
        [Row(State.COMPUTE, 2), busy_wait(6, by=1), Row(State.COMMUNICATION, 2)],
        [Row(State.INPUT, 5), Row(State.COMMUNICATION, 2)],
        hosts=(0, 1),
        starts=(0, 3),
        steps=[step_of(0, 10)],
        residuals=(None, 5),
    )
    assert path_rows(ledger) == [
        (0, "compute", 0, 2),
        (0, "device_wait", 2, 1),
        (1, "input", 3, 5),
        (0, "communication", 8, 2),
    ]
    assert ledger.path.is_lost.tolist() == [False, True, False, False]


def test_each_host_has_the_path_of_its_steps() -> None:
    ledger = ledger_of(
        [Row(State.COMPUTE, 4), Row(State.INPUT, 6)],
        [Row(State.COMPUTE, 6), Row(State.LAUNCH, 4)],
        hosts=(0, 1),
        steps=[step_of(0, 10), step_of(2, 8, host=1)],
    )
    assert path_rows(ledger) == [
        (0, "compute", 0, 4),
        (0, "input", 4, 6),
        (1, "compute", 2, 4),
        (1, "launch", 6, 2),
    ]


def test_a_step_that_is_left_out_has_no_path() -> None:
    rows = [Row(State.COMPUTE, 5), Row(State.INPUT, 5)]
    left_out = step_of(0, 5, number=7)
    steps = [type(left_out)(0, 7, 7, 0, 5, "train", "first"), step_of(5, 10)]
    assert path_rows(ledger_of(rows, steps=steps)) == [(0, "input", 5, 5)]


# What the step would be shorter by


def test_a_loss_is_bounded_by_its_part_of_the_path() -> None:
    ledger = ledger_of(
        [Row(State.INPUT, 4), Row(State.COMPUTE, 4), Row(State.INPUT, 4), Row(State.LAUNCH, 8)],
        [Row(State.COMPUTE, 2), Row(State.INPUT, 7), Row(State.COMPUTE, 3), Row(State.INPUT, 8)],
        steps=[step_of(0, 12), step_of(12, 20, number=1)],
    )
    # GPU:1 is active later in the first step; in the second one nobody is, and GPU:0 is the first.
    assert ledger.bound_ps(ledger.rows(states=[State.INPUT])) == 7 // 2
    assert ledger.bound_ps(ledger.rows(states=[State.LAUNCH])) == 8 // 2


def test_a_wait_is_bounded_by_what_waits_longest_whether_it_is_on_the_path_or_not() -> None:
    followed = ledger_of(
        [Row(State.COMPUTE, 2), busy_wait(6, by=1), Row(State.COMMUNICATION, 2)],
        [Row(State.COMPUTE, 8), Row(State.COMMUNICATION, 2)],
        steps=[step_of(0, 10)],
    )
    lost = ledger_of(
        [Row(State.COMPUTE, 2), busy_wait(6), Row(State.COMMUNICATION, 2)], steps=[step_of(0, 10)]
    )
    for ledger, is_lost in ((followed, False), (lost, True)):
        assert ledger.path.is_lost.any() == is_lost
        assert ledger.bound_ps(ledger.rows(states=[State.DEVICE_WAIT])) == 6


def test_without_steps_a_bound_is_of_the_window() -> None:
    ledger = ledger_of([Row(State.INPUT, 3), busy_wait(4), Row(State.COMPUTE, 2)])
    assert ledger.bound_ps(ledger.rows(states=[State.INPUT])) == 3
    assert ledger.bound_ps(ledger.rows(states=[State.DEVICE_WAIT])) == 4
