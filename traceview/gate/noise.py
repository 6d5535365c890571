"""Tells a change of the step time from noise, by the interval of the difference of two runs."""

from __future__ import annotations

from traceview.comparison.difference import REPLICA_RUN_SPREAD, Difference, difference
from traceview.document import numbers
from traceview.report.model import Report


def step_change(before: Report, after: Report) -> Difference:
    """How much the mean step differs between two reports, with its interval where there are enough steps."""
    sides = (before, after)
    spread = REPLICA_RUN_SPREAD if any(map(_is_of_replicas, sides)) else None
    return difference([step_series(before)], [step_series(after)], spread)


def step_series(report: Report) -> list[float]:
    """The times of the used steps in their order, picoseconds; of a step of several hosts the mean."""
    steps = report.results.steps
    by_number: dict[int, list[int]] = {}
    for row in steps.steps if steps else ():
        if row.used:
            by_number.setdefault(row.number, []).append(row.duration_ps)
    return [sum(of_hosts) / len(of_hosts) for of_hosts in by_number.values()]


def is_shown(change: Difference, sign: str) -> bool:
    """Whether the steps are slower (`+`), or faster (`-`), beyond noise."""
    return change.direction == ("slower" if sign == "+" else "faster")


def grace(change: Difference) -> str:
    """Why a change past its limit is let pass."""
    ends = ""
    if change.low_ratio is not None and change.high_ratio is not None:
        low, high = map(numbers.signed_share, (change.low_ratio, change.high_ratio))
        ends = f", 95% interval {low} to {high}"
    shown = ""
    if change.least_shown_ratio is not None:
        shown = f"; these runs show {numbers.share(change.least_shown_ratio)} and more"
    return f"within noise{ends}{shown}; --strict counts it"


def _is_of_replicas(report: Report) -> bool:
    """Whether its devices share the cores of a CPU."""
    times = report.results.device_time
    return any(row.kind == "replica" for row in times.devices) if times else False
