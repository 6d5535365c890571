"""On which clock do the events of several hosts stand? By the start of their profiles, until collectives tell more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from traceview.intervals import Int64Array
from traceview.trace.model import Host, HostClock, Problem
from traceview.units import PS_PER_NS
from traceview.xplane.read import MAX_PS


@dataclass(frozen=True, eq=False)
class AlignedClocks:
    """The hosts with their times since the origin of the run, and what to add to the times of each.

    `offset_ps`: int64 `[hosts]`. `problems`: hosts whose clock could not be aligned.
    """

    hosts: tuple[Host, ...]
    offset_ps: Int64Array
    problems: tuple[Problem, ...]


def align(hosts: Sequence[Host]) -> AlignedClocks:
    """Align hosts by `profile_start_time`; one without it keeps its own start as origin."""
    starts = [host.profile_start_ns for host in hosts if host.profile_start_ns is not None]
    origin = min(starts, default=0)
    aligned, offsets, problems = [], [], []
    for host in hosts:
        offset = 0
        method = "none" if host.profile_start_ns is None else "profile_start"
        if host.profile_start_ns is not None:
            offset = (host.profile_start_ns - origin) * PS_PER_NS
        elif len(hosts) > 1:
            problems.append(Problem("unaligned-clock", "no profile start recorded", host.name))
        if offset > MAX_PS:
            text = "its profile started months after that of another host; clocks not aligned"
            problems.append(Problem("unaligned-clock", text, host.name))
            offset, method = 0, "none"
        offsets.append(offset)
        clock = HostClock(method) if len(hosts) > 1 else None
        aligned.append(replace(host, start_ps=offset, stop_ps=_stop_ps(host, offset), clock=clock))
    return AlignedClocks(tuple(aligned), np.array(offsets, dtype=np.int64), tuple(problems))


def _stop_ps(host: Host, offset: int) -> int | None:
    if host.profile_start_ns is None or host.profile_stop_ns is None:
        return None
    length = (host.profile_stop_ns - host.profile_start_ns) * PS_PER_NS
    return offset + length if 0 <= length <= MAX_PS else None
