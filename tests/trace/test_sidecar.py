"""What of the file that `traceview capture` writes beside a trace reaches the report?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.scenarios import SCENARIOS


def written(logdir: Path, sidecar: str) -> traceview.Report:
    (path,) = SCENARIOS["plain"]().write(logdir)
    path.with_name(path.name.replace(".xplane.pb", ".traceview.json")).write_text(sidecar)
    return traceview.analyze(logdir)


def test_edge_steps_are_left_out_and_the_overhead_is_said(tmp_path: Path) -> None:
    fields = {"window": {"asked": [1, 3], "edge_steps": [0, 3]}, "overhead": {"ratio": 0.25}}
    report = written(tmp_path, json.dumps(fields))
    assert report.results.steps is not None
    assert [step.number for step in report.results.steps.steps] == [1, 2]
    (window,) = report.windows
    assert (window.kind, window.end_ps - window.start_ps) == ("steps", 100_000_000_000)
    assert report.capture.hosts[0].overhead_ratio == 0.25


@pytest.mark.parametrize("fields", [{}, [], None, {"window": 3}, {"window": {"edge_steps": ["a"]}}])
def test_every_field_may_be_missing(fields: Any, tmp_path: Path) -> None:
    report = written(tmp_path, json.dumps(fields))
    assert report.results.steps is not None
    assert report.results.steps.count == 4
    assert report.capture.hosts[0].overhead_ratio is None
    assert report.capture.problems == ()


@pytest.mark.parametrize("text", ["{", "", "\x00", "[" * 100_000])
def test_a_broken_one_is_a_problem_and_no_more(text: str, tmp_path: Path) -> None:
    report = written(tmp_path, text)
    assert [problem.code for problem in report.capture.problems] == ["sidecar-unreadable"]
    assert report.results.steps is not None
    assert report.results.steps.count == 4
