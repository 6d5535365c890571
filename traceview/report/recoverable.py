"""Estimates how much of a step one change can win back at most."""

from __future__ import annotations

from msgspec import Struct

from traceview.report.model import Report


class Recoverable(Struct, frozen=True):
    """The most that one change can save.

    `ps_per_step`: None where there are no steps, and `ratio` is of the window then; else of the median step.
    `source`: the code of the finding, or the name of the bound (`no_input_wait` and so on).
    """

    ps_per_step: int | None
    ratio: float | None
    source: str


def recoverable(report: Report) -> Recoverable | None:
    """The largest cost of a finding, else the largest saving of a bound; None if nothing is known to cost anything."""
    costs = [
        Recoverable(finding.cost_ps_per_step, finding.cost_ratio, finding.code)
        for finding in report.findings
        if finding.severity != "info" and (finding.cost_ps_per_step or finding.cost_ratio)
    ]
    if costs:
        return max(costs, key=_size)
    balance, steps = report.results.balance, report.results.steps
    median = steps.median_ps if steps else None
    bounds = [
        Recoverable(bound.saved_ps, bound.saved_ps / median if median else None, bound.name)
        for bound in (balance.what_if if balance else ())
        if bound.saved_ps > 0
    ]
    return max(bounds, key=_size, default=None)


def _size(saving: Recoverable) -> tuple[int, float]:
    return saving.ps_per_step or 0, saving.ratio or 0.0
