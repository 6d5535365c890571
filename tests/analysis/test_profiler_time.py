"""What the profiler takes for its events is no cost of the program: the dispatch between ops is less by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.scenarios.model import marked_steps, ms, new_trace
from traceview.analysis.base import Finding

EVENTS = 10_000
"""In each step of 100 ms, one every 5 µs, while no replica runs an op."""


def dispatched(
    folder: Path, overhead: dict[str, Any] | None, input_ms: float = 0
) -> Finding | None:
    """Four steps in which a host op keeps the replica waiting for 60 ms, full of short events.

    For the last `input_ms` of these the thread of the step asks for the next batch instead.
    """
    trace = new_trace(length_ms=1000)
    executor = trace.thread("tf_Compute", 41)
    for step in marked_steps(trace, period_ms=100, marker_ms=100):
        step.host("FunctionRun", 0, 100)
        step.host("AddN:AddN", 0, 60 - input_ms, thread=executor)
        if input_ms:
            step.host("IteratorGetNextOp::DoCompute", 60 - input_ms, 60)
        step.host("replica_0/x:MatMul", 60, 100, thread=executor)
        for number in range(EVENTS):
            step.host("MemoryAllocation", 5 + number * 0.005, 5.001 + number * 0.005)
    trace.write(folder)
    if overhead is not None:
        (path,) = folder.rglob("*.xplane.pb")
        sidecar = path.with_name(path.name.replace(".xplane.pb", ".traceview.json"))
        sidecar.write_text(json.dumps({"schema_version": 1, "overhead": overhead}))
    findings = traceview.analyze(folder).findings
    return next((row for row in findings if row.code == "host-bound"), None)


def measured(added_ms: int, spread_ratio: float = 0.0) -> dict[str, Any]:
    unprofiled_ns = (100 - added_ms) * 10**6
    return {
        "unprofiled_ns": unprofiled_ns,
        "profiled_ns": 100 * 10**6,
        "ratio": added_ms * 10**6 / unprofiled_ns,
        "spread_ratio": spread_ratio,
    }


@pytest.mark.parametrize(
    ("overhead", "profiler_ms"),
    [
        (None, 0),
        (measured(4), 4),
        (measured(10), 10),
        (measured(4, spread_ratio=0.05), 0),
    ],
)
def test_the_dispatch_is_less_by_what_events_took(
    overhead: dict[str, Any] | None, profiler_ms: float, tmp_path: Path
) -> None:
    finding = dispatched(tmp_path, overhead)
    assert finding is not None
    cost_ms = 60 - profiler_ms
    assert finding.cost_ps_per_step == pytest.approx(ms(cost_ms), rel=2e-3)
    assert finding.cost_ratio == pytest.approx(cost_ms / (100 - profiler_ms), rel=2e-3)
    assert ("The cost leaves it out" in finding.explanation) == (profiler_ms > 0)
    assert finding.title.endswith("; recorded: 60.0 ms of 100 ms") == (profiler_ms > 0)
    assert (f"{profiler_ms}.00 ms of that is in" in finding.explanation) == (profiler_ms == 4)


def test_events_in_other_waiting_are_not_taken_off_the_dispatch(tmp_path: Path) -> None:
    """Half of the events, and so 2 of the 4 ms that they took, lie in the wait for input."""
    finding = dispatched(tmp_path, measured(4), input_ms=30)
    assert finding is not None
    assert finding.cost_ps_per_step == pytest.approx(ms(30 - 2), rel=2e-2)
