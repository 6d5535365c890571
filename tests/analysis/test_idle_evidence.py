"""A finding names the devices that wait as long, and a gap the event that shows its cause."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.scenarios.model import marked_steps, new_trace


def test_what_a_step_did_is_no_evidence_of_what_ran_between_steps(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace, marker_ms=30):
        step.kernel(0, 2, 12)
        step.host("cpu/work:Work", 13, 29)
        step.host("EagerLocalExecute: WriteSummary", 40, 41)
    trace.write(tmp_path)
    idle = traceview.analyze(tmp_path).results.idle
    assert idle is not None
    gap = idle.devices[0].gaps[0]
    assert (gap.cause, gap.host_event) == ("callback", "EagerLocalExecute: WriteSummary")


@pytest.mark.parametrize(("second_ms", "both"), [(31.5, True), (2, False)])
def test_devices_that_wait_as_long_are_named(tmp_path: Path, second_ms: float, both: bool) -> None:
    """GPU:0 is idle least; GPU:1 waits for the same input, or had its kernel before it."""
    trace = new_trace()
    for step in marked_steps(trace):
        step.host("IteratorGetNext:IteratorGetNext", 1, 31)
        step.kernel(0, 32, 44, launch_ms=31.5)
        begin = second_ms + 0.5
        step.kernel(1, begin, begin + (10 if both else 11), launch_ms=second_ms if both else 0.5)
        if not both:
            step.kernel(1, 14, 14.5, launch_ms=0.6)
    trace.write(tmp_path)
    (finding,) = [f for f in traceview.analyze(tmp_path).findings if f.code == "input-bound"]
    assert finding.devices == (("GPU:0", "GPU:1") if both else ("GPU:0",))
    assert ("GPU:1 waits as long or longer." in finding.explanation) is both
