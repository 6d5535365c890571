"""A hang has one conclusion, and what only takes long is not called a hang."""

from __future__ import annotations

from typing import Any

import pytest

from tests.hangs import (
    EXECUTE,
    SECOND,
    STEP,
    between_steps,
    hang,
    thread,
    worker,
)
from traceview.analysis.machine.hang import (
    outcome,
    since,
)
from traceview.analysis.machine.hang_causes import diagnose, phase_of
from traceview.analysis.registry import RULES
from traceview.trace.sidecar.hang import Hang, HangGpu

NEXT = "tensorflow/python/data/ops/iterator_ops.py:826 in __next__"
GENERATOR = (
    "queue.py:171 in get",
    "data.py:12 in read_batches",
    "tensorflow/python/data/ops/from_generator_op.py:198 in generator_py_func",
    "tensorflow/python/ops/script_ops.py:269 in __call__",
)
DEQUEUE = "tensorflow/python/ops/gen_data_flow_ops.py:3832 in queue_dequeue_v2"
SAVE = "tensorflow/python/checkpoint/checkpoint.py:2303 in save"
EVALUATE = "keras/src/backend/tensorflow/trainer.py:500 in evaluate"


def maker(**changes: Any) -> Any:
    """A thread in a generator of the input."""
    changes = {"wait": None, "computing_ratio": None, **changes}
    return thread(*GENERATOR, user_line=GENERATOR[1], is_main=False, **changes)


OP = ("train.py:12 in augment", "tensorflow/python/ops/script_ops.py:269 in __call__")
INSIDE = thread(*OP, user_line=OP[0], is_main=False, wait="lock")
RESULT = thread("jax/_src/array.py:650 in _value", "train.py:50 in log")


def conclusion(hang: Hang) -> tuple[str, str]:
    """Confidence and key of the title of the one finding; the title of a long pause is what works."""
    (finding,) = diagnose(hang)
    assert finding.evidence
    assert finding.severity in RULES[finding.code].severities
    assert finding.code == ("long-pause" if finding.severity == "info" else "hang")
    return finding.confidence, f"{finding.code}: {finding.sentences[0]}"


CONCLUSIONS = {
    "worker elsewhere": (hang(STEP, task="worker 0", workers=(worker(),)), "high", "hang: elsewhere"),
    "worker ended": (hang(STEP, task="worker 0", workers=(worker("ended"),)), "high", "hang: ended"),
    "worker silent": (
        hang(STEP, workers=(worker("silent", silent_ns=70 * SECOND),)), "medium", "hang: silent",
    ),
    "all workers in the step": (hang(STEP, workers=(worker("in-step"),)), "low", "hang: call"),
    "one GPU idle": (hang(STEP, gpus=(HangGpu(0, 1.0), HangGpu(1, 0.0))), "medium", "hang: gpu"),
    "nothing known": (hang(STEP), "high", "hang: call"),
    "generator blocks": (
        between_steps(thread(NEXT, "train.py:80 in <module>"), maker(wait="lock")), "high", "hang: thread-of-input",
    ),
    "queue of TensorFlow": (between_steps(thread(DEQUEUE, "train.py:80 in <module>")), "high", "hang: input"),
    "Keras waits for a generator inside of its step": (hang(STEP, maker()), "medium", "hang: thread-of-input"),
    "lock": (
        between_steps(thread("threading.py:320 in wait", "train.py:50 in on_epoch_end")), "high", "hang: python",
    ),
    "loop": (
        between_steps(thread("train.py:50 in plot", wait="computing", computing_ratio=1.0), cores=1.0),
        "medium", "long-pause: python",
    ),
    "a checkpoint in which nothing moves": (
        between_steps(thread(SAVE, "train.py:50 in <module>")), "high", "hang: python",
    ),
    "lock of Python": (hang(is_lock_held=True), "medium", "hang: lock"),
    "first compilation": (hang(STEP, cores=1.8, is_first_call=True), "medium", "long-pause: first"),
    "checkpoint": (
        between_steps(thread(SAVE, "train.py:50 in <module>", wait="write")), "medium", "long-pause: checkpoint",
    ),
    "validation": (
        between_steps(thread(EXECUTE, EVALUATE, "train.py:50 in <module>", is_moving=True)),
        "medium", "long-pause: validation",
    ),
    "a loop of one's own that evaluates": (
        between_steps(
            thread("train.py:50 in evaluate", wait="sleep"), calls_in_look=3, other_function="test_step"
        ),
        "medium", "long-pause: other",
    ),
    "a step that computes": (hang(STEP, cores=0.2), "medium", "long-pause: step"),
    "a step that hardly computes": (hang(STEP, cores=0.19), "high", "hang: call"),
    "Python of the step": (hang(STEP, INSIDE, python_ops=1), "high", "hang: thread-of-step"),
    "Python of a step without any": (hang(STEP, INSIDE), "medium", "hang: thread-of-input"),
    "a generator of a step with Python": (hang(STEP, maker(), python_ops=1), "medium", "hang: thread-of-input"),
    "a generator that computes": (
        between_steps(thread(NEXT, "train.py:80 in <module>"), maker(wait="computing")),
        "medium", "long-pause: input",
    ),
    "JAX waits for its devices": (between_steps(RESULT, cores=0.0), "high", "hang: results"),
    "devices of JAX compute": (between_steps(RESULT, cores=1.0), "medium", "long-pause: results"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONCLUSIONS)
def test_conclusions(name: str) -> None:
    case, confidence, title = CONCLUSIONS[name]
    assert conclusion(case) == (confidence, title)


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("tensorflow/python/distribute/input_lib.py:264 in __next__", "input"),
        ("keras/src/saving/saving_api.py:106 in save_model", "checkpoint"),
        ("keras/src/models/model.py:340 in save_weights", "checkpoint"),
        ("tensorflow/python/checkpoint/checkpoint.py:2500 in restore", "restore"),
        ("tensorflow/python/framework/func_graph.py:1060 in func_graph_from_py_func", "tracing"),
        ("<frozen importlib._bootstrap>:241 in _find_spec", "import"),
    ],
)
def test_the_phase_is_that_of_the_innermost_known_line(line: str, phase: str) -> None:
    main = thread(line, "train.py:50 in <module>")
    assert phase_of(between_steps(main), main) == phase


def test_a_script_that_runs_inside_of_an_import_is_not_importing() -> None:
    stack = thread(
        "train.py:50 in wait",
        "<frozen importlib._bootstrap>:241 in _find_and_load",
        "main.py:1 in <module>",
        user_line="train.py:50 in wait",
    )
    assert phase_of(between_steps(stack), stack) == "python"


def test_the_first_line_says_since_when() -> None:
    assert (
        since(hang())
        == "No step has ended for 60.0 s since step 41 ended at 2027-01-15 08:00:00 UTC"
    )
    assert since(hang(step_count=0)).endswith("since the script started at 2027-01-15 08:00:00 UTC")
    assert outcome(hang()) is None
    assert outcome(hang(state="went-on", total_ns=83 * SECOND)) == "Training went on after 83.0 s."
    assert outcome(hang(state="ended", total_ns=700 * SECOND)) == (
        "The script ended after 700 s without another step."
    )
