"""Chooses the steps worth looking at: the median one, the slowest one, and the worst step of each finding."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from traceview.analysis.base import Finding
from traceview.analysis.steps.result import StepRow, Steps


def median_step(rows: Sequence[StepRow]) -> StepRow | None:
    """The used step in the middle by length, the shorter of two; None without any."""
    used = sorted((row for row in rows if row.used), key=lambda row: (row.duration_ps, row.number))
    return used[(len(used) - 1) // 2] if used else None


def slowest_step(rows: Iterable[StepRow]) -> StepRow | None:
    """The longest used step, the first of equals; None without any."""
    used = (row for row in rows if row.used)
    return max(used, key=lambda row: row.duration_ps, default=None)


def worst_step(rows: Iterable[StepRow], numbers: Collection[int]) -> StepRow | None:
    """The longest of some steps, by number; None where none of them is in the window."""
    chosen = (row for row in rows if row.number in numbers)
    return max(chosen, key=lambda row: row.duration_ps, default=None)


def detailed_steps(steps: Steps, findings: Iterable[Finding]) -> frozenset[int]:
    """Numbers of the steps that a timeline shows in full detail, on every host."""
    rows = steps.steps
    chosen = [median_step(rows), slowest_step(rows)]
    chosen += [worst_step(rows, finding.steps) for finding in findings if finding.steps]
    return frozenset(row.number for row in chosen if row is not None)
