"""An option that TensorFlow ignored is reported only where the capture shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.scenarios.model import marked_steps, ms, new_trace
from tests.sidecars import write_sidecar

DEFAULTS = {"host_tracer_level": 2, "device_tracer_level": 1, "python_tracer_level": 0}
WITH_PYTHON = {**DEFAULTS, "python_tracer_level": 1}


def analyzed(
    folder: Path, options: dict[str, Any] | None, *, recorded: bytes = b"", event: str = ""
) -> traceview.Report:
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 42)
    if recorded:
        trace.extra_planes[0].stats["profile_options"] = recorded
    if event:
        trace.thread().add(event, ms(1), ms(2))
    path = trace.write(folder)
    if options is not None:
        write_sidecar(path, {"options": options})
    return traceview.analyze(folder)


def ignored(report: traceview.Report) -> list[traceview.Finding]:
    return [finding for finding in report.findings if finding.code == "options-ignored"]


def test_levels_in_force_that_were_not_asked_for(tmp_path: Path) -> None:
    report = analyzed(tmp_path, {"asked": WITH_PYTHON, "in_force": DEFAULTS})
    (finding,) = ignored(report)
    assert finding.title == "TensorFlow ignored the profiler's python_tracer_level"
    assert (finding.severity, finding.confidence) == ("info", "high")
    (evidence,) = finding.evidence
    assert (evidence.metric, evidence.value) == ("python_tracer_level", 0)
    assert evidence.where == "host0, 1 asked"
    (problem,) = report.capture.problems
    assert (problem.code, report.capture.quality) == ("options-ignored", "ok")
    assert problem.text == (
        "TensorFlow ignored python_tracer_level: 1 was asked for, 0 was in force"
    )


def test_the_trace_tells_where_the_sidecar_does_not(tmp_path: Path) -> None:
    """Host 2, device 1 and Python 0 as TensorFlow 2.21 writes them."""
    options = {"asked": {**WITH_PYTHON, "host_tracer_level": 3}, "in_force": None}
    (finding,) = ignored(analyzed(tmp_path, options, recorded=b"\x10\x02\x18\x01"))
    assert finding.title == (
        "TensorFlow ignored the profiler's host_tracer_level and python_tracer_level"
    )
    assert finding.confidence == "high"


@pytest.mark.parametrize(
    ("options", "event"),
    [
        ({"asked": WITH_PYTHON, "is_ignored": True}, "$train.py:1 step"),
        ({"asked": WITH_PYTHON}, "train.py:1 step"),
    ],
    ids=["the release takes none", "no Python event"],
)
def test_without_recorded_levels_other_evidence(
    options: dict[str, Any], event: str, tmp_path: Path
) -> None:
    (finding,) = ignored(analyzed(tmp_path, options, event=event))
    assert finding.confidence == "medium"
    assert finding.evidence[0].value == "not recorded"


@pytest.mark.parametrize(
    ("options", "recorded", "event"),
    [
        (None, b"\x10\x02\x18\x01", ""),
        ({"asked": DEFAULTS, "in_force": DEFAULTS, "is_ignored": True}, b"", ""),
        ({"asked": WITH_PYTHON, "in_force": WITH_PYTHON}, b"\x10\x02\x18\x01", ""),
        ({"asked": DEFAULTS, "is_ignored": True}, b"", ""),
        ({"asked": {**DEFAULTS, "host_tracer_level": 3}, "is_ignored": False}, b"", ""),
        ({"asked": WITH_PYTHON}, b"", "$train.py:1 step"),
        ({"in_force": DEFAULTS}, b"", ""),
    ],
)
def test_nothing_is_claimed_that_cannot_be_shown(
    options: dict[str, Any] | None, recorded: bytes, event: str, tmp_path: Path
) -> None:
    report = analyzed(tmp_path, options, recorded=recorded, event=event)
    assert ignored(report) == []
    assert report.capture.problems == ()
