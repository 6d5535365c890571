"""Tests that every value that a finding rests on has a name in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import traceview
from scripts.scenarios import SCENARIOS
from traceview.analysis.capture.tracer_options import DEFAULT_LEVELS
from traceview.analysis.explained_findings import EXPLAINS, EXPLAINS_PART
from traceview.document.evidence import METRICS, metric_words, value_words

SEVERAL = (
    *("slower_gpu", "waits_for_input", "pageable_copies", "exposed_collectives", "retracing"),
    *("one_device", "mixed_models", "throttled_gpu", "gradients_on_one", "mostly_optimizer"),
)


@pytest.mark.parametrize("name", SEVERAL)
def test_the_evidence_of_a_scenario_has_names(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    metrics = {
        row.metric for found in traceview.analyze(tmp_path).findings for row in found.evidence
    }
    assert metrics
    for metric in metrics - {EXPLAINS, EXPLAINS_PART, *DEFAULT_LEVELS}:
        assert metric in METRICS or re.fullmatch(r"idle_\w+_ratio", metric), metric
        assert "_" not in metric_words(metric)


def test_idle_time_is_named_by_its_cause() -> None:
    assert metric_words("idle_sync_ratio") == "idle, host waiting for a value, share of the step"
    assert metric_words("idle_lock_wait_ratio").startswith("idle while the step waits for Python")


def test_what_a_later_version_adds_is_readable() -> None:
    assert metric_words("new_thing_ps") == "new thing"
    assert value_words("status", "of_later") == "of_later"
    assert value_words("status", "empty") == "no event"
