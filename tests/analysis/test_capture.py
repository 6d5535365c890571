"""The report says when the clocks of host and GPU disagree."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.scenarios.model import ms, new_trace
from tests.sidecars import write_sidecar

COORDINATOR = {
    "cluster": {"role": "chief", "index": 0},
    "strategy": {"class": "ParameterServerStrategyV2"},
}


@pytest.mark.parametrize(
    ("sidecar", "has_events", "reason"),
    [
        ({}, False, "no op of TensorFlow ended while it was profiled"),
        (
            {},
            True,
            "there was no GPU, and no op ran inside of a graph on the CPU; what runs outside",
        ),
        (
            COORDINATOR,
            True,
            "this process hands the steps to its workers, which run the ops; record",
        ),
        ({**COORDINATOR, "strategy": {"class": "MirroredStrategy"}}, True, "there was no GPU, and"),
    ],
    ids=["nothing ran", "eager", "coordinator", "chief"],
)
def test_a_run_without_a_device_says_why(
    sidecar: dict[str, object], has_events: bool, reason: str, tmp_path: Path
) -> None:
    trace = new_trace()
    if has_events:
        trace.thread("python", 7).add("EagerExecute", 0, ms(1), {})
    write_sidecar(trace.write(tmp_path), sidecar)
    report = traceview.analyze(tmp_path)
    assert report.capture.quality == "unusable"
    assert f"No device was recorded: {reason}" in report.verdict.headline
