"""The critical path of hand-made traces fits in the head."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scripts.cuda_trace import NCCL_NAME
from scripts.scenarios.model import marked_steps, ms, new_trace
from tests.ledger.ledgers import Row, busy_wait, ledger_of, path_rows, run_of, step_of
from traceview.ledger.columns import WAITS
from traceview.ledger.states import State


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
    rows = ledger.rows(devices=[0], by_device=1) & (ledger.columns.step == 0)
    start = (ledger.columns.start_ps[rows] - ledger.steps[0].start_ps) / ms(1)
    assert start.tolist() == [0, 10]
    assert (ledger.columns.duration_ps[rows] / ms(1)).tolist() == [4.4, 17.6]


# A few rows by hand


def test_a_device_without_work_holds_nobody_up() -> None:
    ledger = ledger_of(
        [Row(State.COMPUTE, 4), Row(State.TURN, 3, by=1), Row(State.COMPUTE, 3)],
        [Row(State.INPUT, 10)],
        steps=[step_of(0, 10)],
    )
    assert path_rows(ledger) == [(0, "compute", 0, 4), (0, "turn", 4, 3), (0, "compute", 7, 3)]


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


# What the step would be shorter by


def test_a_loss_is_bounded_by_its_part_of_the_path() -> None:
    ledger = ledger_of(
        [Row(State.INPUT, 4), Row(State.COMPUTE, 4), Row(State.INPUT, 4), Row(State.LAUNCH, 8)],
        [Row(State.COMPUTE, 2), Row(State.INPUT, 7), Row(State.COMPUTE, 3), Row(State.INPUT, 8)],
        steps=[step_of(0, 12), step_of(12, 20, number=1)],
    )
    # GPU:1 is active later in the first step; in the second one nobody is, and GPU:0 is the first, but GPU:1 waits as long.
    assert ledger.bound_ps(ledger.rows(states=[State.INPUT])) == 7 // 2
    assert ledger.bound_ps(ledger.rows(states=[State.LAUNCH])) == 0


@pytest.mark.parametrize(
    ("other", "gain"),
    [
        pytest.param([busy_wait(5, by=0), Row(State.COMPUTE, 4)], 5, id="it waits for half of it"),
        pytest.param(
            [Row(State.INPUT, 7), Row(State.COMPUTE, 2)], 0, id="it waits for other things"
        ),
        pytest.param([Row(State.COMPUTE, 9)], 0, id="it works as long"),
        pytest.param([Row(State.NO_WORK, 9)], 9, id="it has no work"),
        pytest.param([Row(State.LAUNCH, 9)], 9, id="it loses as much to the same"),
    ],
)
def test_a_step_gains_no_more_than_each_device_has_to_spare(other: list[Row], gain: int) -> None:
    """What GPU:0 loses takes 9 of 10; without it GPU:1 makes the step as long as its own work is."""
    ledger = ledger_of(
        [Row(State.LAUNCH, 9), Row(State.COMPUTE, 1)],
        [*other, Row(State.INPUT, 1)],
        steps=[step_of(0, 10)],
    )
    assert {device for device, *_ in path_rows(ledger)} == {0}
    assert ledger.bound_ps(ledger.rows(states=[State.LAUNCH])) == gain


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
        waits = np.isin(ledger.columns.state[ledger.path.row], WAITS)
        assert waits.any() == is_lost
        assert ledger.bound_ps(ledger.rows(states=[State.DEVICE_WAIT])) == 6


def test_without_steps_a_bound_is_of_the_window() -> None:
    ledger = ledger_of([Row(State.INPUT, 3), busy_wait(4), Row(State.COMPUTE, 2)])
    assert ledger.bound_ps(ledger.rows(states=[State.INPUT])) == 3
    assert ledger.bound_ps(ledger.rows(states=[State.DEVICE_WAIT])) == 4
