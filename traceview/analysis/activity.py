"""Splits the time of a device into exclusive parts that add up to any span exactly.

The unions of the classes are laid on each other in a fixed order: the part of a class is what it adds to the
union of those before it. Each part of each span is then a difference of two covered lengths, and the
parts and the idle rest sum to the span by construction.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.intervals import Int64Array, IntervalSet, union
from traceview.record import Picoseconds, Record
from traceview.trace.model import Trace
from traceview.xplane.planes import ActivityClass


class Parts(Record, frozen=True):
    """The exclusive parts of a span on one device, picoseconds; with `idle_ps` they sum to it.

    Attributes:
        compute_ps: Time with compute, picoseconds.
        exposed_collective_ps: Time with a collective and no compute, picoseconds.
        exposed_h2d_ps: Exposed host-to-device copies, picoseconds.
        exposed_d2h_ps: Exposed device-to-host copies, picoseconds.
        exposed_d2d_ps: Exposed device-to-device copies, picoseconds.
        exposed_memset_ps: Exposed fills, picoseconds.
        idle_ps: Time without any activity, picoseconds.
    """

    compute_ps: Picoseconds
    exposed_collective_ps: Picoseconds
    exposed_h2d_ps: Picoseconds
    exposed_d2h_ps: Picoseconds
    exposed_d2d_ps: Picoseconds
    exposed_memset_ps: Picoseconds
    idle_ps: Picoseconds


class DeviceActivity(Struct, frozen=True, eq=False):
    """Unions over all streams of one device: `by_class[c]` of class c, `cumulative[c]` of classes 0 to c."""

    by_class: tuple[IntervalSet, ...]
    cumulative: tuple[IntervalSet, ...]

    @property
    def compute(self) -> IntervalSet:
        """When it computed."""
        return self.by_class[ActivityClass.COMPUTE]

    def parts(self, start: npt.ArrayLike, end: npt.ArrayLike) -> Int64Array:
        """Exclusive parts of each span, int64 `[7, spans]`, in the order of the fields of `Parts`."""
        begin, finish = np.asarray(start, dtype=np.int64), np.asarray(end, dtype=np.int64)
        covered = np.stack([u.within(begin, finish) for u in self.cumulative])
        busy = np.diff(covered, axis=0, prepend=0)
        return np.concatenate((busy, (finish - begin - covered[-1])[np.newaxis]))


def device_activity(trace: Trace, device: int) -> DeviceActivity:
    """The unions of one device over the whole recording."""
    columns, rows = trace.device_columns, trace.device_columns.rows_of(device)
    start, end, class_ = columns.start_ps[rows], columns.end_ps[rows], columns.class_[rows]
    by_class: list[IntervalSet] = []
    cumulative: list[IntervalSet] = []
    for activity in ActivityClass:
        is_class, so_far = class_ == activity, class_ <= activity
        by_class.append(union(start[is_class], end[is_class]))
        if not cumulative:
            cumulative.append(by_class[0])
        elif not is_class.any():
            cumulative.append(cumulative[-1])
        else:
            cumulative.append(union(start[so_far], end[so_far]))
    return DeviceActivity(tuple(by_class), tuple(cumulative))


def activities(trace: Trace) -> Iterator[DeviceActivity]:
    """The unions of every device, in the order of the device list."""
    for device in range(len(trace.device_list)):
        yield device_activity(trace, device)
