"""Measures how long each device computes in each step, with the steps of several hosts joined by number.

A step that a host lacks or leaves out of its statistics does not show how the devices compare, and is left out for
all. The bounds of a step are those of the host of each device, as in the rest of the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.activity import DeviceActivity
from traceview.analysis.selection import Selection, step_bounds
from traceview.intervals import Int64Array
from traceview.trace.model import NONE, Trace
from traceview.xplane.planes import ActivityClass

NEVER: Final = NONE
"""A moment that does not occur: no kernel in a step."""


class JoinedSteps(Struct, frozen=True, eq=False):
    """The used steps that all hosts of some devices have.

    `devices`: device indices, in the order of the rows below; `numbers` `[steps]`. All others int64
    `[devices, steps]`, picoseconds: `start_ps`, `end_ps` of the step on the device's host; `compute_ps`: union of
    its compute in the step; `first_ps`, `last_ps`: when its compute begins and ends there, `NEVER` without.
    """

    devices: tuple[int, ...]
    numbers: tuple[int, ...]
    start_ps: Int64Array
    end_ps: Int64Array
    compute_ps: Int64Array
    first_ps: Int64Array
    last_ps: Int64Array

    @property
    def count(self) -> int:
        """Number of steps."""
        return len(self.numbers)

    def of(self, devices: Sequence[int]) -> JoinedSteps:
        """The same steps on some of the devices."""
        rows = [self.devices.index(device) for device in devices]
        arrays = (self.start_ps, self.end_ps, self.compute_ps, self.first_ps, self.last_ps)
        return JoinedSteps(tuple(devices), self.numbers, *(array[rows] for array in arrays))

    def placed(
        self, trace: Trace, selection: Selection, values: Mapping[int, Int64Array]
    ) -> Int64Array:
        """Of values by device index and step of the host those in these steps, `[devices, steps]`; 0 where not known."""
        result = np.zeros((len(self.devices), self.count), dtype=np.int64)
        for row, device in enumerate(self.devices):
            if device in values:
                steps = selection.steps[trace.device_list[device].host]
                place = {step.number: index for index, step in enumerate(steps)}
                result[row] = values[device][[place[number] for number in self.numbers]]
        return result

    def kernels(self, trace: Trace, row: int) -> Int64Array:
        """The kernels that begin in a step on one of the devices, as rows of the device columns."""
        columns = trace.device_columns
        rows = columns.rows_of(self.devices[row])
        start = columns.start_ps[rows]
        step = np.searchsorted(self.start_ps[row], start, side="right") - 1
        inside = (step >= 0) & (start < np.append(self.end_ps[row], 0)[step])
        is_kernel = columns.class_[rows] == ActivityClass.COMPUTE
        kernels: Int64Array = np.flatnonzero(inside & is_kernel) + rows.start
        return kernels


def joined_steps(
    trace: Trace,
    selection: Selection,
    activities: Sequence[DeviceActivity],
    devices: Sequence[int],
) -> JoinedSteps:
    """Cut the compute of `devices` at the steps of their hosts; `activities` by device index."""
    hosts = {trace.device_list[device].host for device in devices}
    used = {host: {step.number: step for step in selection.used_of(host)} for host in hosts}
    numbers = sorted(set.intersection(*(set(steps) for steps in used.values()))) if used else []
    shape = (len(devices), len(numbers))
    start, end, compute, first, last = (np.zeros(shape, dtype=np.int64) for _ in range(5))
    for row, device in enumerate(devices):
        steps = [used[trace.device_list[device].host][number] for number in numbers]
        start[row], end[row] = step_bounds(steps)
        covered = activities[device].compute
        compute[row] = covered.within(start[row], end[row])
        first[row] = _first(covered.start, covered.end, start[row], end[row])
        last[row] = _last(covered.start, covered.end, start[row], end[row])
    return JoinedSteps(tuple(devices), tuple(numbers), start, end, compute, first, last)


def _first(begin: Int64Array, finish: Int64Array, start: Int64Array, end: Int64Array) -> Int64Array:
    """The first covered moment of each span; `NEVER` where nothing covers any of it."""
    if begin.size == 0:
        return np.full(start.shape, NEVER, dtype=np.int64)
    place = np.searchsorted(finish, start, side="right")
    moment = np.maximum(begin[np.minimum(place, begin.size - 1)], start)
    return np.where((place < begin.size) & (moment < end), moment, NEVER)


def _last(begin: Int64Array, finish: Int64Array, start: Int64Array, end: Int64Array) -> Int64Array:
    """The end of what covers the last part of each span, at most its end."""
    if begin.size == 0:
        return np.full(start.shape, NEVER, dtype=np.int64)
    place = np.searchsorted(begin, end) - 1
    moment = np.minimum(finish[np.maximum(place, 0)], end)
    return np.where((place >= 0) & (moment > start), moment, NEVER)
