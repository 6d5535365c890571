"""What was each device doing when? The window in equal slices, for a strip of characters or pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from traceview.analysis.activity import DeviceActivity
from traceview.analysis.base import Skipped
from traceview.analysis.context import Analysis
from traceview.analysis.selection import Selection
from traceview.document.chart import UtilizationStrip, UtilizationStrips
from traceview.trace.model import Trace

SLICES: Final = 240
"""Slices of a timeline: divides evenly into the widths of terminals from 20 characters on."""


def compute(
    trace: Trace, selection: Selection, activities: Sequence[DeviceActivity]
) -> UtilizationStrips | Skipped:
    """Slice the window of every device."""
    devices = []
    for index, activity in enumerate(activities):
        window = selection.window_of_device(trace, index)
        if window is None:
            continue
        # In Python integers: the product may exceed 63 bits.
        edges = [window.start_ps + window.length_ps * i // SLICES for i in range(SLICES + 1)]
        bounds = np.array(edges, dtype=np.int64)
        parts = activity.parts(bounds[:-1], bounds[1:])
        devices.append(
            UtilizationStrip(
                trace.device_key(index),
                window.start_ps,
                window.end_ps,
                compute_ps=tuple(parts[0].tolist()),
                collective_ps=tuple(parts[1].tolist()),
                copy_ps=tuple(parts[2:6].sum(axis=0).tolist()),
                idle_ps=tuple(parts[6].tolist()),
            )
        )
    return UtilizationStrips(SLICES, tuple(devices)) if devices else Skipped("no devices")


ANALYSIS: Final = Analysis[UtilizationStrips](
    "timeline",
    compute=lambda context: compute(context.trace, context.selection, context.activities),
)
