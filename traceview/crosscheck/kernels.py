"""How often did each kernel run, and how long in all? By name, over all devices and the whole recording, as XProf has it."""

from __future__ import annotations

import numpy as np

from traceview.crosscheck.answer import KernelAnswer
from traceview.trace.model import Trace
from traceview.xplane.planes import ActivityClass


def kernels_of(trace: Trace) -> dict[str, KernelAnswer]:
    """The kernels of GPUs, collectives included, by name."""
    columns = trace.device_columns
    gpus = [index for index, device in enumerate(trace.roster) if device.kind == "gpu"]
    rows = np.flatnonzero(
        (columns.class_ <= ActivityClass.COLLECTIVE) & np.isin(columns.device, gpus)
    )
    order = rows[np.argsort(columns.name[rows], kind="stable")]
    if not order.size:
        return {}
    name = columns.name[order]
    first = np.flatnonzero(np.diff(name, prepend=-1))
    totals = np.add.reduceat(columns.duration_ps[order], first)
    counts = np.diff(np.append(first, order.size))
    return {
        trace.names[int(name[at])].decode("utf-8", "replace"): KernelAnswer(int(count), int(total))
        for at, count, total in zip(first.tolist(), counts.tolist(), totals.tolist(), strict=True)
    }
