"""Estimates what recording its events cost a host, in each step and while a device was idle.

The sidecar says how much longer a step took with the profiler. Where ops of a few microseconds follow each other, most
of that is spent on events, and takes as long as the ops themselves.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.idle_attribution import IdleAttribution
from traceview.analysis.selection import Selection, step_bounds
from traceview.intervals import union
from traceview.trace.model import Trace
from traceview.trace.sidecar import Sidecar
from traceview.units import PS_PER_NS

MOST_PER_EVENT_PS: Final = 600_000
"""Without samples of Python, a loop of 16,400 events per step took 9.7 ms longer (TensorFlow 2.21, measured on two cores).
What is above that comes from something else, and may lie elsewhere in the step."""


class ProfilerTime(Struct, frozen=True):
    """What recording took, mean per used step. `idle_ps`: the part of it in which the device was idle."""

    step_ps: int
    idle_ps: int
    event_count: int


def profiler_time(
    trace: Trace, attribution: IdleAttribution, selection: Selection, device: int
) -> ProfilerTime | None:
    """The time for the events of a host; None where the sidecar has measured no overhead, or there are no steps."""
    host = trace.device_list[device].host
    steps = selection.used_of(host)
    # No more than a whole step, whatever a sidecar claims.
    added_ps = min(_added_ps(trace.hosts[host].sidecar), selection.mean_step_ps or 0)
    if not steps or added_ps <= 0:
        return None
    columns = trace.host_columns
    ends = np.sort(columns.end_ps[columns.rows_of_host(host)])
    start, end = step_bounds(steps)
    first, last = np.searchsorted(ends, start), np.searchsorted(ends, end)
    inside = np.concatenate([ends[low:high] for low, high in zip(first, last, strict=True)])
    if not inside.size:
        return None
    gaps = union(*attribution.gaps[device].spans)
    # An event is written when it has ended.
    idle_count = int(gaps.within(inside, inside + 1).sum())
    per_event_ps = min(added_ps * len(steps) // inside.size, MOST_PER_EVENT_PS)
    return ProfilerTime(
        step_ps=per_event_ps * inside.size // len(steps),
        idle_ps=per_event_ps * idle_count // len(steps),
        event_count=inside.size // len(steps),
    )


def _added_ps(sidecar: Sidecar | None) -> int:
    """What the median step took longer with the profiler; 0 where that is not known, or may be chance."""
    overhead = sidecar.environment.overhead if sidecar else None
    if overhead is None or not overhead.profiled_ns or not overhead.unprofiled_ns:
        return 0
    is_clear = (overhead.ratio or 0.0) > (overhead.spread_ratio or 0.0)
    return (overhead.profiled_ns - overhead.unprofiled_ns) * PS_PER_NS if is_clear else 0
