"""Compares the speed of devices by the kernels that all of them ran equally often.

Their total duration is how slow a device is at this work. Devices of one model that share too few kernels count as
equally fast; of different devices that share too few, the speeds are unknown.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from traceview.analysis.balance.hardware import hardware_groups
from traceview.analysis.base import Skipped
from traceview.analysis.joined_steps import JoinedSteps
from traceview.document import numbers
from traceview.ids import unique_inverse
from traceview.trace.model import Trace

SHARED_RATIO: Final = 0.5
"""Least share of the compute of each device that shared kernels need to show its speed."""

AS_OFTEN_RATIO: Final = 0.95
"""Kernels whose counts on two devices differ by more are not the same work: their sizes may differ by run.
The ends of steps may cut off a few runs."""


def relative_speeds(trace: Trace, steps: JoinedSteps) -> npt.NDArray[np.float64] | Skipped:
    """The speed of each device of `steps` as a share of the speed of all, float64 `[devices]`, sum 1.

    Skipped where devices differ in hardware and share too few kernels.
    """
    count = len(steps.devices)
    equal = np.full(count, 1 / max(count, 1))
    if trace.device_list[steps.devices[0]].kind == "replica":
        # Replicas on a host share its cores.
        return equal
    times, total = _times(trace, steps)
    if (times > 0).all() and (times >= SHARED_RATIO * total).all():
        speeds = 1 / times
        shares: npt.NDArray[np.float64] = speeds / speeds.sum()
        return shares
    groups = hardware_groups(trace, steps.devices)
    if len(groups) == 1:
        return equal
    models = numbers.listed(sorted({group.model or "unknown" for group in groups}))
    return Skipped(
        f"the devices differ ({models}) and share too few kernels to compare their speeds"
    )


def _times(
    trace: Trace, steps: JoinedSteps
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The time of each device in kernels that all ran equally often, and in all kernels, picoseconds `[devices]`.

    A kernel counts as often as on the device that ran it least.
    """
    columns = trace.device_columns
    names, durations = [], []
    for row in range(len(steps.devices)):
        chosen = steps.kernels(trace, row)
        names.append(columns.name[chosen].astype(np.int64))
        durations.append(columns.duration_ps[chosen])
    known, index = unique_inverse(np.concatenate(names))
    bounds = np.cumsum([0, *(of_device.size for of_device in names)])
    count, total = np.zeros((2, len(names), known.size))
    for place, lengths in enumerate(durations):
        of_device = index[bounds[place] : bounds[place + 1]]
        count[place] = np.bincount(of_device, minlength=known.size)
        total[place] = np.bincount(of_device, weights=lengths, minlength=known.size)
    mean = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    least = count.min(axis=0)
    as_often = least >= AS_OFTEN_RATIO * count.max(axis=0)
    return (as_often * least * mean).sum(axis=1), total.sum(axis=1)
