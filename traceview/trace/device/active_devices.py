"""Lists the devices that ran work in each step, and the steps where that list changes.

A device runs work in a step if it computes or communicates there; copies and fills alone do not count. A step that
was inferred from repeating kernels is left out if the work of a device lies outside of its bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from traceview.base.intervals import BoolArray, union
from traceview.trace.model import HostSteps, Trace
from traceview.xplane.planes import ActivityClass


class ActiveStep(Struct, frozen=True):
    """One step of one host: the keys of the devices that ran work in it.

    `joined`, `left`: devices that the step before had not, or had; both empty in the first step.
    """

    host: str
    number: int
    start_ps: int
    devices: tuple[str, ...]
    joined: tuple[str, ...]
    left: tuple[str, ...]


def active_steps(trace: Trace) -> list[ActiveStep]:
    """Every step of every host whose bounds hold the work of all devices, in time order on each."""
    result: list[ActiveStep] = []
    for host_steps in trace.steps_by_host:
        before: tuple[str, ...] | None = None
        name = trace.hosts[host_steps.host].name
        working = _working_devices(trace, host_steps)
        for step, devices in zip(host_steps.steps, working, strict=True):
            if tells_devices(host_steps.method, step.excluded):
                moved = changes(before, devices)
                result.append(ActiveStep(name, step.number, step.start_ps, devices, *moved))
                before = devices
    return result


def tells_devices(method: str, excluded: str | None) -> bool:
    """Whether the bounds of a step hold the work of every device.

    `method`: how the steps were detected. `excluded`: why statistics leave the step out.
    """
    return method != "period" or excluded is None


def changes(
    before: Sequence[str] | None, now: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Devices that joined and devices that left, in the order given; both empty without a step before."""
    if before is None:
        return (), ()
    return (
        tuple(device for device in now if device not in before),
        tuple(device for device in before if device not in now),
    )


def _working_devices(trace: Trace, host_steps: HostSteps) -> Iterator[tuple[str, ...]]:
    """For each step of a host the devices that ran work in it, in the order of the device list."""
    start = np.array([step.start_ps for step in host_steps.steps], dtype=np.int64)
    end = np.array([step.end_ps for step in host_steps.steps], dtype=np.int64)
    works: dict[str, BoolArray] = {}
    columns = trace.device_columns
    for device in trace.devices_of_host[host_steps.host]:
        rows = columns.rows_of(device)
        of_work = np.flatnonzero(columns.class_[rows] <= ActivityClass.COLLECTIVE) + rows.start
        covered = union(columns.start_ps[of_work], columns.end_ps[of_work])
        works[trace.device_key(device)] = covered.within(start, end) > 0
    for index in range(start.size):
        yield tuple(key for key, in_step in works.items() if in_step[index])
