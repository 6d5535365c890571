"""Tests that the section on input gives the wait, what the pipeline lacks, and hosts and stages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.sections import view_of
from traceview.analysis.gpu_time.input import Input, InputHost, section
from traceview.document.phrase import Sentence

MS = 10**9


def lead_of(of_host: dict[str, Any], changes: dict[str, Any]) -> Sentence | None:
    """The lead of a run with one host."""
    known: dict[str, Any] = {
        "host": "worker0",
        "device": "GPU:0",
        "wait_ps": 80 * MS,
        "wait_per_step_ps": 20 * MS,
        "input_ratio": 0.616,
        "keeps_up": False,
        **dict.fromkeys(("reason", "slowest_stage", "work_ratio", "empty_step_ratio")),
    }
    result: dict[str, Any] = {"input_ratio": 0.616, "verdict": "high", **changes}
    hosts = (InputHost(**known | of_host),)
    return section(
        view_of(), Input(hosts=hosts, lacks_prefetch=False, stages=(), stage_count=0, **result)
    ).lead


KEEPS_UP: dict[str, Any] = {"keeps_up": True}


@pytest.mark.parametrize(
    ("of_host", "changes", "lead"),
    [
        ({}, {}, "GPU:0 waits 62% of the step for input (high)."),
        ({"wait_per_step_ps": None}, {}, "GPU:0 waits 62% of the window for input (high)."),
        (
            {"device": None},
            {},
            "The thread that runs the steps waits 62% of the step for the next batch (high).",
        ),
        (
            KEEPS_UP,
            {"input_ratio": 0.01, "verdict": "none"},
            "GPU:0 waits 1.0% of the step for input. The pipeline keeps up: a batch is ready when the model asks.",
        ),
        (
            KEEPS_UP,
            {},
            "GPU:0 waits 62% of the step for input (high). A batch is ready, but the pipeline keeps Python's lock or cores from the step.",
        ),
        (
            {"reason": "no used step"},
            {"input_ratio": None, "verdict": None},
            "Input wait: unknown; no used step.",
        ),
    ],
)
def test_the_lead_is_the_verdict(
    of_host: dict[str, Any], changes: dict[str, Any], lead: str
) -> None:
    assert lead_of(of_host, changes) == lead
