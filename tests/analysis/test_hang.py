"""A hang has one conclusion, and what only takes long is not called a hang."""

from __future__ import annotations

from typing import Any

import pytest

from tests.hangs import EXECUTE, SECOND, STEP, between_steps, hang, thread, worker
from traceview.analysis.machine.hang.findings import diagnose, phase_of
from traceview.analysis.machine.hang.section import (
    content_of,
    hang_document,
    outcome,
    short_lines,
    since,
    write_up,
)
from traceview.analysis.registry import RULES
from traceview.document import markdown, terminal
from traceview.report.redaction import redacted_record
from traceview.trace.sidecar.hang import Hang, HangGpu, hang_of

NEXT = "tensorflow/python/data/ops/iterator_ops.py:826 in __next__"
GENERATOR = (
    "queue.py:171 in get",
    "data.py:12 in read_batches",
    "tensorflow/python/data/ops/from_generator_op.py:198 in generator_py_func",
    "tensorflow/python/ops/script_ops.py:269 in __call__",
)
SAVE = "tensorflow/python/checkpoint/checkpoint.py:2303 in save"
EVALUATE = "keras/src/backend/tensorflow/trainer.py:500 in evaluate"


def maker(**changes: Any) -> Any:
    """A thread in a generator of the input."""
    changes = {"wait": None, "computing_ratio": None, **changes}
    return thread(*GENERATOR, user_line=GENERATOR[1], is_main=False, **changes)


def conclusion(hang: Hang) -> tuple[str, str, str]:
    """Code, confidence and title of the one finding."""
    (finding,) = diagnose(hang)
    assert finding.evidence
    assert finding.severity in RULES[finding.code].severities
    return finding.code, finding.confidence, finding.title


