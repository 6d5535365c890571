"""A cost and its share of the step are of one statistic, and no share passes 100 %."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.scenarios.model import Step, ms, new_trace
from traceview.analysis.cost import Cost, Statistic
from traceview.analysis.selection import Selection
from traceview.trace.model import Step as TraceStep
from traceview.trace.windows import Window


def selection_of(*lengths_ps: int) -> Selection:
    starts = [sum(lengths_ps[:place]) for place in range(len(lengths_ps))]
    steps = tuple(
        TraceStep(0, number, None, start, start + length)
        for number, (start, length) in enumerate(zip(starts, lengths_ps, strict=True))
    )
    return Selection({0: Window(0, "steps", 0, sum(lengths_ps) or 1000)}, {0: steps})


def test_a_mean_is_a_share_of_the_mean_step_and_a_median_of_the_median_step() -> None:
    selection = selection_of(10, 10, 40)
    assert selection.cost("mean", 10) == Cost(10, 0.5, "mean")
    assert selection.cost("median", 5) == Cost(5, 0.5, "median")


@pytest.mark.parametrize(("statistic", "step_ps"), [("mean", 20), ("median", 10)])
def test_no_cost_exceeds_its_step(statistic: Statistic, step_ps: int) -> None:
    assert selection_of(10, 10, 40).cost(statistic, 41) == Cost(step_ps, 1.0, statistic)


def test_without_steps_a_cost_is_a_share_of_the_window() -> None:
    assert selection_of().cost("mean", 250) == Cost(None, 0.25, None)


def test_steps_without_length_have_a_cost_without_a_share() -> None:
    assert selection_of(0, 0).cost("mean", 3) == Cost(0, None, "mean")


def test_a_pause_in_one_step_of_four_is_the_share_that_the_path_says(tmp_path: Path) -> None:
    """The mean step is twice the median: over the median step this cost would be a share of 125 %."""
    trace = new_trace(length_ms=1000)
    start_ms = 0.0
    for number, pause_ms in enumerate((0, 200, 0, 0)):
        step = Step(trace, start_ms)
        trace.marker(number, step.at(0), step.at(40))
        step.kernel(0, 0, 40)
        start_ms += 40 + pause_ms
    trace.write(tmp_path)
    report = traceview.analyze(tmp_path)
    finding = next(row for row in report.findings if row.code == "callback-stall")
    assert report.results.path is not None
    mean_step_ps, idle_ps = (4 * ms(40) + ms(200)) // 4, ms(200) // 4
    assert (finding.cost_ps_per_step, finding.cost_statistic) == (idle_ps, "mean")
    assert finding.cost_ratio == idle_ps / mean_step_ps
    assert finding.cost_ratio == report.results.path.share_by_cause["callback"]
