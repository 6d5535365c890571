"""Sums count and time of each kernel by name, over all devices and the whole profile, as XProf does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from scripts.crosscheck.answer import KernelAnswer
from traceview.base.ids import is_in
from traceview.base.intervals import Int64Array
from traceview.trace.model import Names, Trace
from traceview.xplane.planes import ActivityClass


def kernels_of(trace: Trace) -> dict[str, KernelAnswer]:
    """The kernels of GPUs, collectives included, by name."""
    columns = trace.device_columns
    gpus = [index for index, device in enumerate(trace.device_list) if device.kind == "gpu"]
    rows = np.flatnonzero(
        (columns.class_ <= ActivityClass.COLLECTIVE) & is_in(columns.device, gpus)
    )
    return summed_by_name(columns.name[rows], columns.duration_ps[rows], trace.names)


def summed_by_name(
    name: npt.NDArray[np.integer], duration_ps: Int64Array, names: Names | Sequence[bytes]
) -> dict[str, KernelAnswer]:
    """How many events have each name, and how long they are in all; `name`: indices into `names`, `[n]`."""
    order = np.argsort(name, kind="stable")
    if not order.size:
        return {}
    first = np.flatnonzero(np.diff(name[order].astype(np.int64), prepend=-1))
    totals = np.add.reduceat(duration_ps[order], first)
    counts = np.diff(np.append(first, order.size))
    return {
        names[index].decode("utf-8", "replace"): KernelAnswer(count, total)
        for index, count, total in zip(
            name[order][first].tolist(), counts.tolist(), totals.tolist(), strict=True
        )
    }
