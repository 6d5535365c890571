"""Tells a change of the step time from noise."""

from __future__ import annotations

import math

from msgspec import Struct

from traceview.document import numbers
from traceview.report.model import Report


class StepChange(Struct, frozen=True):
    """The change of the step time with its 95% interval, as shares of the step time before."""

    least_ratio: float
    most_ratio: float

    def is_shown(self, sign: str) -> bool:
        """Whether the steps are slower (`+`), or faster (`-`), beyond noise."""
        return self.least_ratio > 0 if sign == "+" else self.most_ratio < 0

    @property
    def words(self) -> str:
        """Why a change past its limit is let pass."""
        ends = (
            f"{numbers.signed_share(self.least_ratio)} to {numbers.signed_share(self.most_ratio)}"
        )
        return f"within noise: the 95% interval of the change is {ends}; --strict counts it"


def step_change(before: Report, after: Report) -> StepChange | None:
    """The change of the median step from one report to another; None where one has no steps."""
    old, new = before.results.steps, after.results.steps
    if old is None or new is None or not old.median_ps or not new.median_ps:
        return None
    ratio = new.median_ps / old.median_ps
    errors = [
        0.929 * (steps.iqr_ps or 0) / math.sqrt(steps.used_count) / (steps.median_ps or 1)
        for steps in (old, new)
    ]
    error = 2 * ratio * math.hypot(*errors)
    return StepChange(ratio - 1 - error, ratio - 1 + error)
