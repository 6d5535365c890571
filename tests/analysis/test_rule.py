"""What a finding's loss holds of the time in which other devices wait, on hand-made steps."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.ledger.ledgers import Row, busy_wait, ledger_of, step_of
from traceview.analysis.rules.rule import Rule
from traceview.ledger.states import State

SAVING = Rule(
    code="saving",
    title="{who:waits/wait} {loss} for checkpoints",
    meaning="It saves.",
    action="Save less often.",
    starts_at="always",
    states=(State.CHECKPOINT,),
    example="GPU:0 waits 1.00 of 2.00 ms (50%) for checkpoints",
)
COMPUTE, SAVES = Row(State.COMPUTE, 10), Row(State.CHECKPOINT, 30)


@pytest.mark.parametrize(
    ("first", "second", "devices", "lost_ps"),
    [
        # Only the other one waits: that is lost, too, though the one that saves loses no more.
        ([COMPUTE, busy_wait(30, by=1)], [COMPUTE, SAVES], ("GPU:1", "GPU:0"), 60),
        # Both save, one after the other.
        (
            [SAVES, COMPUTE, busy_wait(30, by=1)],
            [busy_wait(30, by=0), SAVES, COMPUTE],
            ("GPU:0", "GPU:1"),
            120,
        ),
        # Both save, and wait so little that no sentence says it: the loss is of rows alone.
        (
            [SAVES, busy_wait(2, by=1), COMPUTE],
            [Row(State.CHECKPOINT, 32), COMPUTE],
            ("GPU:0", "GPU:1"),
            62,
        ),
    ],
    ids=["another waits", "in turns", "hardly"],
)
def test_the_loss_holds_waits_that_a_title_names(
    first: list[Row], second: list[Row], devices: tuple[str, ...], lost_ps: int
) -> None:
    length = sum(row.duration for row in first)
    ledger = ledger_of(first, second, steps=[step_of(0, length)])
    context = SimpleNamespace(ledger=ledger, selection=SimpleNamespace(has_few_steps=False))
    rows = ledger.rows(states=SAVING.states)
    finding = SAVING.of_rows(context, rows, keeps_waiting=True)
    assert finding is not None
    assert finding.loss is not None
    assert (finding.devices, finding.loss.gpu_time_ps) == (devices, lost_ps)
