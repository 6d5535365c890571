"""A run without a device says why."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.scenarios.model import ms, new_trace


@pytest.mark.parametrize(
    ("has_events", "reason"),
    [
        (False, "no op of TensorFlow ended while it was profiled"),
        (True, "there was no GPU, and no op ran inside of a graph on the CPU; what runs outside"),
    ],
    ids=["nothing ran", "eager"],
)
def test_a_run_without_a_device_says_why(has_events: bool, reason: str, tmp_path: Path) -> None:
    trace = new_trace()
    if has_events:
        trace.thread("python", 7).add("EagerExecute", 0, ms(1), {})
    trace.write(tmp_path)
    report = traceview.analyze(tmp_path)
    assert report.capture.quality == ("degraded" if has_events else "unusable")
    assert f"No device was recorded: {reason}" in report.verdict.headline
