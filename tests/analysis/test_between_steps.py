"""Is the time between step markers split without rest, by what ran there?"""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.scenarios.model import marked_steps, ms, new_trace
from traceview.analysis.between_steps import KINDS, BetweenSteps
from traceview.report.model import Report

FIXTURES = Path(__file__).resolve().parent.parent.parent / "fixtures"


def between(report: Report) -> BetweenSteps:
    assert report.results.between_steps is not None
    (host,) = report.results.between_steps.hosts
    return host


def test_what_ran_there_is_told_apart(tmp_path: Path) -> None:
    """Markers end 20 ms before the next; of that 7 ms save, 2 write summaries, 4 evaluate, 7 leave no event."""
    trace = new_trace()
    for step in marked_steps(trace, marker_ms=30):
        step.kernel(0, 2, 29)
        step.host("EagerLocalExecute: SaveV2", 31, 38)
        step.host("EagerLocalExecute: WriteSummary", 38, 40)
        # Saving inside of it is saving; the rest of the call is evaluation.
        step.host("FunctionRun", 42, 47)
        step.host("save/SaveV2:SaveV2", 43, 44)
    trace.write(tmp_path)
    host = between(traceview.analyze(tmp_path))
    assert (host.count, host.total_ps) == (3, 3 * ms(20))
    assert host.parts_ps == {
        "checkpoint": 3 * ms(8),
        "summary": 3 * ms(2),
        "graph_call": 3 * ms(4),
        "python": 3 * ms(6),
    }
    assert host.names["summary"] == ("EagerLocalExecute: WriteSummary",)
    assert host.names["checkpoint"] == ("EagerLocalExecute: SaveV2", "save/SaveV2:SaveV2")


def test_only_the_window_counts(tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace, marker_ms=30):
        step.kernel(0, 2, 29)
    trace.write(tmp_path)
    host = between(traceview.analyze(tmp_path, steps=slice(1, 3)))
    # Two steps of 50 ms: one span between their markers, and one up to the next marker.
    assert (host.count, host.total_ps) == (2, 2 * ms(20))


def test_without_explicit_markers_nothing_is_said(tmp_path: Path) -> None:
    report = traceview.analyze(FIXTURES / "no-markers-2")
    assert report.results.between_steps is None
    assert report.skipped["between_steps"] == "no step is marked explicitly"


@pytest.mark.parametrize("name", ["custom-loop-2", "keras-fit-4", "plain-1", "slow-input-2"])
def test_parts_sum_to_the_whole(name: str) -> None:
    host = between(traceview.analyze(FIXTURES / name))
    assert sum(host.parts_ps.values()) == host.total_ps
    assert set(host.parts_ps) <= set(KINDS)
