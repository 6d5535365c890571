"""The title of a finding names the step with most of what it costs."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.scenarios.model import Step, new_trace


def title(pauses_ms: list[float], logdir: Path) -> str:
    """Of the finding `callback-stall` for steps of 50 ms, each followed by a pause between markers."""
    trace = new_trace(length_ms=1000)
    start_ms = 0.0
    for number, pause_ms in enumerate(pauses_ms):
        step = Step(trace, start_ms)
        trace.marker(number, step.at(0), step.at(50))
        step.kernel(0, 1, 49)
        start_ms += 50 + pause_ms
    # Ends the last pause; too short to count beside the others.
    last = Step(trace, start_ms)
    trace.marker(len(pauses_ms), last.at(0), last.at(50))
    trace.write(logdir)
    findings = traceview.analyze(logdir).findings
    return next(finding.title for finding in findings if finding.code == "callback-stall")


@pytest.mark.parametrize("slow", [0, 2])
def test_the_step_with_most_of_it_is_named(slow: int, tmp_path: Path) -> None:
    pauses: list[float] = [2, 2, 2, 2]
    pauses[slow] = 300
    assert title(pauses, tmp_path).endswith(f", most of it in step {slow}")


def test_no_step_is_named_where_all_have_some(tmp_path: Path) -> None:
    expected = "GPU:0 waits 16.0 ms per step on average for Python between steps (22.9%)"
    assert title([20, 20, 20, 20], tmp_path) == expected


def test_of_two_steps_none_is_named(tmp_path: Path) -> None:
    assert "most of it" not in title([100], tmp_path)
