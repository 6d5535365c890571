"""Finds the CPU ops that keep a device idle."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.idle_attribution import IdleAttribution
from traceview.analysis.selection import Selection
from traceview.ids import unique_inverse
from traceview.intervals import union
from traceview.trace.cause import Cause
from traceview.trace.model import Trace
from traceview.xplane.host_names import op_type

MOST_OPS: Final = 3
"""Ops that are named, those with most idle time."""


class BlockingOp(Struct, frozen=True):
    """An op of the step that ran on the CPU while a device waited. `idle_ps`: over all used steps."""

    name: str
    type: str
    thread: str
    count: int
    idle_ps: int


def blocking_ops(
    trace: Trace, attribution: IdleAttribution, selection: Selection, device: int
) -> tuple[BlockingOp, ...]:
    """The ops during which a device was idle longest, of its idle time with cause host_compute."""
    host = trace.device_list[device].host
    gaps, columns = attribution.gaps[device], trace.host_columns
    steps = selection.steps[host]
    used = np.array([step.excluded is None for step in steps], dtype=np.bool_)
    computing_ps = gaps.of_cause(Cause.HOST_COMPUTE)
    waits = computing_ps > 0
    if steps:
        waits &= (gaps.step >= 0) & used[np.maximum(gaps.step, 0)]
    idle = union(gaps.start_ps[waits], gaps.end_ps[waits])
    rows = attribution.states[host].computing_rows
    overlap = idle.within(columns.start_ps[rows], columns.end_ps[rows])
    rows, overlap = rows[overlap > 0], overlap[overlap > 0]
    # In a gap with other causes too, the op takes no more than what those leave.
    most_ps = int(computing_ps[waits].sum())
    names, of_row = unique_inverse(columns.name[rows])
    total = np.bincount(of_row, weights=overlap.astype(np.float64), minlength=names.size)
    result = []
    for index in np.argsort(-total, kind="stable")[:MOST_OPS].tolist():
        is_op = of_row == index
        name = trace.names[int(names[index])]
        longest = rows[is_op][overlap[is_op].argmax()]
        result.append(
            BlockingOp(
                name=name.decode("utf-8", "replace"),
                type=(op_type(name) or b"").decode("utf-8", "replace"),
                thread=trace.lines[int(columns.line[longest])].name,
                count=int(is_op.sum()),
                idle_ps=min(int(overlap[is_op].sum()), most_ps),
            )
        )
    return tuple(result)
