"""Garbage collections that devices wait for are a finding of their own, and nothing else of the step is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.scenarios.model import marked_steps, new_trace
from tests.python_sidecars import PROFILE_START_NS, Line, Sample, python_group
from tests.sidecars import write_sidecar

THREADS: list[dict[str, Any]] = [{"ident": 140_000, "name": "MainThread", "native_id": 1}]
STEP: Line = ("train.py", "<module>", 60, True)
MILLISECOND_NS = 1_000_000


def analyzed(folder: Path, *collections: tuple[float, float]) -> traceview.Report:
    """Four steps of 50 ms with a pause of 10 ms after each; the GPU computes from 20 ms on, and Python has the rest.

    `collections`: start and length in every step, in milliseconds.
    """
    trace = new_trace(length_ms=300)
    samples: list[Sample] = []
    spans: list[tuple[int, int, int]] = []
    for step in marked_steps(trace, period_ms=60, marker_ms=50):
        step.host("EagerExecute", 0, 0.1)
        step.host("EagerExecute", 19.9, 20)
        step.kernel(0, 20, 50, launch_ms=19.95)
        begin_ns = PROFILE_START_NS + round(step.start_ms * MILLISECOND_NS)
        samples += [(begin_ns + at * MILLISECOND_NS, 0, (STEP,)) for at in range(60)]
        spans += [
            (begin_ns + round(start * MILLISECOND_NS), round(length * MILLISECOND_NS), 2)
            for start, length in collections
        ]
    path = trace.write(folder)
    write_sidecar(path, {"python": python_group(samples, THREADS, collections=spans)})
    return traceview.analyze(folder)


def state_ps(report: traceview.Report, state: str) -> int:
    steps = report.results.steps
    assert steps is not None
    return sum(device.states.get(state, 0) for step in steps.steps for device in step.devices)


def test_a_collection_beside_compute_costs_nothing(tmp_path: Path) -> None:
    report = analyzed(tmp_path, (25, 20))

    assert state_ps(report, "garbage_collection") == 0
    assert "garbage-collection" not in {row.code for row in report.findings}


@pytest.mark.parametrize(
    "row", [[1, 2], [1, 2, 3, 4], ["a", 1, 2], [-(10**30), 1, 2], None, 7], ids=str
)
def test_what_is_no_collection_is_left_out(row: Any, tmp_path: Path) -> None:
    trace = new_trace()
    for step in marked_steps(trace):
        step.kernel(0, 2, 42)
    group = {**python_group([(PROFILE_START_NS, 0, (STEP,))], THREADS), "collections": [row]}
    path = trace.write(tmp_path)
    write_sidecar(path, {"python": group})

    assert state_ps(traceview.analyze(tmp_path), "garbage_collection") == 0
