"""Estimates how much of a step one change can win back at most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct, structs

from traceview.analysis.base import Finding
from traceview.analysis.cost import Statistic
from traceview.analysis.idle.profiler_time import without_profiler
from traceview.analysis.steps.result import Steps
from traceview.report.model import Report
from traceview.trace.cause import Cause

_UNEXPLAINED: Final = Cause.UNATTRIBUTED.key
_PEER: Final = Cause.PEER.key


class Recoverable(Struct, frozen=True):
    """The most that one change can save.

    `ps_per_step`: None where there are no steps, and `ratio` is of the window then; else of the mean or median step, as
    `statistic` says. `source`: the code of a finding, the name of a bound (`no_input_wait` and so on), or a class or
    cause of the critical path. `device`: the one that waits, if that is the source; `waits_ps`: in collectives, and before
    them. `unprofiled_step_ps`: the mean step without the profiler, if the share is of that. `known_ps`: what is
    from the source, if `unexplained_ps` without a recorded cause is added to it; `unexplained_ratio`: that part of
    `ratio`.
    """

    ps_per_step: int | None
    ratio: float | None
    source: str
    statistic: Statistic | None = None
    device: str = ""
    waits_ps: tuple[int, int] = (0, 0)
    unprofiled_step_ps: int | None = None
    known_ps: int | None = None
    unexplained_ps: int = 0
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
    path, steps = report.results.path, report.results.steps
    known = max(savings(report), key=_size, default=None)
    ratio = path.unexplained_ratio if path else 0.0
    if path is None or not ratio:
        return known
    mean_ps, step_ps = path.mean_by_cause.get(_UNEXPLAINED, 0), _step(report)
    if known is None:
        if step_ps is None:
            return Recoverable(None, ratio, "unexplained-idle")
        return Recoverable(mean_ps, ratio, "unexplained-idle", "mean")
    if known.ps_per_step is None or step_ps is None:
        whole = None if known.ratio is None else min(known.ratio + ratio, 1.0)
        return structs.replace(known, ps_per_step=None, ratio=whole, unexplained_ratio=ratio)
    if known.unprofiled_step_ps:
        step_ps = min(known.unprofiled_step_ps, step_ps)
        ratio = mean_ps / step_ps
    elif known.statistic == "median" and steps is not None and steps.median_ps:
        ratio = mean_ps / steps.median_ps
    return structs.replace(
        known,
        ps_per_step=min(known.ps_per_step + mean_ps, step_ps),
        ratio=None if known.ratio is None else min(known.ratio + ratio, 1.0),
        known_ps=known.ps_per_step,
        unexplained_ps=mean_ps,
        unexplained_ratio=ratio,
    )


def savings(report: Report) -> Iterator[Recoverable]:
    """What findings cost, bounds save and the path and waiting devices lose, but for idle time without a recorded cause."""
    results = report.results
    step_ps = mean_step_ps(results.steps)
    for finding in report.findings:
        if finding.cost_bound == "lower" or is_partly_seen(finding):
            # What is known to cost at least so much may cost any part of the step.
            yield Recoverable(step_ps, 1.0, finding.code, "mean" if step_ps else None)
        elif finding.code != "unexplained-idle" and (
            finding.cost_ps_per_step or finding.cost_ratio
        ):
            found = Recoverable(
                finding.cost_ps_per_step, finding.cost_ratio, finding.code, finding.cost_statistic
            )
            known = [without_profiler([finding], cause, 0) for cause in finding.path_causes]
            step = next((one.step_ps for one in known if one is not None), None)
            yield structs.replace(found, unprofiled_step_ps=step)
    for bound in results.balance.what_if if results.balance else ():
        # Reports of earlier versions have medians only.
        is_mean = bound.mean_saved_ps is not None
        saved_ps = bound.saved_ps if bound.mean_saved_ps is None else bound.mean_saved_ps
        whole_ps = step_ps if is_mean else (results.steps.median_ps if results.steps else None)
        if saved_ps > 0:
            ratio = saved_ps / whole_ps if whole_ps else None
            yield Recoverable(saved_ps, ratio, bound.name, "mean" if is_mean else "median")
    for cause, share in results.path.share_by_cause.items() if results.path else ():
        if cause not in ("compute", _UNEXPLAINED) and results.path is not None:
            ps = results.path.mean_by_cause.get(cause, 0) if step_ps else None
            less = without_profiler(report.findings, cause, ps) if ps else None
            if ps is not None and less is not None:
                ps -= less.path_ps
                yield Recoverable(
                    ps, ps / less.step_ps, cause, "mean", unprofiled_step_ps=less.step_ps
                )
                continue
            yield Recoverable(ps, share, cause, "mean" if step_ps else None)
    yield from _waits(report)


def _waits(report: Report) -> Iterator[Recoverable]:
    """What is won if one device no longer keeps the others waiting: the step is as long as the next one works then."""
    rows = report.results.anatomy.devices if report.results.anatomy else ()
    waits = sorted(
        (sum(parts), row.step_ps, row.device, parts)
        for row in rows
        for parts in [(row.activity.get("collective_wait", 0), row.idle.get(_PEER, 0))]
    )
    if len(waits) > 1 and waits[1][0]:
        wait_ps, step_ps, device, parts = waits[1]
        has_steps = _step(report) is not None
        yield Recoverable(
            wait_ps if has_steps else None,
            wait_ps / step_ps,
            _PEER,
            "mean" if has_steps else None,
            device,
            parts,
        )


def is_partly_seen(finding: Finding) -> bool:
    """Whether ops that are always slowed, which do not show, may cost more than what does."""
    return any(row.metric in ("slowed_ops_ps", "slowed_dispatch_ps") for row in finding.evidence)


def _step(report: Report) -> int | None:
    return typical_step_ps(report.results.steps)


def _size(saving: Recoverable) -> tuple[int, float]:
    return saving.ps_per_step or 0, saving.ratio or 0.0
