"""The time between step markers is split without rest, by what ran there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.scenarios.model import marked_steps, ms, new_trace
from tests.analysis.sections import (
    cells_of,
    check_printed,
    headings_of,
    sentences_of,
    tables_of,
    view_of,
)
from traceview.analysis.gpu_time.between_steps import (
    KINDS,
    WORTH_A_SENTENCE_RATIO,
    BetweenAllSteps,
    BetweenSteps,
    section,
)
from traceview.document.model import Section
from traceview.report.model import Report

FIXTURES = Path(__file__).resolve().parent.parent.parent / "fixtures"


def between(report: Report) -> BetweenSteps:
    assert report.results.between_steps is not None
    (host,) = report.results.between_steps.hosts
    return host


def test_each_kind_of_work_has_its_time(tmp_path: Path) -> None:
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


# The section


def shown(mean_ms: float, **changes: Any) -> Section | None:
    """Between steps of 100 ms a host saves for three quarters of the time."""
    total_ps = ms(4 * mean_ms)
    host = BetweenSteps(
        host="host0",
        count=4,
        total_ps=total_ps,
        ratio=mean_ms / 100,
        parts_ps={"python": total_ps // 4, "checkpoint": total_ps - total_ps // 4},
        names={"checkpoint": ("save/SaveV2:SaveV2", "save/Shard", "save/Merge")},
    )
    return section(view_of(**changes), BetweenAllSteps((host,)))


def test_what_takes_a_share_of_the_step_is_a_sentence() -> None:
    sentence = (
        "The host spends 8.00 ms between steps: 6.00 ms saving or restoring (save/SaveV2:SaveV2), 2.00 ms running "
        "Python."
    )
    assert sentences_of(shown(8)) == [sentence]
    (table,) = tables_of(shown(8))
    cells = [cells_of(table, heading) for heading in headings_of(table)]
    assert [list(row) for row in zip(*cells, strict=True)] == [
        ["saving or restoring", "6.00 ms", "75.0%", "4", "save/SaveV2:SaveV2, save/Shard"],
        ["running Python", "2.00 ms", "25.0%", "4", ""],
    ]
    check_printed(shown(8), "saving or restoring", "6.00 ms")


@pytest.mark.parametrize(
    ("mean_ms", "is_said"), [(WORTH_A_SENTENCE_RATIO * 100, True), (4.9, False)]
)
def test_a_brief_document_has_the_sentences_only(mean_ms: float, is_said: bool) -> None:
    brief = shown(mean_ms, is_brief=True)
    assert (brief is not None) is is_said
    assert tables_of(brief) == []
    assert len(tables_of(shown(mean_ms))) == 1
