"""Frames that a tracer of Python recorded name the line of the script that ran, and say that it was Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.scenarios.model import marked_steps, new_trace
from tests.analysis.made import analyzed
from traceview.analysis.rules.finding import Finding


def finding(folder: Path, *frames: tuple[str, float, float]) -> Finding:
    """The finding about four steps of 100 ms, in which GPU:0 waits 30 ms; `frames`: name, start and end in each step."""
    trace = new_trace(length_ms=1000)
    for step in marked_steps(trace, count=4, period_ms=100, marker_ms=100):
        for name, start_ms, end_ms in frames:
            step.host(name, start_ms, end_ms)
        step.host("EagerExecute", 0, 0.001)
        step.host("PjitFunction(step)", 30, 30.01)
        step.kernel(0, 30, 100, launch_ms=30)
    (found,) = (row for row in analyzed(folder, trace).findings if row.loss)
    return found


SCRIPT = ("$train.py:1 <module>", 0, 100)


@pytest.mark.parametrize(
    ("frames", "line"),
    [
        ((SCRIPT,), "train.py:1"),
        ((("$fromnumeric.py:9 sort", 0, 30), ("$numpy sort", 2, 28)), "sort, fromnumeric.py:9"),
        ((SCRIPT, ("$train.py:9 augmented", 1, 29)), "augmented, train.py:9"),
        (
            (SCRIPT, ("$train.py:9 augmented", 1, 29), ("$numpy sort", 2, 28)),
            "augmented, train.py:9",
        ),
        (
            (SCRIPT, ("$train.py:9 augmented", 1, 29), ("$fromnumeric.py:9 sort", 2, 28)),
            "augmented, train.py:9",
        ),
        (
            (
                ("$train.py:40 train", 0, 100),
                ("$trainer.py:2 fit", 1, 99),
                ("$train.py:9 made", 1, 29),
            ),
            "made, train.py:9",
        ),
        (
            # Most of the time counts, not most of the frames.
            (
                SCRIPT,
                *(("$train.py:5 short", 1 + place, 1.9 + place) for place in range(9)),
                ("$train.py:9 long", 10, 29),
            ),
            "long, train.py:9",
        ),
    ],
    ids=[
        "script",
        "library alone",
        "function",
        "in C",
        "in a library",
        "below a library",
        "most time",
    ],
)
def test_the_line_of_the_script(
    frames: tuple[tuple[str, float, float], ...], line: str, tmp_path: Path
) -> None:
    found = finding(tmp_path, *frames)
    assert found.code == "python-stall"
    assert found.title == f"GPU:0 waits 30.0 of 100 ms (30%) for Python in the step in {line}"


def test_where_no_frame_is_open_no_python_ran(tmp_path: Path) -> None:
    """Frames were recorded, at the end of the step; while the device waits there is none."""
    found = finding(tmp_path, ("$train.py:9 augmented", 40, 50))
    assert found.code == "between-calls"


@pytest.mark.parametrize(("python_ms", "severity"), [(0.24, "info"), (0.26, "warning")])
def test_what_any_step_takes_in_python_is_a_guess(
    python_ms: float, severity: str, tmp_path: Path
) -> None:
    """Steps of 2 ms."""
    trace = new_trace()
    for step in marked_steps(trace, period_ms=2, marker_ms=2):
        step.host("$train.py:9 drawn", 0, python_ms)
        step.host("PjitFunction(step)", python_ms, python_ms + 0.01)
        step.kernel(0, python_ms, 2, launch_ms=python_ms)
    (found,) = (row for row in analyzed(tmp_path, trace).findings if row.loss)
    assert (found.code, found.severity) == ("python-stall", severity)
