"""Computes how much of the devices' compute overlaps, and whether so little that the devices take turns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.analysis.activity import DeviceActivity
from traceview.analysis.balance.rules import SERIAL
from traceview.analysis.selection import Selection
from traceview.intervals import union
from traceview.trace.model import Trace


class Concurrency(Struct, frozen=True):
    """The fields of `Balance` about compute at the same time."""

    concurrency_ratio: float | None = None
    chance_ratio: float | None = None
    is_serial: bool | None = None


def concurrency_of(
    trace: Trace,
    selection: Selection,
    activities: Sequence[DeviceActivity],
    devices: Sequence[int],
    step_count: int,
) -> Concurrency:
    """The compute overlap of two devices or more whose clocks agree."""
    starts, ends, lengths = [], [], []
    for device in devices:
        window = selection.windows[trace.device_list[device].host]
        compute = activities[device].compute
        start, end = compute.start, compute.end
        inside = (end > window.start_ps) & (start < window.end_ps)
        starts.append(np.maximum(start[inside], window.start_ps))
        ends.append(np.minimum(end[inside], window.end_ps))
        lengths.append(int((ends[-1] - starts[-1]).sum()))
    start, end = np.concatenate(starts), np.concatenate(ends)
    del starts, ends
    together, total, longest = union(start, end).length, sum(lengths), max(lengths)
    span = int(end.max() - start.min())
    ratio, chance = (total - together) / (total - longest), longest / span
    missing = 1 - ratio / chance
    deviations = missing * _mean_over_deviation(np.array(lengths) / span, step_count)
    is_serial = (
        ratio < SERIAL.limits["of_chance_ratio"] * chance
        and deviations > SERIAL.limits["deviations"]
    )
    return Concurrency(ratio, chance, is_serial)


def _mean_over_deviation(shares: npt.NDArray[np.float64], step_count: int) -> float:
    """The mean overlap, by chance, of devices that compute these shares of a step, over its standard deviation.

    Each device is taken to compute in one piece per step, wherever chance puts it: in more pieces, chance varies less.
    Of two pieces a >= b of a circle of length 1, ab overlap in the mean, with a mean square of (a - b)b² + 2b³/3.
    """
    mean = variance = 0.0
    for place, share in enumerate(shares):
        others = shares[place + 1 :]
        mean += float((share * others).sum())
        # The overlap of pieces that cannot miss each other varies as that of what they leave free.
        swap = share + others > 1
        first, second = np.where(swap, 1 - share, share), np.where(swap, 1 - others, others)
        a, b = np.maximum(first, second), np.minimum(first, second)
        variance += float(((a - b) * b**2 + 2 * b**3 / 3 - (a * b) ** 2).sum())
    deviation = float(np.sqrt(max(variance, 0.0) / max(step_count, 1)))
    return mean / deviation if deviation else float("inf")
