"""A hang has one conclusion, and what only takes long is not called a hang."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.test_findings import check_finding
from tests.hangs import (
    EXECUTE,
    SECOND,
    STEP,
    between_steps,
    collective,
    hang,
    thread,
    worker,
)
from traceview.analysis.hang.findings import diagnose, outcome, since
from traceview.analysis.hang.phase import phase_of
from traceview.analysis.hang.section import hang_document, short_lines
from traceview.analysis.hang.write_up import content_of, write_up
from traceview.document import markdown, terminal
from traceview.report.redaction import redacted_record
from traceview.trace.hang import Hang, HangGpu, hang_of

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
    check_finding(finding)
    return finding.code, finding.confidence, finding.title


@pytest.mark.parametrize(
    ("case", "code", "confidence", "title"),
    [
        pytest.param(
            hang(STEP, task="worker 0", workers=(worker(),)),
            "hang-collective",
            "high",
            "worker 0 waits in train_step; worker 1 did not come: in train.py:50 in write_summary, without a step "
            "for 60 s (last step: 41)",
            id="worker elsewhere",
        ),
        pytest.param(
            hang(STEP, task="worker 0", workers=(worker("ended"),)),
            "hang-collective",
            "high",
            "worker 0 waits in train_step; worker 1 did not come: its script has ended (last step: 41)",
            id="worker ended",
        ),
        pytest.param(
            hang(STEP, workers=(worker("silent", silent_ns=70 * SECOND),)),
            "hang-collective",
            "medium",
            "this process waits in train_step; worker 1 did not come: stopped, gone or cut off: it wrote last 70 s "
            "ago, when 42 steps had ended",
            id="worker silent",
        ),
        pytest.param(
            hang(STEP, workers=(worker("unknown", is_answering=False),)),
            "hang-collective",
            "high",
            "this process waits in train_step; worker 1 did not come: it does not answer",
            id="worker does not answer",
        ),
        pytest.param(
            hang(STEP, workers=(worker("in-step"),)),
            "hang-collective",
            "low",
            "train_step has not returned for 60 s, and may wait in a collective of the workers: all workers are in "
            "the call of a step",
            id="all workers in the step",
        ),
        pytest.param(
            hang(
                STEP,
                collectives=(
                    collective("GPU:0", has_come=True),
                    collective("GPU:1", has_come=False),
                ),
            ),
            "hang-collective",
            "high",
            "GPU:1 did not come to CollectiveReduceV2 (group 2), in which GPU:0 waits",
            id="device recorded as absent",
        ),
        pytest.param(
            hang(STEP, collectives=(collective("GPU:0"), collective("GPU:1"))),
            "hang-collective",
            "low",
            "train_step has not returned for 60 s, and may wait in a collective of 2 devices: its 2 collectives on "
            "2 devices can wait for each other",
            id="collectives in the graph",
        ),
        pytest.param(
            hang(STEP, gpus=(HangGpu(0, 1.0, 90.0), HangGpu(1, 0.0, 60.0))),
            "hang-collective",
            "medium",
            "GPU:1 idles while the other GPUs are busy: a collective probably waits for it",
            id="one GPU idle",
        ),
        pytest.param(
            between_steps(thread(NEXT, "train.py:80 in <module>"), maker()),
            "hang-input",
            "high",
            "the input does not come: data.py:12 in read_batches waits for a lock, a condition or a queue, and the "
            "main thread waits for it",
            id="generator blocks",
        ),
        pytest.param(
            between_steps(
                thread(
                    "tensorflow/python/ops/gen_data_flow_ops.py:3832 in queue_dequeue_v2",
                    "train.py:80 in <module>",
                )
            ),
            "hang-input",
            "high",
            "the input does not come (train.py:80 in <module>): the main thread waits for the next batch",
            id="queue of TensorFlow",
        ),
        pytest.param(
            hang(STEP, maker(), collectives=(collective("GPU:0"), collective("GPU:1"))),
            "hang-input",
            "medium",
            "the input does not come: data.py:12 in read_batches waits for a lock, a condition or a queue, and the "
            "step waits for it",
            id="Keras waits for a generator inside of its step",
        ),
        pytest.param(
            between_steps(thread("threading.py:320 in wait", "train.py:50 in on_epoch_end")),
            "hang-python",
            "high",
            "the main thread is in train.py:50 in on_epoch_end (in threading.py:320 in wait) between steps, and "
            "waits for a lock, a condition or a queue",
            id="lock",
        ),
        pytest.param(
            between_steps(
                thread("train.py:50 in plot", wait="computing", computing_ratio=1.0), cores=1.0
            ),
            "hang-python",
            "medium",
            "the main thread is in train.py:50 in plot between steps, and computes",
            id="loop",
        ),
        pytest.param(
            between_steps(
                thread("train.py:50 in sleep", wait="sleep"), workers=(worker("in-step"),)
            ),
            "hang-python",
            "high",
            "the main thread is in train.py:50 in sleep between steps, and sleeps; it keeps worker 1 waiting in a step",
            id="the worker for which the others wait",
        ),
        pytest.param(
            between_steps(thread(SAVE, "train.py:50 in <module>", wait="disk")),
            "hang-python",
            "high",
            f"the main thread is in train.py:50 in <module> (in {SAVE}) between steps, and waits for a disk or a "
            "file system, while a checkpoint is being written",
            id="a checkpoint in which nothing moves",
        ),
        pytest.param(
            hang(is_lock_held=True),
            "hang-python",
            "medium",
            "no Python could run for 60 s",
            id="lock of Python",
        ),
        pytest.param(
            hang(STEP),
            "hang-step",
            "high",
            "train_step has not returned for 60 s, and the process hardly computes",
            id="nothing known",
        ),
        pytest.param(
            hang(STEP, cores=1.8, is_first_call=True),
            "long-pause",
            "medium",
            "no step has ended for 60 s: the first call of train_step traces and compiles, or runs "
            "(train.py:87 in <module>), on 1.8 cores",
            id="first compilation",
        ),
        pytest.param(
            between_steps(thread(SAVE, "train.py:50 in <module>"), written_bytes=10**9),
            "long-pause",
            "medium",
            "no step has ended for 60 s: a checkpoint is being written (train.py:50 in <module>)",
            id="checkpoint",
        ),
        pytest.param(
            between_steps(thread(EXECUTE, EVALUATE, "train.py:50 in <module>", is_moving=True)),
            "long-pause",
            "medium",
            "no step has ended for 60 s: validation or prediction is running (train.py:50 in <module>)",
            id="validation",
        ),
        pytest.param(
            between_steps(
                thread("train.py:50 in evaluate", wait="sleep"),
                calls_in_look=3,
                other_call_count=90,
                other_function="test_step",
            ),
            "long-pause",
            "medium",
            "no step has ended for 60 s: test_step is being called, which is no training step (90 calls so far) "
            "(train.py:50 in evaluate)",
            id="a loop of one's own that evaluates",
        ),
    ],
)
def test_conclusions(case: Hang, code: str, confidence: str, title: str) -> None:
    assert conclusion(case) == (code, confidence, title)


def test_the_step_that_still_computes_is_no_hang() -> None:
    limit = 0.2
    for cores, code in ((limit, "long-pause"), (limit - 0.01, "hang-step")):
        assert conclusion(hang(STEP, cores=cores))[0] == code


@pytest.mark.parametrize(
    ("step_count", "steps"),
    [
        (42, "--steps 41:43 --on-hang 60s."),
        (1, "--steps 1:2 --on-hang 60s."),
        (None, "--steps 99:101 --on-hang 60s for step 100."),
    ],
)
def test_the_advice_names_the_step_to_record(step_count: int | None, steps: str) -> None:
    (finding,) = diagnose(hang(STEP, step_count=step_count))
    assert f"that step and the one before it: traceview capture {steps}" in finding.advice


def test_nothing_is_concluded_about_a_process_that_was_not_watched() -> None:
    seen = hang(STEP, state="attached", waited_ns=None, step_count=None, is_step=False)
    assert diagnose(seen) == []
    assert phase_of(seen) == "step"
    assert since(seen) == "Seen from outside: whether steps end is not known"


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
    assert phase_of(between_steps(thread(line, "train.py:50 in <module>"))) == phase


def test_a_script_that_runs_inside_of_an_import_is_not_importing() -> None:
    stack = thread(
        "train.py:50 in wait",
        "<frozen importlib._bootstrap>:241 in _find_and_load",
        "main.py:1 in <module>",
        user_line="train.py:50 in wait",
    )
    assert phase_of(between_steps(stack)) == "python"


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
    assert lines[1].startswith("hang-collective: worker 0 waits in train_step")
    assert lines[2] == (
        f"main thread: train.py:87 in <module> → {EXECUTE}, waits for a lock, a condition or a queue"
    )
    assert lines[3].startswith("worker 1: in train.py:50 in write_summary")
    assert lines[4].startswith("what to do: Look at what the worker")


def test_every_form_says_the_same() -> None:
    case = hang(STEP, maker(), workers=(worker(),), collectives=(collective("GPU:0"),))
    section = hang_document(case)
    page = markdown.render_section(section)
    text = terminal.render_section(section, width=200, color=False)
    files, _ = write_up(content_of(case))
    assert files[".md"].decode() == page
    for words in ("train.py:87", "read_batches", "write_summary", "CollectiveReduceV2"):
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
