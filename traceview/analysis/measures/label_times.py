"""Sums the compute of each device by label: an op, the name of a kernel, and the instruction of a program.

What an op is has to be asked once for each label, and not for each event.
"""

from __future__ import annotations

import numpy as np

from traceview.analysis.measures.context import Context
from traceview.base.intervals import BoolArray, Int64Array
from traceview.base.sweeping import SWEEPS
from traceview.ledger.states import State
from traceview.trace.device.lines import label_lines
from traceview.trace.device.op_names import op_labels
from traceview.xplane.planes import ActivityClass


def time_by_label(context: Context) -> dict[int, Int64Array]:
    """By device how long it computes what each label names (`op_labels`), int64 `[labels]`; of the rows that take part in sums."""
    ledger, labels = context.ledger, context.trace.once(op_labels)
    columns, is_compute = ledger.columns, context.once(_compute_rows).view(np.uint8)
    slices = {device: ledger.rows_of(device) for device in ledger.devices}
    return {
        device: SWEEPS.totals(
            labels.of_row[columns.event[own]],
            columns.duration_ps[own],
            labels.row.size,
            is_compute[own],
        )
        for device, own in slices.items()
    }


def _compute_rows(context: Context) -> BoolArray:
    """Rows of the ledger in which a device computes, those that take part in sums."""
    return context.ledger.rows(states=(State.COMPUTE,))


def rows_with(context: Context, device: int, is_wanted: BoolArray) -> Int64Array:
    """The rows of a device in which it computes what these labels name."""
    own, of_row = context.ledger.rows_of(device), context.trace.once(op_labels).of_row
    rows = np.flatnonzero(context.once(_compute_rows)[own]) + own.start
    chosen: Int64Array = rows[is_wanted[of_row[context.ledger.columns.event[rows]]]]
    return chosen


def line_of(context: Context, by_label: Int64Array) -> str | None:
    """The line of Python that made most of what takes some time, int64 by label: more than half of it; None without one."""
    lines, ps_of = context.trace.once(label_lines), dict[str, int]()
    for label in np.flatnonzero(by_label).tolist():
        ps_of[lines[label]] = ps_of.get(lines[label], 0) + int(by_label[label])
    line = max(ps_of, key=lambda line: ps_of[line], default="")
    return line if line and 2 * ps_of[line] > sum(ps_of.values()) else None


def counted_events(context: Context, device: int) -> Int64Array:
    """The compute of a device that begins in a used step, or without steps in the window; rows of the device columns."""
    trace, ledger = context.trace, context.ledger
    columns, own = trace.device_columns, trace.device_columns.rows_of(device)
    begin = columns.start_ps[own]
    window = context.selection.window_of_device(trace, device)
    spans = [
        (step.start_ps, step.end_ps)
        for step in ledger.steps[ledger.steps_of(device)]
        if step.excluded is None
    ]
    if not ledger.has_steps and window is not None:
        spans = [(window.start_ps, window.end_ps)]
    is_counted = columns.class_[own] == ActivityClass.COMPUTE
    starts = np.array([start for start, _ in spans], dtype=np.int64)
    ends = np.array([end for _, end in spans], dtype=np.int64)
    place = np.searchsorted(starts, begin, side="right") - 1
    inside = (place >= 0) & (begin < np.append(ends, 0)[place])
    rows: Int64Array = np.flatnonzero(is_counted & inside) + own.start
    return rows
