"""What runs between two recorded steps is evaluation if it has other input than the steps."""

from __future__ import annotations

from typing import Any

import pytest

from tests.capture.conftest import Capture
from tests.capture.fake_tensorflow import SCRIPT_START

HELPERS = """
@tf.function
def apply(batch): pass
def evaluated(count=3):
    for batch in batches(count): evaluate(batch)
def looped(between):
    for number, batch in enumerate(batches(20)):
        train_step(batch)
        if number == 11: between()
"""


def evaluations(capture: Capture, script: str) -> list[tuple[int, dict[str, int]]]:
    done = capture(SCRIPT_START + HELPERS + script)
    recorded: list[dict[str, Any]] = done.window["evaluations"]
    assert all(0 < row["begun_ns"] < row["ended_ns"] for row in recorded)
    return [(row["after"], row["functions"]) for row in recorded]


def test_evaluation_is_named_with_the_step_before_it(capture: Capture) -> None:
    assert evaluations(capture, "looped(evaluated)") == [(11, {"evaluate": 3})]


def test_a_function_that_gets_an_iterator_reads_it(capture: Capture) -> None:
    assert evaluations(capture, "looped(lambda: evaluate(batches(3)))") == [(11, {"evaluate": 1})]


@pytest.mark.parametrize(
    "script",
    [
        # What applies accumulated gradients, for instance, has no input.
        "looped(lambda: apply(0))",
        # Each epoch has an iterator of its own, and each batch is prepared.
        "for epoch in range(4):\n    for batch in batches(4): apply(batch); train_step(batch)",
        "looped(lambda: None)\nevaluated()",
    ],
)
def test_other_calls_are_no_evaluation(capture: Capture, script: str) -> None:
    assert evaluations(capture, script) == []


def test_a_step_does_not_begin_with_the_evaluation_before_it(capture: Capture) -> None:
    """The evaluation has not read its input to the end, so that nothing but its call shows that it was no step."""
    evaluate_some = "looped(lambda: evaluate(next(iter(batches(3)))))"
    done = capture(SCRIPT_START + HELPERS + evaluate_some)
    (evaluation,) = done.window["evaluations"]
    begun = {call["number"]: call["begun_ns"] for call in done.window["calls"]}
    assert evaluation["after"] == 11
    assert begun[11] < evaluation["begun_ns"] < evaluation["ended_ns"] < begun[12]


def test_evaluation_between_eager_steps(capture: Capture) -> None:
    script = (
        "for number, batch in enumerate(batches(20)):\n"
        "    with tf.GradientTape() as tape: pass\n"
        "    tape.gradient(0, 0)\n"
        "    if number == 11: evaluated()\n"
    )
    assert evaluations(capture, script) == [(11, {"evaluate": 3})]
