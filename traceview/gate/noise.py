"""Tells a change of the step time from noise, as `traceview compare` does."""

from __future__ import annotations

from collections.abc import Sequence

from traceview.comparison.build import condition_words, run_spread_of
from traceview.comparison.conditions import conditions_of
from traceview.comparison.difference import Difference, step_difference
from traceview.comparison.mean_step import capture_steps
from traceview.document import numbers
from traceview.report.model import Report


def step_change(before: Sequence[Report], after: Sequence[Report]) -> Difference:
    """How much the mean step differs between two sides, with its interval where there are enough steps."""
    series = [
        [steps.lengths_ps for report in side if (steps := capture_steps(report)) is not None]
        for side in (before, after)
    ]
    return step_difference(series[0], series[1], run_spread_of([*before, *after]))


def why_not_comparable(before: Sequence[Report], after: Sequence[Report]) -> str:
    """What makes the steps of two sides other work, or work on other hardware; empty where nothing is known to."""
    blocking = [row for row in conditions_of(before, after) if row.is_blocking]
    words = "; ".join(map(condition_words, blocking))
    return f"the runs cannot be compared ({words})" if words else ""


def is_shown(change: Difference, sign: str) -> bool:
    """Whether the steps are slower (`+`), or faster (`-`), beyond noise."""
    return change.direction == ("slower" if sign == "+" else "faster")


def grace(change: Difference) -> str:
    """Why a change past its limit is let pass."""
    parts = ["within noise"]
    if change.low_ratio is not None and change.high_ratio is not None:
        low, high = map(numbers.signed_share, (change.low_ratio, change.high_ratio))
        parts.append(f"the 95% interval of the change is {low} to {high}")
    if change.least_shown_ratio is not None:
        least = numbers.share(change.least_shown_ratio)
        parts.append(f"runs as these show a change from {least} on")
    return f"{parts[0]}: {'; '.join((*parts[1:], '--strict fails it'))}"
