"""Which devices ran work in each step, and where did that change?

A device runs work in a step if it computes or communicates there; copies and fills alone are none. A step that
was inferred from what repeats, and lacks the part of a device that was recorded outside of it, says nothing of this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from traceview.intervals import BoolArray, union
from traceview.trace.model import Trace
from traceview.xplane.planes import ActivityClass


@dataclass(frozen=True)
class ActiveStep:
    """One step of one host: the keys of the devices that ran work in it.

    `joined`, `left`: what changed against the step before; both empty in the first.
    """

    host: str
    number: int
    start_ps: int
    devices: tuple[str, ...]
    joined: tuple[str, ...]
    left: tuple[str, ...]


def active_steps(trace: Trace) -> list[ActiveStep]:
    """Every step of every host that tells, in time order on each."""
    found: list[ActiveStep] = []
    for of_host in trace.steps_by_host:
        if of_host.steps:
            before: tuple[str, ...] | None = None
            for step, devices in zip(of_host.steps, _working(trace, of_host.host), strict=True):
                if not tells_devices(of_host.method, step.excluded):
                    continue
                joined, left = changes(before, devices)
                name = trace.hosts[of_host.host].name
                found.append(ActiveStep(name, step.number, step.start_ps, devices, joined, left))
                before = devices
    return found


def tells_devices(method: str, excluded: str | None) -> bool:
    """Whether the work of every device in a step lies between its bounds; `method` and why it is left out."""
    return method != "period" or excluded is None


def changes(
    before: Sequence[str] | None, now: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What joined and what left, each in the order in which the devices are given; none without a step before."""
    if before is None:
        return (), ()
    return (
        tuple(one for one in now if one not in before),
        tuple(one for one in before if one not in now),
    )


def _working(trace: Trace, host: int) -> Iterator[tuple[str, ...]]:
    """For each step of the host the devices that ran work in it, in the order of the device list."""
    steps = trace.steps_by_host[host].steps
    start = np.array([step.start_ps for step in steps], dtype=np.int64)
    end = np.array([step.end_ps for step in steps], dtype=np.int64)
    works: dict[str, BoolArray] = {}
    columns = trace.device_columns
    for device, entry in enumerate(trace.device_list):
        if entry.host == host:
            rows = columns.rows_of(device)
            of_work = np.flatnonzero(columns.class_[rows] <= ActivityClass.COLLECTIVE) + rows.start
            covered = union(columns.start_ps[of_work], columns.end_ps[of_work])
            works[trace.device_key(device)] = covered.within(start, end) > 0
    for place in range(len(steps)):
        yield tuple(key for key, in_step in works.items() if in_step[place])
