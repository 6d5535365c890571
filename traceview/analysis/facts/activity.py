"""Unites what each device did by class of activity, over all its streams."""

from __future__ import annotations

from msgspec import Struct

from traceview.analysis.facts.selection import covered_ps
from traceview.base.intervals import IntervalSet, difference, union
from traceview.trace.model import Trace
from traceview.trace.windows import Window
from traceview.xplane.planes import ActivityClass


class DeviceActivity(Struct, frozen=True, eq=False):
    """When a device did what, over the whole recording. `by_class[c]`: of class c."""

    by_class: tuple[IntervalSet, ...]

    @property
    def compute(self) -> IntervalSet:
        """When it computed."""
        return self.by_class[ActivityClass.COMPUTE]

    def exposed_ps(self, window: Window) -> list[int]:
        """How long it was busy with each class in a window, and with none of a class before it: the busy time of the ledger."""
        exposed = []
        for number, alone in enumerate(self.by_class):
            for earlier in self.by_class[:number] if alone.start.size else ():
                alone = difference(alone, earlier)
            exposed.append(covered_ps(alone, window))
        return exposed


def device_activity(trace: Trace, device: int) -> DeviceActivity:
    """The unions of one device over the whole recording."""
    columns, rows = trace.device_columns, trace.device_columns.rows_of(device)
    start, end, class_ = columns.start_ps[rows], columns.end_ps[rows], columns.class_[rows]
    of_class = [class_ == activity for activity in ActivityClass]
    return DeviceActivity(tuple(union(start[own], end[own]) for own in of_class))
