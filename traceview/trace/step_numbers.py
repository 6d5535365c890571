"""Which steps exist on which host, and in which is an instant? Hosts that train together number their steps alike."""

from __future__ import annotations

import numpy as np

from traceview.intervals import BoolArray, Int64Array
from traceview.trace.model import NONE, HostSteps, Trace
from traceview.trace.roles import step_groups


def missing_steps(trace: Trace) -> tuple[tuple[int, ...], ...]:
    """For each host the recorded numbers of steps that others of its group have and it has not, sorted.

    Empty for a host whose steps carry no recorded numbers: which they are cannot be told.
    """
    missing: list[tuple[int, ...]] = [()] * len(trace.hosts)
    for group in step_groups(trace.hosts):
        numbers = {host: _recorded(trace.steps_by_host[host]) for host in group}
        every = set().union(*(known for known in numbers.values() if known is not None))
        for host, known in numbers.items():
            if known is not None:
                missing[host] = tuple(sorted(every - known))
    return tuple(missing)


def _recorded(found: HostSteps) -> set[int] | None:
    numbers = {step.recorded_number for step in found.steps}
    return None if None in numbers else {number for number in numbers if number is not None}


def step_numbers_at(
    trace: Trace, host: Int64Array, time_ps: Int64Array
) -> tuple[Int64Array, BoolArray]:
    """The number of the step in which each instant lies on its host, int64 `[n]`, and bool `[n]` where it is in one.

    `host`: index into the hosts, `[n]`. `time_ps`: since the origin of the run, `[n]`. `NONE` outside of all steps.
    """
    number = np.full(time_ps.size, NONE, dtype=np.int64)
    in_step = np.zeros(time_ps.size, dtype=np.bool_)
    for found in trace.steps_by_host:
        if not found.steps:
            continue
        begins = np.array([step.start_ps for step in found.steps], dtype=np.int64)
        ends = np.array([step.end_ps for step in found.steps], dtype=np.int64)
        numbers = np.array([step.number for step in found.steps], dtype=np.int64)
        place = np.searchsorted(begins, time_ps, side="right") - 1
        inside = (host == found.host) & (place >= 0) & (time_ps < ends[np.maximum(place, 0)])
        number[inside] = numbers[place[inside]]
        in_step |= inside
    return number, in_step
