"""Estimates how much of a step one change can win back at most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from traceview.analysis.steps.result import Steps
from traceview.report.model import Report
from traceview.trace.cause import Cause

_UNEXPLAINED: Final = Cause.UNATTRIBUTED.key
_PEER: Final = Cause.PEER.key


class Recoverable(Struct, frozen=True):
    """The most that one change can save.

    `ps_per_step`: None where there are no steps, and `ratio` is of the window then; else of the step, by the statistic of
    the cost.
    `source`: the code of a finding, the name of a bound (`no_input_wait` and so on), or a class or cause of the critical
    path. `unexplained_ratio`: the part of `ratio` that is idle time without a recorded cause.
    """

    ps_per_step: int | None
    ratio: float | None
    source: str
    unexplained_ratio: float = 0.0


def typical_step_ps(steps: Steps | None) -> int | None:
    """The larger one of median and mean of the used steps, which no cost per step exceeds; None without any."""
    used = [step.duration_ps for step in steps.steps if step.used] if steps else []
    if steps is None or steps.median_ps is None or not used:
        return None
    return max(steps.median_ps, -(-sum(used) // len(used)))


def mean_step_ps(steps: Steps | None) -> int | None:
    """The mean of the used steps, rounded down; None without any."""
    used = [step.duration_ps for step in steps.steps if step.used] if steps else []
    return sum(used) // len(used) if used else None


def recoverable(report: Report) -> Recoverable | None:
    """The largest cost, bound or loss with what is unexplained on top, at most the step; None if nothing is lost.

    What is unexplained may belong to the same thing, so one change may win back both.
    """
    path = report.results.path
    known = max(savings(report), key=_size, default=None)
    ratio = path.unexplained_ratio if path else 0.0
    if path is None or not ratio:
        return known
    mean_ps = path.mean_by_cause.get(_UNEXPLAINED, 0)
    if known is None:
        return Recoverable(mean_ps if _step(report) else None, ratio, "unexplained-idle", ratio)
    step_ps = _step(report)
    ps = (
        None
        if step_ps is None or known.ps_per_step is None
        else min(known.ps_per_step + mean_ps, step_ps)
    )
    whole = None if known.ratio is None else min(known.ratio + ratio, 1.0)
    return Recoverable(ps, whole, known.source, ratio)


def savings(report: Report) -> Iterator[Recoverable]:
    """What findings cost, bounds save and the path and waiting devices lose, but for idle time without a recorded cause."""
    results = report.results
    step_ps = mean_step_ps(results.steps)
    for finding in report.findings:
        if finding.cost_bound == "lower":
            # What is known to cost at least so much may cost any part of the step.
            yield Recoverable(step_ps, 1.0, finding.code)
        elif finding.code != "unexplained-idle" and (
            finding.cost_ps_per_step or finding.cost_ratio
        ):
            yield Recoverable(finding.cost_ps_per_step, finding.cost_ratio, finding.code)
    for bound in results.balance.what_if if results.balance else ():
        # Reports of earlier versions have medians only.
        saved_ps = bound.saved_ps if bound.mean_saved_ps is None else bound.mean_saved_ps
        if saved_ps > 0:
            yield Recoverable(saved_ps, saved_ps / step_ps if step_ps else None, bound.name)
    for cause, share in results.path.share_by_cause.items() if results.path else ():
        if cause not in ("compute", _UNEXPLAINED) and results.path is not None:
            yield Recoverable(
                results.path.mean_by_cause.get(cause, 0) if step_ps else None, share, cause
            )
    yield from _waits(report)


def _waits(report: Report) -> Iterator[Recoverable]:
    """What is won if one device no longer keeps the others waiting: the step is as long as the next one works then."""
    rows = report.results.anatomy.devices if report.results.anatomy else ()
    waits = sorted(
        (row.activity.get("collective_wait", 0) + row.idle.get(_PEER, 0), row.step_ps)
        for row in rows
    )
    if len(waits) > 1 and waits[1][0]:
        wait_ps, step_ps = waits[1]
        yield Recoverable(wait_ps if _step(report) else None, wait_ps / step_ps, _PEER)


def _step(report: Report) -> int | None:
    return typical_step_ps(report.results.steps)


def _size(saving: Recoverable) -> tuple[int, float]:
    return saving.ps_per_step or 0, saving.ratio or 0.0
