"""Counts how often the optimizer updates the variables in a step: several times where a step is several training steps."""

from __future__ import annotations

import numpy as np

from traceview.analysis.selection import Selection
from traceview.ids import unique_counts
from traceview.robust import median_ps
from traceview.trace.model import Trace
from traceview.trace.op_phase import Phase, phases_of


def updates_per_step(trace: Trace, selection: Selection) -> int | None:
    """The median over the steps in which the optimizer ran; None where no op shows it, as on GPUs whose ops XLA fused.

    In a step it is how often its ops ran on a device, their median: some run once before the updates.
    """
    columns = trace.device_columns
    rows = np.flatnonzero(phases_of(trace) == Phase.OPTIMIZER)
    start, device, op = columns.start_ps[rows], columns.device[rows], columns.op[rows]
    hosts = np.array([device.host for device in trace.device_list], dtype=np.int64)
    found = []
    for host, steps in selection.steps.items():
        is_here = hosts[device] == host
        for step in steps:
            inside = is_here & (start >= step.start_ps) & (start < step.end_ps)
            if inside.any():
                _, counts = unique_counts(op[inside][device[inside] == device[inside][0]])
                found.append(int(np.median(counts)))
    return median_ps(found)
