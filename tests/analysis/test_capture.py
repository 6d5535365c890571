"""The report says when the clocks of host and GPU disagree."""

from __future__ import annotations

from pathlib import Path

import traceview
from scripts.scenarios import SCENARIOS


def test_events_before_their_launch_are_counted_and_said(tmp_path: Path) -> None:
    SCENARIOS["clock_inversion"]().write(tmp_path)
    report = traceview.analyze(tmp_path)
    assert report.capture.hosts[0].clock_inversion_count == 4
    assert [problem.code for problem in report.capture.problems] == ["clock-inversion"]
    assert report.capture.problems[0].text.startswith("4 GPU events start before their launch")
    assert report.capture.quality == "ok"
    assert {finding.severity for finding in report.findings} == {"info"}


def test_clocks_that_agree_are_no_problem(tmp_path: Path) -> None:
    SCENARIOS["plain"]().write(tmp_path)
    report = traceview.analyze(tmp_path)
    assert report.capture.hosts[0].clock_inversion_count == 0
    assert report.capture.problems == ()