@pytest.mark.parametrize(
    ("case", "code", "confidence", "title"),
    [
        pytest.param(
            hang(STEP, task="worker 0", workers=(worker(),)),
            "hang",
            "high",
            "worker 1 did not reach a collective: it is in write_summary, train.py:50 without a step for 60.0 s",
            id="worker elsewhere",
        ),
        pytest.param(
            hang(STEP, task="worker 0", workers=(worker("ended"),)),
            "hang",
            "high",
            "worker 1 did not reach a collective: its script has ended",
            id="worker ended",
        ),
        pytest.param(
            hang(STEP, workers=(worker("silent", silent_ns=70 * SECOND),)),
            "hang",
            "medium",
            "worker 1 did not reach a collective: it wrote last 70.0 s ago",
            id="worker silent",
        ),
        pytest.param(
            hang(STEP, workers=(worker("in-step"),)),
            "hang",
            "low",
            "The step's call of train_step has not returned for 60.0 s, and hardly computes",
            id="all workers in the step",
        ),
        pytest.param(
            hang(STEP, gpus=(HangGpu(0, 1.0), HangGpu(1, 0.0))),
            "hang",
            "medium",
            "GPU:1 idles while the other GPUs are busy",
            id="one GPU idle",
        ),
        pytest.param(
            hang(STEP),
            "hang",
            "high",
            "The step's call of train_step has not returned for 60.0 s, and hardly computes",
            id="nothing known",
        ),
        pytest.param(
            between_steps(thread(NEXT, "train.py:80 in <module>"), maker()),
            "hang",
            "high",
            "The input has not come for 60.0 s: a thread of its pipeline is in read_batches, data.py:12",
            id="generator blocks",
        ),
        pytest.param(
            between_steps(
                thread(
                    "tensorflow/python/ops/gen_data_flow_ops.py:3832 in queue_dequeue_v2",
                    "train.py:80 in <module>",
                )
            ),
            "hang",
            "high",
            "The main thread has waited 60.0 s for input in train.py:80",
            id="queue of TensorFlow",
        ),
        pytest.param(
            hang(STEP, maker()),
            "hang",
            "medium",
            "The input has not come for 60.0 s: a thread of its pipeline is in read_batches, data.py:12",
            id="Keras waits for a generator inside of its step",
        ),
        pytest.param(
            between_steps(thread("threading.py:320 in wait", "train.py:50 in on_epoch_end")),
            "hang",
            "high",
            "The main thread has been in on_epoch_end, train.py:50 for 60.0 s",
            id="lock",
        ),
        pytest.param(
            between_steps(
                thread("train.py:50 in plot", wait="computing", computing_ratio=1.0), cores=1.0
            ),
            "long-pause",
            "medium",
            "No step has ended for 60.0 s: Python runs in plot, train.py:50",
            id="loop",
        ),
        pytest.param(
            between_steps(thread(SAVE, "train.py:50 in <module>")),
            "hang",
            "high",
            "The main thread has been in train.py:50 for 60.0 s",
            id="a checkpoint in which nothing moves",
        ),
        pytest.param(
            hang(is_lock_held=True),
            "hang",
            "medium",
            "No Python could run for 60.0 s",
            id="lock of Python",
        ),
        pytest.param(
            hang(STEP, cores=1.8, is_first_call=True),
            "long-pause",
            "medium",
            "No step has ended for 60.0 s: the first call of train_step traces and compiles, or runs in "
            "train.py:87",
            id="first compilation",
        ),
        pytest.param(
            between_steps(thread(SAVE, "train.py:50 in <module>", wait="write")),
            "long-pause",
            "medium",
            "No step has ended for 60.0 s: a checkpoint is being written in train.py:50",
            id="checkpoint",
        ),
        pytest.param(
            between_steps(thread(EXECUTE, EVALUATE, "train.py:50 in <module>", is_moving=True)),
            "long-pause",
            "medium",
            "No step has ended for 60.0 s: validation or prediction is running in train.py:50",
            id="validation",
        ),
        pytest.param(
            between_steps(
                thread("train.py:50 in evaluate", wait="sleep"),
                calls_in_look=3,
                other_function="test_step",
            ),
            "long-pause",
            "medium",
            "No step has ended for 60.0 s: test_step is being called, which is no training step in evaluate, "
            "train.py:50",
            id="a loop of one's own that evaluates",
        ),
    ],
)
def test_conclusions(case: Hang, code: str, confidence: str, title: str) -> None:
    assert conclusion(case) == (code, confidence, title)


def test_what_a_thread_does_and_whom_it_keeps_waiting_is_explained() -> None:
    stack = thread("train.py:50 in sleep", wait="sleep")
    (finding,) = diagnose(between_steps(stack, workers=(worker("in-step"),)))
    assert finding.explanation.endswith("The thread sleeps. It keeps worker 1 waiting in a step.")
    (finding,) = diagnose(between_steps(thread("train.py:50 in put", wait="lock")))
    assert finding.explanation.endswith("The thread waits for a lock, a condition or a queue.")
    (finding,) = diagnose(hang(is_lock_held=True))
    assert "A native call holds Python's lock" in finding.explanation


def test_the_step_that_still_computes_is_no_hang() -> None:
    limit = 0.2
    for cores, code in ((limit, "long-pause"), (limit - 0.01, "hang")):
        assert conclusion(hang(STEP, cores=cores))[0] == code


@pytest.mark.parametrize(("step_count", "is_known"), [(42, True), (None, False)])
def test_the_advice_names_the_step_to_record(step_count: int | None, is_known: bool) -> None:
    (finding,) = diagnose(hang(STEP, step_count=step_count))
    assert ("It is step 42, counted from 0." in finding.advice) == is_known


OP = ("train.py:12 in augment", "tensorflow/python/ops/script_ops.py:269 in __call__")


