"""How busy was each device, and with what?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from traceview.analyses.activity import DeviceActivity, one_span
from traceview.analyses.selection import Selection, rows_in
from traceview.ids import unique_ids
from traceview.intervals import Int64Array, union
from traceview.trace.model import UNKNOWN_BYTES, Trace
from traceview.trace.roles import part_in_training
from traceview.trace.windows import Window
from traceview.xplane.planes import ActivityClass

MARGINAL_RATIO: Final = 0.20
"""A device that computes less than this of the busiest one is marginal (METRICS: status)."""


@dataclass(frozen=True)
class DeviceTimeRow:
    """One device over its host's window. Every `_ps` is a union over its streams, never a sum.

    `device`: `GPU:3`, with several hosts `host/GPU:3`. `status`: active, marginal (computes less than a
    fifth of the busiest device), copy_only (copies or fills, no kernel), memory_only (its allocator holds
    bytes, no event), empty; judged over the whole recording. The exposed parts are what a class adds to
    those before it, in the order of the fields, so that compute, exposed parts and idle sum to `window_ps`.
    `total_ps`: the union of each class alone. Numbers are None where the tracer recorded no device of the
    host. Counts and bytes are of the events that overlap the window, `outside_window_count` the events that do not; `unknown_direction_count` counts the
    copies taken as d2d because nothing tells their direction.
    """

    host: str
    device: str
    ordinal: int
    kind: str
    model: str | None
    status: str
    window_ps: int | None = None
    busy_ps: int | None = None
    busy_ratio: float | None = None
    compute_ps: int | None = None
    compute_ratio: float | None = None
    exposed_collective_ps: int | None = None
    exposed_h2d_ps: int | None = None
    exposed_d2h_ps: int | None = None
    exposed_d2d_ps: int | None = None
    exposed_memset_ps: int | None = None
    idle_ps: int | None = None
    total_ps: dict[str, int] | None = None
    kernel_count: int | None = None
    collective_count: int | None = None
    copy_count: int | None = None
    memset_count: int | None = None
    h2d_bytes: int | None = None
    d2h_bytes: int | None = None
    d2d_bytes: int | None = None
    unknown_direction_count: int | None = None
    opaque_count: int | None = None
    outside_window_count: int | None = None
    memory_held_bytes: int | None = None
    memory_peak_bytes: int | None = None


@dataclass(frozen=True)
class SharedTime:
    """Host ops of a CPU-only run that no replica owns: `compute_ps` is their union in the window."""

    host: str
    compute_ps: int


@dataclass(frozen=True)
class DeviceTime:
    """All devices in the order of hosts and ordinals; `shared` only for runs without GPUs."""

    devices: tuple[DeviceTimeRow, ...]
    shared: tuple[SharedTime, ...]


def compute(trace: Trace, selection: Selection, activities: Sequence[DeviceActivity]) -> DeviceTime:
    """Account for every picosecond of each device in its window; `activities` by device index."""
    status = statuses(trace, activities)
    hosts_with_events = {trace.device_list[i].host for i in unique_ids(trace.device_columns.device)}
    rows = [
        _row(trace, index, status[index], selection, activities[index])
        if device.host in hosts_with_events
        else _without_numbers(trace, index, status[index], selection)
        for index, device in enumerate(trace.device_list)
    ]
    order = sorted(
        range(len(rows)), key=lambda i: (trace.device_list[i].host, rows[i].kind, rows[i].ordinal)
    )
    return DeviceTime(tuple(rows[i] for i in order), _shared(trace, selection))


def statuses(trace: Trace, activities: Sequence[DeviceActivity]) -> list[str]:
    """The status of each device of the device list, judged over the whole recording.

    active; marginal (computes less than a fifth of the busiest device of its kind and role); copy_only (copies or
    fills, no kernel); memory_only (its allocator holds bytes, no event); empty.
    """
    compute_ps = [a.by_class[ActivityClass.COMPUTE].length for a in activities]
    busiest = busiest_peers(trace, compute_ps)
    found = []
    for index, device in enumerate(trace.device_list):
        rows = trace.device_columns.rows_of(index)
        classes = trace.device_columns.class_[rows]
        if classes.size == 0:
            found.append("memory_only" if device.memory_held_bytes else "empty")
        elif (classes >= ActivityClass.H2D).all():
            found.append("copy_only")
        elif compute_ps[index] < MARGINAL_RATIO * compute_ps[busiest[index]]:
            found.append("marginal")
        else:
            found.append("active")
    return found


def busiest_peers(trace: Trace, compute_ps: Sequence[int]) -> list[int]:
    """For each device the one of its kind and role that computes most.

    A replica on a CPU is no yardstick for a GPU, nor is a worker one for a parameter server or an evaluator.
    """
    peers = [
        (device.kind, part_in_training(trace.hosts[device.host])) for device in trace.device_list
    ]
    first: dict[tuple[str, str], int] = {}
    for index in sorted(range(len(peers)), key=lambda i: (-compute_ps[i], i)):
        first.setdefault(peers[index], index)
    return [first[one] for one in peers]


def _without_numbers(trace: Trace, index: int, status: str, selection: Selection) -> DeviceTimeRow:
    device = trace.device_list[index]
    window = selection.window_of_device(trace, index)
    return DeviceTimeRow(
        host=trace.hosts[device.host].name,
        device=trace.device_key(index),
        ordinal=device.ordinal,
        kind=device.kind,
        model=device.model,
        status=status,
        window_ps=None if window is None else window.length_ps,
        memory_held_bytes=device.memory_held_bytes,
        memory_peak_bytes=device.memory_peak_bytes,
    )


def _row(
    trace: Trace, index: int, status: str, selection: Selection, activity: DeviceActivity
) -> DeviceTimeRow:
    bare = _without_numbers(trace, index, status, selection)
    window = selection.window_of_device(trace, index)
    if window is None:
        return bare
    parts = one_span(activity.parts([window.start_ps], [window.end_ps]), 0)
    length = window.length_ps
    busy = length - parts.idle_ps
    counted = _with_counts(bare, trace, index, window)
    return replace(
        counted,
        busy_ps=busy,
        busy_ratio=_ratio(busy, length),
        compute_ratio=_ratio(parts.compute_ps, length),
        total_ps={
            one.name.lower(): int(activity.by_class[one].within(window.start_ps, window.end_ps))
            for one in ActivityClass
        },
        compute_ps=parts.compute_ps,
        exposed_collective_ps=parts.exposed_collective_ps,
        exposed_h2d_ps=parts.exposed_h2d_ps,
        exposed_d2h_ps=parts.exposed_d2h_ps,
        exposed_d2d_ps=parts.exposed_d2d_ps,
        exposed_memset_ps=parts.exposed_memset_ps,
        idle_ps=parts.idle_ps,
    )


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _with_counts(row: DeviceTimeRow, trace: Trace, index: int, window: Window) -> DeviceTimeRow:
    columns, rows = trace.device_columns, trace.device_columns.rows_of(index)
    inside = rows_in(columns.start_ps[rows], columns.end_ps[rows], window) + rows.start
    class_, size = columns.class_[inside], columns.bytes[inside]
    count = np.bincount(class_, minlength=len(ActivityClass)).tolist()
    return replace(
        row,
        kernel_count=count[ActivityClass.COMPUTE],
        collective_count=count[ActivityClass.COLLECTIVE],
        copy_count=sum(count[ActivityClass.H2D : ActivityClass.D2D + 1]),
        memset_count=count[ActivityClass.MEMSET],
        h2d_bytes=_known_sum(size[class_ == ActivityClass.H2D]),
        d2h_bytes=_known_sum(size[class_ == ActivityClass.D2H]),
        d2d_bytes=_known_sum(size[class_ == ActivityClass.D2D]),
        unknown_direction_count=int(columns.unknown_direction[inside].sum()),
        opaque_count=int(columns.opaque[inside].sum()),
        outside_window_count=rows.stop - rows.start - inside.size,
    )


def _known_sum(sizes: Int64Array) -> int | None:
    """The bytes of copies; None where there are copies and no size was recorded: no false zero."""
    known = sizes[sizes != UNKNOWN_BYTES]
    return int(known.sum()) if known.size or not sizes.size else None


def _shared(trace: Trace, selection: Selection) -> tuple[SharedTime, ...]:
    columns, rows = trace.host_columns, trace.shared_rows
    result = []
    for host, window in selection.windows.items():
        mine = rows[columns.host[rows] == host]
        if mine.size:
            covered = union(columns.start_ps[mine], columns.end_ps[mine])
            inside = int(covered.within(window.start_ps, window.end_ps))
            result.append(SharedTime(trace.hosts[host].name, inside))
    return tuple(result)
