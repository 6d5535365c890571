"""Estimates what recording its events cost a host, in each step and in idle time.

The sidecar says how much longer a step took with the profiler. Where ops of a few microseconds follow each other, most
of that is spent on events, and takes as long as the ops themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.base import Finding
from traceview.analysis.selection import Selection, step_bounds
from traceview.document import numbers
from traceview.intervals import Int64Array, places
from traceview.trace.model import Trace

PROFILER_PS: Final = "profiler_ps"
"""The metric of evidence for what recording took of the time that a finding is about."""


class WithoutProfiler(Struct, frozen=True):
    """What a finding leaves out of a cause. `path_ps`: of the mean path; `step_ps`: the mean step without the profiler."""

    path_ps: int
    step_ps: int


def without_profiler(
    findings: Sequence[Finding], cause: str, path_ps: int
) -> WithoutProfiler | None:
    """The part of a cause on the mean path that the finding about it says is the profiler's; None without such one."""
    for finding in findings:
        recorded = next((row.value for row in finding.evidence if row.metric == PROFILER_PS), None)
        cost_ps, ratio = finding.cost_ps_per_step, finding.cost_ratio
        if cause in finding.path_causes and isinstance(recorded, int) and cost_ps and ratio:
            # The path has as much of the cause as the device of the finding, or a part of it.
            of_path = -(-path_ps * recorded // (cost_ps + recorded))
            return WithoutProfiler(of_path, round(cost_ps / ratio))
    return None


class ProfilerTime(Struct, frozen=True):
    """What recording took, mean per used step. `idle_ps`: the part of it in the waiting that was asked for."""

    step_ps: int
    idle_ps: int
    event_count: int

    @property
    def sentence(self) -> str:
        """What it is, and what a cost without it is a share of."""
        return (
            f"With the profiler a step took {numbers.time(self.step_ps)} longer, for "
            f"{numbers.plural(self.event_count, 'event')}; by their number, {numbers.time(self.idle_ps)} of that is in this "
            "waiting. The cost leaves it out, and is a share of the step without the profiler."
        )


def profiler_time(
    trace: Trace,
    selection: Selection,
    host: int,
    start_ps: Int64Array,
    end_ps: Int64Array,
    waiting_ps: Int64Array,
) -> ProfilerTime | None:
    """The time for the events of a host; None where the sidecar has measured no overhead, or there are no steps.

    `start_ps`, `end_ps`: disjoint spans in time order, int64 `[spans]`. `waiting_ps`: how much of each is the waiting
    that is asked for; an event in the span counts by this share.
    """
    steps, sidecar = selection.used_of(host), trace.hosts[host].sidecar
    overhead = sidecar.environment.overhead if sidecar else None
    if (
        not steps
        or overhead is None
        or not (overhead.ratio or 0.0) > (overhead.spread_ratio or 0.0)
    ):
        return None
    # Both are medians, of other steps than the used ones: only their ratio is a share of these.
    ratio = overhead.ratio or 0.0
    added_ps = int((selection.mean_step_ps or 0) * ratio / (1 + ratio))
    columns = trace.host_columns
    ends = np.sort(columns.end_ps[columns.rows_of_host(host)])
    start, end = step_bounds(steps)
    first, last = np.searchsorted(ends, start), np.searchsorted(ends, end)
    inside = np.concatenate([ends[low:high] for low, high in zip(first, last, strict=True)])
    if not inside.size:
        return None
    # An event is written when it has ended.
    inside = np.sort(inside)
    count = places(inside, end_ps) - places(inside, start_ps)
    idle_count = int((count * (waiting_ps / np.maximum(end_ps - start_ps, 1))).sum())
    return ProfilerTime(
        step_ps=added_ps,
        idle_ps=added_ps * idle_count // inside.size,
        event_count=inside.size // len(steps),
    )
