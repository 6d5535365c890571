"""Splits the mean step of each device into what it did and what it waited for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.base import OfDevice, Skipped
from traceview.analysis.collectives.result import transfer_spans
from traceview.analysis.context import Context
from traceview.analysis.selection import step_bounds
from traceview.ids import is_in
from traceview.intervals import BoolArray, Int64Array, IntervalSet, uncovered
from traceview.record import Count, DeviceKey, Picoseconds, Record, Share
from traceview.trace.cause import Cause
from traceview.trace.collectives import Collectives
from traceview.xplane.planes import ActivityClass

ACTIVITIES: Final = (
    "compute",
    "collective",
    "collective_wait",
    *(class_.name.lower() for class_ in ActivityClass if class_ >= ActivityClass.H2D),
)
"""What a device does in a step; waiting inside a collective is separated from its transfer."""

_KEYS: Final = (*ACTIVITIES, *(cause.key for cause in Cause))


class DeviceAnatomy(OfDevice, frozen=True):
    """The mean of the used steps of one device, in parts that sum to it.

    Attributes:
        step_count: Used steps of its host inside the window; 0 in a run without any, where the window takes their place.
        step_ps: Mean length of these steps, rounded down, picoseconds; without steps the length of the window.
        activity: Picoseconds of the mean step with compute, and exposed time of collective (their transfers),
            collective_wait (waiting in them for another device), h2d, d2h, d2d and memset; what does not occur is left out.
        idle: Idle picoseconds of the mean step by cause; activity and idle sum to step_ps.
        waits_for: Device that came last in the collectives in which this one waited longest; null where it waited in
            none, and where no device clearly came last.
        waits_for_ratio: Share of its waiting in collectives in which that device came last; null where waits_for is.
    """

    step_count: Count
    step_ps: Picoseconds
    activity: dict[str, Count]
    idle: dict[str, Count]
    waits_for: DeviceKey | None
    waits_for_ratio: Share | None


class Anatomy(Record, frozen=True):
    """What the mean step of each device in use consists of.

    Attributes:
        devices: One entry per device that computed or communicated in the window, in the order of the device list.
    """

    devices: tuple[DeviceAnatomy, ...]


class _Spans(Struct, frozen=True, eq=False):
    """The used steps of a host inside its window, or the window; `is_used`: which steps of the selection they are."""

    start: Int64Array
    end: Int64Array
    is_used: BoolArray
    numbers: Int64Array

    @property
    def step_count(self) -> int:
        """Used steps; 0 where the window takes their place."""
        return int(self.numbers.size)


def compute(context: Context) -> Anatomy | Skipped:
    """The mean step of every device in use."""
    if not context.idle.gaps:
        return Skipped("the trace holds no device event")
    spans = _spans_by_host(context)
    devices = [
        device
        for device, gaps in context.idle.gaps.items()
        if context.trace.device_list[device].host in spans and Cause.UNUSED not in gaps.by_cause
    ]
    if not devices:
        return Skipped("no device ran a kernel in the window")
    transfers = transfer_spans(context.trace, context.collectives)
    return Anatomy(
        tuple(
            _of_device(
                context,
                device,
                spans[context.trace.device_list[device].host],
                transfers[device],
            )
            for device in devices
        )
    )


def _spans_by_host(context: Context) -> dict[int, _Spans]:
    """The used steps of every host that has some; in a run without any, the windows."""
    selection = context.selection
    by_host: dict[int, _Spans] = {}
    for host, window in selection.windows.items():
        steps = selection.steps[host]
        start, end = step_bounds(steps)
        start, end = np.maximum(start, window.start_ps), np.minimum(end, window.end_ps)
        is_used = np.array([step.excluded is None for step in steps], dtype=np.bool_)
        is_used &= start < end
        numbers = np.array([step.number for step in steps], dtype=np.int64)[is_used]
        if numbers.size:
            by_host[host] = _Spans(start[is_used], end[is_used], is_used, numbers)
    return by_host or {
        host: _Spans(
            np.array([window.start_ps]),
            np.array([window.end_ps]),
            np.zeros(len(selection.steps[host]), dtype=np.bool_),
            np.empty(0, dtype=np.int64),
        )
        for host, window in selection.windows.items()
        if window.length_ps
    }


def _of_device(
    context: Context, device: int, spans: _Spans, transfers: IntervalSet
) -> DeviceAnatomy:
    activity = context.activities[device]
    by_class = activity.parts(spans.start, spans.end).sum(axis=1).tolist()
    transfer_ps = int(uncovered(transfers, activity.compute, spans.start, spans.end).sum())
    compute_ps, collective_ps, *copies = by_class[:-1]
    causes = (
        context.idle.causes_of_steps[device][:, spans.is_used]
        if spans.step_count
        else context.idle.gaps[device].cause_ps
    )
    count = max(spans.step_count, 1)
    parts = mean_parts(
        [compute_ps, transfer_ps, collective_ps - transfer_ps, *copies, *causes.sum(axis=1)], count
    )
    cut = len(ACTIVITIES)
    waits_for, ratio = _longest_awaited(context, device, spans)
    return DeviceAnatomy(
        *context.trace.identity(device),
        step_count=spans.step_count,
        step_ps=int((spans.end - spans.start).sum()) // count,
        activity={key: ps for key, ps in zip(_KEYS[:cut], parts[:cut], strict=True) if ps},
        idle={key: ps for key, ps in zip(_KEYS[cut:], parts[cut:], strict=True) if ps},
        waits_for=waits_for,
        waits_for_ratio=ratio,
    )


def mean_parts(total_ps: Iterable[int], count: int) -> list[int]:
    """The mean of each part over `count` steps, so rounded that they sum to the mean of the sum, rounded down."""
    whole = np.cumsum([0, *total_ps], dtype=np.int64) // count
    mean: list[int] = np.diff(whole).tolist()
    return mean


def _longest_awaited(
    context: Context, device: int, spans: _Spans
) -> tuple[str | None, float | None]:
    """The device that this one waited for longest, and the share of its waiting."""
    collectives = context.collectives
    rows = collectives.is_complete[collectives.collective] & (collectives.device == device)
    if spans.step_count:
        rows &= is_in(collectives.step, spans.numbers)
    else:
        rows &= (collectives.start_ps < spans.end[0]) & (collectives.end_ps > spans.start[0])
    wait_ps = np.zeros(collectives.count, dtype=np.int64)
    wait_ps[collectives.collective[rows]] = collectives.wait_ps[rows]
    by_device = _by_last(collectives, wait_ps, len(context.trace.device_list))
    by_device[device] = 0
    longest = int(by_device.argmax())
    if not by_device[longest]:
        return None, None
    return context.trace.device_key(longest), int(by_device[longest]) / int(wait_ps.sum())


def _by_last(collectives: Collectives, wait_ps: Int64Array, device_count: int) -> Int64Array:
    """Waiting by the device that came last, int64 `[devices]`; `wait_ps` by collective."""
    last = np.flatnonzero(collectives.is_last)
    result = np.zeros(device_count, dtype=np.int64)
    np.add.at(result, collectives.device[last], wait_ps[collectives.collective[last]])
    return result
