"""Steps that are no call of a `tf.function` in the main thread, and what between recorded steps is evaluation."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import pytest

from tests.capture.conftest import Capture, Captured
from tests.capture.fake_tensorflow import SCRIPT_START

START = (
    SCRIPT_START
    + """
import threading, time
def eager_step(batch):
    with tf.GradientTape() as tape:
        time.sleep(0.0005)
    tape.gradient(0, 0)
def in_thread(action):
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()
"""
)
WINDOW = [*range(9, 16)]


def step_functions(done: Captured) -> list[tuple[str, str]]:
    functions = done.sidecar["steps"]["functions"]
    return [(each["name"], each["kind"]) for each in functions if each["is_step"]]


LOOPS = {
    "two tapes for one input": "for batch in batches(30): eager_step(batch); eager_step(batch)",
    "a tape in a tape": """
for batch in batches(30):
    with tf.GradientTape() as outer:
        eager_step(batch)
    outer.gradient(0, 0)
""",
    "two inputs": "for one, other in zip(batches(30), batches(31)): eager_step(one)",
}


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS.keys())
def test_eager_loops_have_steps(capture: Capture, loop: str) -> None:
    done = capture(START + loop)
    assert done.code == 0, done.err
    assert done.numbers() == WINDOW
    assert done.window["got"] == [10, 15]
    assert step_functions(done) == [("GradientTape", "eager")]


def test_an_eager_step_begins_with_its_input_and_ends_with_the_next(capture: Capture) -> None:
    done = capture(START + "for batch in batches(30, 0.004): eager_step(batch); time.sleep(0.002)")
    calls = done.window["calls"]
    assert all(call["ended_ns"] - call["begun_ns"] > 6_000_000 for call in calls[1:])
    pauses_ns = [late["begun_ns"] - early["ended_ns"] for early, late in pairwise(calls)]
    # Once in a while another process has the core.
    assert median(pauses_ns) < 2_000_000


def test_evaluation_that_goes_on_with_an_iterator_is_no_part_of_a_step(capture: Capture) -> None:
    loop = """
evaluation = batches(1000)
for epoch in range(4):
    for batch in batches(8): eager_step(batch)
    for number in range(3): next(evaluation); time.sleep(0.03)
"""
    done = capture(START + loop, "--steps", "10:20")
    assert done.numbers() == [*range(9, 21)]
    calls = [call for call in done.window["calls"] if not call["is_edge"]]
    longest_ns = max(call["ended_ns"] - call["begun_ns"] for call in calls)
    # The last of the three may be the beginning of the next step.
    assert longest_ns < 60_000_000


@pytest.mark.parametrize(
    "loop",
    [
        # As for a picture of its inputs.
        "for batch in batches(30): train_step(batch); eager_step(batch)",
        "in_thread(lambda: [evaluate(n) for n in range(5)])\nfor n in range(30): train_step(n)",
    ],
    ids=["a gradient beside the step", "a thread that evaluates"],
)
def test_a_step_function_ends_the_eager_count(capture: Capture, loop: str) -> None:
    done = capture(START + loop)
    assert done.numbers() == WINDOW
    assert [name for name, _ in step_functions(done)] == ["train_step"]
    assert "another thread" not in done.err


def test_an_eager_loop_that_ends_in_the_window(capture: Capture) -> None:
    done = capture(START + "for batch in batches(13): eager_step(batch)")
    assert done.window["got"] == [10, 13]
    done = capture(START + "for number in range(13): eager_step(number)")
    # Nothing shows where the last one ends.
    assert done.window["got"] == [10, 12]
    assert done.numbers() == [9, 10, 11]


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


EAGER = """
for number, batch in enumerate(batches(20)):
    with tf.GradientTape() as tape: pass
    tape.gradient(0, 0)
    if number == 11: evaluated()
"""


@pytest.mark.parametrize(
    ("script", "evaluations"),
    [
        ("looped(evaluated)", [(11, {"evaluate": 3})]),
        # One that gets an iterator reads it.
        ("looped(lambda: evaluate(batches(3)))", [(11, {"evaluate": 1})]),
        (EAGER, [(11, {"evaluate": 3})]),
        # What applies accumulated gradients, for instance, has no input.
        ("looped(lambda: apply(0))", []),
        # Each epoch has an iterator of its own, and each batch is prepared.
        (
            "for epoch in range(4):\n    for batch in batches(4): apply(batch); train_step(batch)",
            [],
        ),
        ("looped(lambda: None)\nevaluated()", []),
    ],
)
def test_evaluation_is_named_with_the_step_before_it(
    capture: Capture, script: str, evaluations: list[tuple[int, dict[str, int]]]
) -> None:
    recorded = capture(SCRIPT_START + HELPERS + script).window["evaluations"]
    assert [(row["after"], row["functions"]) for row in recorded] == evaluations
    assert all(0 < row["begun_ns"] < row["ended_ns"] for row in recorded)


def test_a_step_does_not_begin_with_the_evaluation_before_it(capture: Capture) -> None:
    """The evaluation has not read its input to the end, so that nothing but its call shows that it was no step."""
    evaluate_some = "looped(lambda: evaluate(next(iter(batches(3)))))"
    done = capture(SCRIPT_START + HELPERS + evaluate_some)
    (evaluation,) = done.window["evaluations"]
    begun = {call["number"]: call["begun_ns"] for call in done.window["calls"]}
    assert evaluation["after"] == 11
    assert begun[11] < evaluation["begun_ns"] < evaluation["ended_ns"] < begun[12]