def test_python_of_the_step_is_the_step_and_not_the_input() -> None:
    inside = thread(*OP, user_line=OP[0], is_main=False, wait="lock")
    assert conclusion(hang(STEP, inside, python_ops=1)) == (
        "hang",
        "high",
        "The step has waited 60.0 s for its own Python in augment, train.py:12",
    )
    title = "The input has not come for 60.0 s: a thread of its pipeline is in augment, train.py:12"
    assert conclusion(hang(STEP, inside))[2] == title
    # A generator is of the input, whatever the step has.
    assert conclusion(hang(STEP, maker(), python_ops=1))[2].startswith("The input has not come")


def test_input_that_computes_is_slow_and_no_hang() -> None:
    main = thread(NEXT, "train.py:80 in <module>")
    for wait, code in (("computing", "long-pause"), ("lock", "hang")):
        assert conclusion(between_steps(main, maker(wait=wait)))[0] == code


def test_a_script_with_jax_waits_for_its_devices() -> None:
    main = thread(
        "jax/_src/array.py:650 in _value", "train.py:50 in log", user_line="train.py:50 in log"
    )
    assert conclusion(between_steps(main, cores=0.0)) == (
        "hang",
        "high",
        "The results of the devices have not come for 60.0 s: the main thread waits in log, train.py:50",
    )
    assert conclusion(between_steps(main, cores=1.0))[0] == "long-pause"


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        (NEXT, "input"),
        ("tensorflow/python/distribute/input_lib.py:264 in __next__", "input"),
        (SAVE, "checkpoint"),
        ("keras/src/saving/saving_api.py:106 in save_model", "checkpoint"),
        ("keras/src/models/model.py:340 in save_weights", "checkpoint"),
        ("tensorflow/python/checkpoint/checkpoint.py:2500 in restore", "restore"),
        (EVALUATE, "validation"),
        ("tensorflow/python/framework/func_graph.py:1060 in func_graph_from_py_func", "tracing"),
        ("<frozen importlib._bootstrap>:241 in _find_spec", "import"),
        ("train.py:3 in save", "python"),
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
    assert since(hang()) == "No step has ended for 60 s since step 41 ended at 08:00:00 UTC"
    assert since(hang(step_count=0)).endswith("since the script started at 08:00:00 UTC")
    assert outcome(hang()) is None
    assert outcome(hang(state="went-on", total_ns=83 * SECOND)) == "Training went on after 83 s."
    assert outcome(hang(state="ended", total_ns=700 * SECOND)) == (
        "The script ended after 12 min without another step."
    )


def test_the_screen_has_what_an_engineer_needs() -> None:
    case = hang(STEP, task="worker 0", workers=(worker(),))
    lines = list(short_lines(case))
    assert lines[0] == "No step has ended for 60 s since step 41 ended at 08:00:00 UTC, worker 0."
    assert lines[1].startswith("hang: worker 1 did not reach a collective")
    assert lines[2] == (
        f"main thread: train.py:87 in <module> → {EXECUTE}, waits for a lock, a condition or a queue"
    )
    assert lines[3].startswith("worker 1: in train.py:50 in write_summary")
    assert lines[4].startswith("what to do: Look at what the worker")


def test_every_form_says_the_same() -> None:
    case = hang(STEP, maker(), workers=(worker(),))
    section = hang_document(case)
    page = markdown.render_section(section)
    text = terminal.render_section(section, width=200, color=False)
    files, _ = write_up(content_of(case))
    assert files[".md"].decode() == page
    for words in ("train.py:87", "read_batches", "write_summary"):
        assert words in page
        assert words in text


def test_facts_become_the_report_that_they_are() -> None:
    case = hang(STEP, workers=(worker(),))
    assert hang_of(content_of(case)) == case


def test_a_redacted_report_names_nobody() -> None:
    case = hang(STEP, maker(), workers=(worker(host="secret"),), host="secret")
    text = str(content_of(redacted_record(case)))
    for name in ("secret", "train.py", "data.py", "read_batches", "write_summary", "train_step"):
        assert name not in text
