"""A report that is made for the first screen shows on it what the whole report shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from traceview.report import build
from traceview.report.document import screen_of

FIXTURES = Path(__file__).resolve().parent.parent.parent / "fixtures"


@pytest.mark.parametrize("name", ["keras-fit-4", "slow-input-2", "no-markers-2"])
def test_the_first_screen_of_a_report_made_for_it_is_that_of_the_whole_report(name: str) -> None:
    run = FIXTURES / name
    whole, made = (build.analyze(run, is_for_screen=is_for) for is_for in (False, True))
    assert screen_of(made) == screen_of(whole)
    assert made.results.op_steps is None
    assert made.findings == whole.findings
