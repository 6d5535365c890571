"""What a device waits because of others, on hand-made steps."""

from __future__ import annotations

from tests.ledger.ledgers import Row, busy_wait, ledger_of, step_of
from traceview.ledger.states import State
from traceview.ledger.table import Ledger


def waited(ledger: Ledger) -> dict[int, int]:
    """What each device loses to checkpoints, its own and those of others."""
    rows = ledger.rows(states=(State.CHECKPOINT,))
    own = ledger.by_device(rows)
    loss = {device: ledger.loss(rows, [device], keeps_waiting=True).named_ps for device in own}
    return {device: loss[device] - own[device] for device in own}


def test_one_that_is_in_it_keeps_the_other_waiting() -> None:
    ledger = ledger_of(
        [Row(State.COMPUTE, 10), busy_wait(30, by=1)],
        [Row(State.COMPUTE, 10), Row(State.CHECKPOINT, 30)],
        steps=[step_of(0, 40)],
    )
    assert waited(ledger) == {0: 30, 1: 0}


def test_one_that_computes_longer_is_late_for_itself() -> None:
    ledger = ledger_of(
        [Row(State.CHECKPOINT, 5), Row(State.COMPUTE, 20), busy_wait(25, by=1)],
        [Row(State.CHECKPOINT, 9), Row(State.COMPUTE, 41)],
        steps=[step_of(0, 50)],
    )
    assert waited(ledger) == {0: 4, 1: 0}


def test_what_a_turn_delays_is_late_at_the_end() -> None:
    """One at a time: the second waits for the first, so the first waits for the second's compute."""
    ledger = ledger_of(
        [
            Row(State.CHECKPOINT, 20),
            Row(State.COMPUTE, 10),
            busy_wait(10, by=1),
            busy_wait(10, by=1),
        ],
        [busy_wait(20, by=0), Row(State.CHECKPOINT, 20), Row(State.COMPUTE, 10)],
        steps=[step_of(0, 50)],
    )
    assert waited(ledger) == {0: 20, 1: 20}
