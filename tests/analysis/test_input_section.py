"""Tests that the section on input gives the wait, what the pipeline lacks, and hosts and stages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.sections import view_of
from traceview.analysis.gpu_time.input import Input, InputHost, section

MS = 10**9


def host(name: str = "worker0", **changes: Any) -> InputHost:
    parts: dict[str, Any] = {
        "host": name,
        "device": "GPU:0",
        "wait_ps": 80 * MS,
        "wait_per_step_ps": 20 * MS,
        "input_ratio": 0.616,
        "reason": None,
        "slowest_stage": None,
        "work_ratio": None,
        "empty_step_ratio": None,
        "keeps_up": False,
    }
    return InputHost(**parts | changes)


def input_of(**changes: Any) -> Input:
    parts: dict[str, Any] = {
        "input_ratio": 0.616,
        "verdict": "high",
        "hosts": (host(),),
        "missing": (),
        "stages": (),
        "stage_count": 0,
    }
    return Input(**parts | changes)


CALLS: dict[str, Any] = {"device": None}
KEEPS_UP: dict[str, Any] = {"keeps_up": True}


@pytest.mark.parametrize(
    ("changes", "lead"),
    [
        ({}, "GPU:0 waits 62% of the step for input (high)."),
        (
            {"hosts": (host(wait_per_step_ps=None),)},
            "GPU:0 waits 62% of the window for input (high).",
        ),
        (
            {"hosts": (host(**CALLS),)},
            "The thread that runs the steps waits 62% of the step for the next batch (high).",
        ),
        (
            {"hosts": (host(**KEEPS_UP),), "input_ratio": 0.01, "verdict": "none"},
            "GPU:0 waits 1.0% of the step for input. The pipeline keeps up: a batch is ready when the model asks.",
        ),
        (
            {"hosts": (host(**KEEPS_UP),)},
            "GPU:0 waits 62% of the step for input (high). A batch is ready, but the pipeline keeps Python's lock or cores from the step.",
        ),
        (
            {"input_ratio": None, "verdict": None, "hosts": (host(reason="no used step"),)},
            "Input wait: unknown; no used step.",
        ),
    ],
)
def test_the_lead_is_the_verdict(changes: dict[str, Any], lead: str) -> None:
    assert section(view_of(), input_of(**changes)).lead == lead
