"""Splits the time of a device into exclusive parts that add up to any span exactly.

The unions of the classes are laid on each other in a fixed order: the part of a class is what it adds to the
union of those before it. No instant is in two parts, so the parts and the idle rest of a span sum to it by
construction.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.base.intervals import Int64Array, IntervalSet, difference, union
from traceview.base.record import Picoseconds, Record
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
    """Unions over all streams of one device: `by_class[c]` of class c, `added[c]` of it without classes 0 to c - 1.

    What a class adds is short, so it takes less memory than the union of the classes up to it.
    """

    by_class: tuple[IntervalSet, ...]
    added: tuple[IntervalSet, ...]

    @property
    def compute(self) -> IntervalSet:
        """When it computed."""
        return self.by_class[ActivityClass.COMPUTE]

    def up_to(self, class_: int) -> IntervalSet:
        """When it did anything of the classes 0 to `class_`; made anew each time."""
        filled = [part for part in self.added[: class_ + 1] if part.length]
        if len(filled) < 2:
            return filled[0] if filled else self.added[0]
        return union(
            np.concatenate([part.start for part in filled]),
            np.concatenate([part.end for part in filled]),
        )

    def parts(self, start: npt.ArrayLike, end: npt.ArrayLike) -> Int64Array:
        """Exclusive parts of each span, int64 `[7, spans]`, in the order of the fields of `Parts`."""
        begin, finish = np.asarray(start, dtype=np.int64), np.asarray(end, dtype=np.int64)
        busy = np.stack([part.within(begin, finish) for part in self.added])
        return np.concatenate((busy, (finish - begin - busy.sum(axis=0))[np.newaxis]))


def device_activity(trace: Trace, device: int) -> DeviceActivity:
    """The unions of one device over the whole recording."""
    columns, rows = trace.device_columns, trace.device_columns.rows_of(device)
    return added_by_class(columns.start_ps[rows], columns.end_ps[rows], columns.class_[rows])


def added_by_class(
    start: Int64Array, end: Int64Array, class_: npt.NDArray[np.uint8]
) -> DeviceActivity:
    """The unions of events, in order of start, by class."""
    by_class: list[IntervalSet] = []
    added: list[IntervalSet] = []
    before: IntervalSet | None = None
    for activity in ActivityClass:
        is_class = class_ == activity
        own = union(start[is_class], end[is_class])
        by_class.append(own)
        if own.length == 0 or before is None:
            added.append(own)
        else:
            added.append(difference(own, before))
        if before is None:
            before = own
        elif own.length:
            so_far = class_ <= activity
            before = union(start[so_far], end[so_far])
    return DeviceActivity(tuple(by_class), tuple(added))


def activities(trace: Trace) -> Iterator[DeviceActivity]:
    """The unions of every device, in the order of the device list."""
    for device in range(len(trace.device_list)):
        yield device_activity(trace, device)
