"""Counts what shows that the window holds the first call of a function: copies of its constants to devices.

TensorFlow copies the constants of a graph to a device when it makes the kernels of the graph, before the first call.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.selection import Selection
from traceview.ids import unique_counts
from traceview.trace.host_states import HostStates
from traceview.trace.model import Trace
from traceview.xplane.host_names import op_type
from traceview.xplane.planes import ActivityClass

MOST_TYPES: Final = 3
"""Types of ops, the most frequent ones: enough to recognize the function."""


class FirstCall(Struct, frozen=True):
    """Copies of constants in the window, kernels there, and the most frequent types of their ops."""

    copy_count: int
    kernel_count: int
    types: tuple[str, ...]


def first_call(
    trace: Trace, states: HostStates, selection: Selection, host: int
) -> FirstCall | None:
    """What shows a first call in the window of a host; None without a copy of a constant."""
    window, events = selection.windows[host], trace.host_columns
    calls = events.start_ps[states.copies_of_constants]
    copy_count = int(np.count_nonzero((calls >= window.start_ps) & (calls < window.end_ps)))
    if not copy_count:
        return None
    columns, rows = trace.device_columns, trace.device_rows(host)
    rows = rows[columns.class_[rows] == ActivityClass.COMPUTE]
    rows = rows[(columns.start_ps[rows] < window.end_ps) & (columns.end_ps[rows] > window.start_ps)]
    names, count = unique_counts(columns.op[rows][columns.op[rows] >= 0])
    types: Counter[str] = Counter()
    for name, times in zip(names.tolist(), count.tolist(), strict=True):
        type_ = op_type(trace.names[name])
        if type_ is not None:
            types[type_.decode("utf-8", "replace")] += times
    return FirstCall(
        copy_count, int(rows.size), tuple(name for name, _ in types.most_common(MOST_TYPES))
    )
