"""The headline of runs with a known answer: the sentence, and the share of the GPU time that it is about."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.scenarios import SCENARIOS
from scripts.scenarios.headlines import HEADLINES, SHARES
from traceview.report.build import analyze

MOST_WORDS = 20


@pytest.mark.parametrize("name", HEADLINES)
def test_the_headline_says_what_an_expert_would(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    verdict = analyze(tmp_path).verdict
    assert verdict.headline == HEADLINES[name]
    assert len(verdict.headline.split()) <= MOST_WORDS
    if verdict.loss is not None and name in SHARES:
        lost_ps, gpu_time_ps = SHARES[name]
        assert verdict.loss.gpu_time_ps == lost_ps
        assert verdict.loss.gpu_time_ratio == lost_ps / gpu_time_ps
