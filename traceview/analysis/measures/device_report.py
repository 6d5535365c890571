"""Measures how busy each device was and with what, and chooses the devices that a reader has to see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from traceview.analysis.facts.activity import Parts
from traceview.analysis.facts.devices import statuses
from traceview.analysis.facts.selection import Selection, covered_ps, rows_in
from traceview.analysis.measures.context import Context
from traceview.analysis.rules.finding import Finding
from traceview.analysis.rules.words import Devices
from traceview.base.intervals import Int64Array, union
from traceview.base.record import (
    Count,
    DeviceKey,
    Hostname,
    Integer,
    ModelName,
    Picoseconds,
    Record,
    Share,
    Words,
    one_of,
)
from traceview.document.model import ratio
from traceview.trace.device.memory import most_held
from traceview.trace.model import UNKNOWN_BYTES, Trace
from traceview.trace.windows import Window
from traceview.xplane.planes import ActivityClass

MOST_ROWS: Final = 16
"""Devices with a row each; of more than that only the outliers have one."""

FEW_DEVICES: Final = 4
"""A finding about so many devices or fewer is about them, not about the run."""

OUTLIER_RATIO: Final = 0.02
"""A device is an outlier if a part of its window differs by this share of it from the median device."""

_Shares: TypeAlias = tuple[float, ...]


class OutlierDevices(Struct, frozen=True):
    """Keys of devices in the order of the device list.

    Devices that recorded nothing are in neither where there are `FEW_DEVICES` of them or more: a sentence names them.

    `shown`: devices that a finding is about and those that differ most from the median device, with one typical
    device. `others`: the rest, empty where all are shown.
    """

    shown: tuple[str, ...]
    others: tuple[str, ...]


def outlier_devices(
    devices: Sequence[DeviceTimeRow], named: Sequence[str] = (), most: int = MOST_ROWS
) -> OutlierDevices:
    """At most `most` of the devices that recorded anything, those `named` first; all where there are no more."""
    empty = [row for row in devices if row.status == "empty"]
    rows = [row for row in devices if row not in empty or len(empty) < FEW_DEVICES]
    if len(rows) <= most:
        return OutlierDevices(tuple(row.device for row in rows), ())
    distance = _distances(rows)
    # Python sorts stably: equals keep the order of the device list.
    farthest = sorted(distance, key=lambda device: -distance[device])
    chosen = [device for device in named if device in distance]
    chosen += [device for device in farthest if distance[device] >= OUTLIER_RATIO]
    kept = set(list(dict.fromkeys(chosen))[: most - 1])
    typical = [device for device in distance if distance[device] < OUTLIER_RATIO]
    kept.update(typical[:1])
    return OutlierDevices(
        tuple(row.device for row in rows if row.device in kept),
        tuple(row.device for row in rows if row.device not in kept),
    )


def named_devices(findings: Sequence[Finding]) -> list[str]:
    """The devices that findings are about or name, such as the one that others wait for."""
    groups = [
        devices
        for finding in findings
        for devices in (
            finding.devices,
            *(each.keys for each in finding.arguments.values() if isinstance(each, Devices)),
        )
    ]
    return [device for devices in groups if len(devices) <= FEW_DEVICES for device in devices]


def _distances(rows: Sequence[DeviceTimeRow]) -> dict[str, float]:
    """By device the largest difference of a part from the median device by compute, as a share of its window.

    A device of another status than most has the largest distance; one with no known parts has none.
    """
    shares = {row.device: _shares(row) for row in rows}
    known = sorted(parts for parts in shares.values() if parts is not None)
    # An actual device, rather than medians of each part that no device may have together.
    median = known[(len(known) - 1) // 2] if known else ()
    statuses = [row.status for row in rows]
    usual = max(statuses, key=statuses.count)
    distances = {}
    for row in rows:
        parts = shares[row.device]
        if row.status != usual:
            distances[row.device] = 1.0
        elif parts is None:
            distances[row.device] = 0.0
        else:
            differences = (abs(part - middle) for part, middle in zip(parts, median, strict=True))
            distances[row.device] = max(differences)
    return distances


def _shares(row: DeviceTimeRow) -> _Shares | None:
    parts = (row.compute_ps, row.exposed_collective_ps, row.exposed_h2d_ps, row.idle_ps)
    if not row.window_ps or any(part is None for part in parts):
        return None
    return tuple(part / row.window_ps for part in parts if part is not None)


class DeviceTimeRow(Record, frozen=True):
    """One device over its host's window. Every `_ps` is a union over its streams, never a sum.

    Attributes:
        host: Name of the host.
        device: Key of the device: GPU:3, or host/GPU:3 in a run of several hosts.
        ordinal: Number in the name of the device: the visible index of the process, or the number of the
            replica.
        kind: gpu, tpu, replica (a logical CPU device) or other.
        model: Model of the device; null if not recorded.
        status: Over the whole recording. active; marginal: computes less than a fifth of the busiest device;
            copy_only: copies or fills, no kernel; memory_only: its allocator holds bytes, no event; empty.
        window_ps: Length of the window, picoseconds.
        busy_ps: Time with any activity, picoseconds.
        busy_ratio: busy_ps over window_ps, 0 to 1.
        compute_ps: Time with compute, picoseconds.
        compute_ratio: compute_ps over window_ps, 0 to 1.
        exposed_collective_ps: Time with a collective and no compute, picoseconds.
        exposed_h2d_ps: Time with a host-to-device copy and nothing before it in this list, picoseconds.
        exposed_d2h_ps: Time with a device-to-host copy and nothing before it in this list, picoseconds.
        exposed_d2d_ps: Time with a device-to-device copy and nothing before it in this list, picoseconds.
        exposed_memset_ps: Time with a fill and nothing before it in this list, picoseconds.
        idle_ps: Time without any activity, picoseconds.
        total_ps: Class of activity to the length of its union in the window, picoseconds; not exclusive.
        kernel_count: Events of class compute that overlap the window.
        collective_count: Collectives that overlap the window.
        copy_count: Copies (h2d, d2h, d2d) that overlap the window.
        memset_count: Fills that overlap the window.
        h2d_bytes: Bytes of the host-to-device copies that overlap the window; null where no size was recorded.
        d2h_bytes: Bytes of the device-to-host copies that overlap the window; null where no size was recorded.
        d2d_bytes: Bytes of the device-to-device copies that overlap the window; null where no size was
            recorded.
        unknown_direction_count: Copies counted as d2d because their direction is not recorded.
        opaque_count: CUDA graphs recorded as one event, counted as compute.
        outside_window_count: Events of the device that do not overlap the window; null if unknown.
        memory_held_bytes: Bytes that the allocator of the device held last; null if not recorded.
        memory_peak_bytes: Most bytes that the allocator of the device held since the process started, or where it does
            not record that, in the recording; null if not recorded.
        memory_window_peak_bytes: Most bytes that it held in the window; null if not recorded.
    """

    host: Hostname
    device: DeviceKey
    ordinal: Integer
    kind: Annotated[str, one_of("gpu", "tpu", "replica", "other")]
    model: ModelName | None
    status: Annotated[str, one_of("active", "marginal", "copy_only", "memory_only", "empty")]
    window_ps: Picoseconds | None = None
    busy_ps: Picoseconds | None = None
    busy_ratio: Share | None = None
    compute_ps: Picoseconds | None = None
    compute_ratio: Share | None = None
    exposed_collective_ps: Picoseconds | None = None
    exposed_h2d_ps: Picoseconds | None = None
    exposed_d2h_ps: Picoseconds | None = None
    exposed_d2d_ps: Picoseconds | None = None
    exposed_memset_ps: Picoseconds | None = None
    idle_ps: Picoseconds | None = None
    total_ps: dict[Words, Integer] | None = None
    kernel_count: Count | None = None
    collective_count: Count | None = None
    copy_count: Count | None = None
    memset_count: Count | None = None
    h2d_bytes: Count | None = None
    d2h_bytes: Count | None = None
    d2d_bytes: Count | None = None
    unknown_direction_count: Count | None = None
    opaque_count: Count | None = None
    outside_window_count: Count | None = None
    memory_held_bytes: Count | None = None
    memory_peak_bytes: Count | None = None
    memory_window_peak_bytes: Count | None = None

    @property
    def is_in_use(self) -> bool:
        """Whether it computed."""
        return self.status in ("active", "marginal")


class SharedTime(Record, frozen=True):
    """Host ops of a CPU-only run that belong to no replica.

    Attributes:
        host: Name of the host.
        compute_ps: Length of their union in the window, picoseconds.
    """

    host: Hostname
    compute_ps: Picoseconds


class DeviceTime(Record, frozen=True):
    """All devices in the order of hosts and ordinals.

    Attributes:
        devices: One row per device.
        shared: Host ops of a CPU-only run that belong to no replica; empty for runs with devices.
    """

    devices: tuple[DeviceTimeRow, ...]
    shared: tuple[SharedTime, ...]


def time_words(times: DeviceTime | None) -> str:
    """What the time of the devices is called: `GPU time`, of a run with devices of another kind `device time`."""
    is_of_gpus = times is None or all(row.kind == "gpu" for row in times.devices)
    return "GPU time" if is_of_gpus else "device time"


def compute(context: Context) -> DeviceTime:
    """Account for every picosecond of each device in its window."""
    trace, activities = context.trace, context.activities
    status, measured = statuses(trace, activities), set(context.ledger.devices)
    rows = [
        _row(context, index, status[index])
        if index in measured
        else _without_numbers(trace, index, status[index], context.selection)
        for index in range(len(trace.device_list))
    ]
    order = sorted(
        range(len(rows)), key=lambda i: (trace.device_list[i].host, rows[i].kind, rows[i].ordinal)
    )
    return DeviceTime(tuple(rows[i] for i in order), _shared(trace, context.selection))


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
        memory_window_peak_bytes=None
        if window is None
        else most_held(trace.host_columns, trace.names, device, window),
    )


def _row(context: Context, index: int, status: str) -> DeviceTimeRow:
    bare = _without_numbers(context.trace, index, status, context.selection)
    window = context.selection.window_of_device(context.trace, index)
    if window is None:
        return bare
    parts = Parts(*context.ledger.by_activity(index))
    busy_ps = window.length_ps - parts.idle_ps
    return replace(
        bare,
        **asdict(parts),
        **_counts(context.trace, index, window),
        busy_ps=busy_ps,
        busy_ratio=ratio(busy_ps, window.length_ps),
        compute_ratio=ratio(parts.compute_ps, window.length_ps),
        total_ps={
            class_.name.lower(): covered_ps(context.activities[index].by_class[class_], window)
            for class_ in ActivityClass
        },
    )


def _counts(trace: Trace, index: int, window: Window) -> dict[str, int | None]:
    columns, rows = trace.device_columns, trace.device_columns.rows_of(index)
    inside = rows_in(columns.start_ps[rows], columns.end_ps[rows], window) + rows.start
    class_, size = columns.class_[inside], columns.bytes[inside]
    count = np.bincount(class_, minlength=len(ActivityClass)).tolist()
    return {
        "kernel_count": count[ActivityClass.COMPUTE],
        "collective_count": count[ActivityClass.COLLECTIVE],
        "copy_count": sum(count[ActivityClass.H2D : ActivityClass.D2D + 1]),
        "memset_count": count[ActivityClass.MEMSET],
        "h2d_bytes": _known_sum(size[class_ == ActivityClass.H2D]),
        "d2h_bytes": _known_sum(size[class_ == ActivityClass.D2H]),
        "d2d_bytes": _known_sum(size[class_ == ActivityClass.D2D]),
        "unknown_direction_count": int(columns.unknown_direction[inside].sum()),
        "opaque_count": int(columns.opaque[inside].sum()),
        "outside_window_count": rows.stop - rows.start - inside.size,
    }


def _known_sum(sizes: Int64Array) -> int | None:
    """The bytes of copies; None where there are copies and no size was recorded: no false zero."""
    known = sizes[sizes != UNKNOWN_BYTES]
    return int(known.sum()) if known.size or not sizes.size else None


def _shared(trace: Trace, selection: Selection) -> tuple[SharedTime, ...]:
    columns, rows = trace.host_columns, trace.shared_rows
    result = []
    for host, window in selection.windows.items():
        own = columns.rows_of_host(host)
        first, last = np.searchsorted(rows, (own.start, own.stop))
        of_host = rows[first:last]
        if of_host.size:
            covered = union(columns.start_ps[of_host], columns.end_ps[of_host])
            result.append(SharedTime(trace.hosts[host].name, covered_ps(covered, window)))
    return tuple(result)
