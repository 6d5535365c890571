"""How fast is each device beside the others, as far as kernels that all of them ran tell?

The same kernels, as often on each: how long they take in all is how slow a device is at this work. Where devices
are alike and share too few kernels, they are taken to be equally fast; where they differ, nothing is known.
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
from traceview.xplane.planes import ActivityClass

SHARED_RATIO: Final = 0.5
"""Kernels that all devices ran tell their speed if they are this share of the compute of each."""

AS_OFTEN_RATIO: Final = 0.95
"""A kernel that one device ran less often than this share of another's runs is not the same work: sizes differ by run.
A few runs less may have been cut off at the ends of steps."""


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
        f"the devices differ ({models}) and run too few of the same kernels to tell how fast each is"
    )


def _times(
    trace: Trace, steps: JoinedSteps
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """What each device takes for the kernels that all ran as often, picoseconds `[devices]`; and for all kernels.

    Each counts as often as on the device that ran it least.
    """
    columns = trace.device_columns
    names, durations = [], []
    for place, device in enumerate(steps.devices):
        rows = columns.rows_of(device)
        start = columns.start_ps[rows]
        step = np.searchsorted(steps.start_ps[place], start, side="right") - 1
        inside = (step >= 0) & (start < np.append(steps.end_ps[place], 0)[step])
        chosen = rows.start + np.flatnonzero(
            inside & (columns.class_[rows] == ActivityClass.COMPUTE)
        )
        names.append(columns.name[chosen].astype(np.int64))
        durations.append(columns.duration_ps[chosen])
    known, index = unique_inverse(np.concatenate(names))
    bounds = np.cumsum([0, *(one.size for one in names)])
    count, total = np.zeros((2, len(names), known.size))
    for place, own in enumerate(durations):
        mine = index[bounds[place] : bounds[place + 1]]
        count[place] = np.bincount(mine, minlength=known.size)
        total[place] = np.bincount(mine, weights=own, minlength=known.size)
    mean = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    least = count.min(axis=0)
    as_often = least >= AS_OFTEN_RATIO * count.max(axis=0)
    return (as_often * least * mean).sum(axis=1), total.sum(axis=1)
