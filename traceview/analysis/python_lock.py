"""Says which idle time in tables and bars is the wait for Python's lock, for that is no cause of its own there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from traceview.analysis.base import Finding
from traceview.analysis.cost import cost_words
from traceview.document import numbers
from traceview.document.vocabulary import CAUSES

_PART: Final = "lock_wait_ps"
"""Evidence that a part of the cost of a finding is that wait."""

_ALL: Final = "lock_cost_ratio"
"""Evidence that all of it is."""

_LEAST_RATIO: Final = 0.005
"""Of the largest cause, for another one to be named."""


def lock_wait_sentence(findings: Sequence[Finding], by_cause: Mapping[str, float]) -> str | None:
    """How long the step waits for Python's lock, and as what the idle time in it is shown; None if no finding says so.

    `by_cause`: how much there is of each cause, in any unit.
    """
    for finding in findings:
        cost = _lock_cost(finding)
        causes = [cause for cause in finding.path_causes if cause != "input" and cause in CAUSES]
        causes.sort(key=lambda cause: -by_cause.get(cause, 0))
        least = max(_LEAST_RATIO * by_cause.get(causes[0], 0), 1e-9) if causes else 0
        named = [CAUSES[cause].words for cause in causes if by_cause.get(cause, 0) >= least]
        if named and cost:
            return f"{cost}, is shown as {numbers.listed(named)} ({finding.code})."
    return None


def holds_lock_waits(findings: Sequence[Finding], cause: str) -> bool:
    """Whether a finding says that time of this cause, or class of activity, is partly the wait for the lock."""
    return any(cause in finding.path_causes and _lock_cost(finding) for finding in findings)


def _lock_cost(finding: Finding) -> str:
    """What a finding says that the step loses to the lock; empty if it says nothing of that."""
    values = {row.metric: row.value for row in finding.evidence}
    part_ps = values.get(_PART)
    if isinstance(part_ps, int):
        return f"Waiting for Python's lock, {numbers.time(part_ps)} in the mean step"
    if _ALL not in values:
        return ""
    cost = cost_words(finding.cost_ps_per_step, finding.cost_ratio, finding.cost_statistic)
    return cost and f"Idle time while another thread keeps Python's lock, {cost}"
