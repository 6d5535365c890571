"""Numbers what device events run: one label per op as recorded, kernel and class of activity."""

from __future__ import annotations

from msgspec import Struct

from traceview.base.intervals import Int32Array, Int64Array
from traceview.base.sweeping import SWEEPS
from traceview.trace.model import Recording


class OpLabels(Struct, frozen=True, eq=False):
    """`of_row`: the label of each device event, int32. `row`: by label the first event that has it, int64."""

    of_row: Int32Array
    row: Int64Array


def op_labels(recording: Recording) -> OpLabels:
    """The labels of all device events, from 0 on as they first occur."""
    columns = recording.device_columns
    return OpLabels(*SWEEPS.labelled(columns.op, columns.name, columns.class_))
