"""Measures how busy each device was and with what, chooses the devices that a reader has to see, and collects what the job ran in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
from msgspec.structs import asdict

from traceview.analysis.facts.devices import statuses
from traceview.analysis.facts.selection import covered_ps, rows_in
from traceview.analysis.measures.context import Context
from traceview.analysis.rules.finding import Finding, OfDevice, Skipped
from traceview.analysis.rules.words import Devices
from traceview.base.record import (
    LARGEST,
    Count,
    Hostname,
    ModelName,
    Picoseconds,
    Record,
    Share,
    Words,
    one_of,
)
from traceview.base.units import PS_PER_S
from traceview.ledger.columns import IDLE
from traceview.ledger.states import State
from traceview.ledger.table import Ledger, totals
from traceview.trace.columns import UNKNOWN_BYTES
from traceview.trace.device.memory import allocators
from traceview.trace.model import Trace
from traceview.trace.sidecar.environment import RecordedEnvironment
from traceview.xplane.planes import CLASS_KEYS

if TYPE_CHECKING:
    from fractions import Fraction

MOST_ROWS: Final = 16
"""Devices with a row each; of more than that only the outliers have one."""

FEW_DEVICES: Final = 4
"""A finding about so many devices or fewer is about them, not about the run."""

ALIKE_RATIO: Final = 0.02
"""Devices are alike if no part of their time differs by more than this share of the longer whole; a choice of ours."""

COPIES: Final = ("h2d", "d2h", "d2d")
"""Classes of activity that copy, by key."""


def usual_devices(devices: Sequence[DeviceTimeRow], named: Sequence[str] = ()) -> tuple[str, ...]:
    """Keys of the devices without a row of their own, which do not stand out; none of few.

    At most `MOST_ROWS` have one: those `named`, those that are unlike most, and a typical one. What recorded nothing is
    not among them.
    """
    rows = devices
    if len(devices) > MOST_ROWS:
        rows = [row for row in devices if row.status != "empty"]
    if len(rows) <= MOST_ROWS:
        return ()
    by_status: dict[str, dict[str, dict[str, int | None]]] = {}
    for row in rows:
        if row.activity is not None:
            by_status.setdefault(row.status, {})[row.device] = row.parts_ps
    groups = [group for parts in by_status.values() for group in alike_groups(parts)]
    *unusual, usual = sorted(groups, key=len) or [[row.device for row in rows]]
    chosen = [device for device in named if any(row.device == device for row in rows)]
    chosen += [device for group in unusual for device in group]
    kept = {*list(dict.fromkeys(chosen))[: MOST_ROWS - 1], usual[0]}
    return tuple(row.device for row in rows if row.device not in kept)


def alike_groups(
    parts: Mapping[str, Mapping[str, int | None]], most: int | None = None
) -> list[list[str]]:
    """Keys of devices in groups whose parts differ by at most `ALIKE_RATIO` of the whole from those of the first one.

    `parts`: picoseconds, which sum to the whole. `most`: with more groups the limit doubles until they are no more.
    """
    ratio = ALIKE_RATIO
    while True:
        groups: list[list[str]] = []
        for device, own in parts.items():
            alike = (group for group in groups if _are_alike(parts[group[0]], own, ratio))
            group = next(alike, None)
            if group is None:
                groups.append([device])
            else:
                group.append(device)
        if most is None or len(groups) <= most or ratio >= 1:
            return groups
        ratio *= 2


def _are_alike(
    first: Mapping[str, int | None], other: Mapping[str, int | None], ratio: float
) -> bool:
    most_ps = ratio * max(sum(ps or 0 for ps in parts.values()) for parts in (first, other))
    keys = {*first, *other}
    return all(abs((first.get(key) or 0) - (other.get(key) or 0)) <= most_ps for key in keys)


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


WORK: Final = {
    "compute_ps": (State.COMPUTE,),
    "communication_ps": (State.COMMUNICATION,),
    "copies_ps": (State.H2D, State.D2H, State.D2D),
}
"""Parts of the busy time that are work, and their states."""


class ActivityTime(Record, frozen=True):
    """Activity of one class on one device in its window.

    Attributes:
        count: Events that overlap the window.
        bytes: Bytes of those of a known size, whole; null where there are copies and no size is recorded, and of a class
            that copies nothing.
        busy_ps: Time in which such an event ran, picoseconds: a union over the streams, never a sum.
        exposed_ps: Time in which such an event ran and none of a class before it, in the order compute, collective,
            h2d, d2h, d2d, memset, picoseconds.
        exposed_ratio: The same as a share of the used steps; without steps, of the window.
        bytes_per_second: bytes over busy_ps, rounded down; null unless the sizes of all copies are recorded.
    """

    count: Count
    bytes: Count | None
    busy_ps: Picoseconds
    exposed_ps: Picoseconds
    exposed_ratio: Share | None = None
    bytes_per_second: Count | None = None


class DeviceTimeRow(OfDevice, frozen=True):
    """One device over its host's window.

    Attributes:
        kind: gpu, tpu, replica (a logical CPU device) or other.
        model: Model of the device; null if not recorded.
        status: Over the whole recording. active; marginal: computes less than a fifth of the busiest device;
            copy_only: copies or fills, no kernel; memory_only: its allocator holds bytes, no event; empty.
        window_ps: Length of the window, picoseconds.
        busy_ps: Time with any activity, picoseconds.
        busy_ratio: busy_ps over window_ps, 0 to 1; null where the window has no length.
        idle_ps: Time without any activity, picoseconds.
        compute_ps: Part of busy_ps in the state compute of the ledger, picoseconds.
        communication_ps: The same in communication.
        copies_ps: The same in copies and fills.
        waiting_ps: The rest of busy_ps: an op of it waits within a collective, or others slow it down.
        activity: What it did, by class; the exposed times and idle_ps sum to the window. Null if unknown, as are the
            times above.
        unknown_direction_count: Copies counted as d2d because their direction is not recorded.
        memory_held_bytes: Bytes that the allocator of the device held last; null if not recorded.
        memory_peak_bytes: Most bytes that the allocator of the device held since the process started, or where it does
            not record that, in the recording; null if not recorded.
    """

    kind: Annotated[str, one_of("gpu", "tpu", "replica", "other")]
    model: ModelName | None
    status: Annotated[str, one_of("active", "marginal", "copy_only", "memory_only", "empty")]
    window_ps: Picoseconds | None = None
    busy_ps: Picoseconds | None = None
    busy_ratio: Share | None = None
    idle_ps: Picoseconds | None = None
    compute_ps: Picoseconds | None = None
    communication_ps: Picoseconds | None = None
    copies_ps: Picoseconds | None = None
    waiting_ps: Picoseconds | None = None
    activity: dict[Words, ActivityTime] | None = None
    unknown_direction_count: Count | None = None
    memory_held_bytes: Count | None = None
    memory_peak_bytes: Count | None = None

    @property
    def is_in_use(self) -> bool:
        """Whether it computed."""
        return self.status in ("active", "marginal")

    @property
    def parts_ps(self) -> dict[str, int | None]:
        """The parts of its window."""
        return {field: getattr(self, field) for field in (*WORK, "waiting_ps", "idle_ps")}


class DeviceTime(Record, frozen=True):
    """All devices in the order of hosts and ordinals.

    Attributes:
        devices: One row per device.
    """

    devices: tuple[DeviceTimeRow, ...]


def time_words(times: DeviceTime | None) -> str:
    """The name of the time of the devices: `GPU time`, of a run with devices of another kind `device time`."""
    is_of_gpus = times is None or all(row.kind == "gpu" for row in times.devices)
    return "GPU time" if is_of_gpus else "device time"


def compute(context: Context) -> DeviceTime:
    """Account for every picosecond of each device in its window."""
    trace = context.trace
    status, devices = statuses(context), trace.device_list
    order = sorted(
        range(len(devices)), key=lambda i: (devices[i].host, devices[i].kind, devices[i].ordinal)
    )
    rows = tuple(_row(context, index, status[index]) for index in order)
    return DeviceTime(rows)


def _row(context: Context, index: int, status: str) -> DeviceTimeRow:
    trace, device = context.trace, context.trace.device_list[index]
    window, activity = (
        context.selection.window_of_device(trace, index),
        context.once(in_windows).get(index),
    )
    columns, own = trace.device_columns, trace.device_columns.rows_of(index)
    known: dict[str, Any] = {}
    allocator = trace.once(allocators).get(index)
    if allocator is not None:
        known["memory_held_bytes"] = int(allocator.held_bytes[-1])
        known["memory_peak_bytes"] = allocator.peak_bytes
    if window is not None and activity is not None:
        inside = rows_in(columns.start_ps[own], columns.end_ps[own], window) + own.start
        busy_ps = sum(of_class.exposed_ps for of_class in activity.values())
        known |= {
            "busy_ps": busy_ps,
            "busy_ratio": busy_ps / window.length_ps if window.length_ps else None,
            "idle_ps": window.length_ps - busy_ps,
            **_busy_parts(context.ledger, index),
            "activity": activity,
            "unknown_direction_count": int(columns.unknown_direction[inside].sum()),
        }
    return DeviceTimeRow(
        *trace.identity(index),
        kind=device.kind,
        model=device.model,
        status=status,
        window_ps=window.length_ps if window else None,
        **known,
    )


def _busy_parts(ledger: Ledger, device: int) -> dict[str, int]:
    """The parts of the busy time of a device."""
    rows = ledger.columns.chosen(ledger.rows_of(device))
    sums = totals(
        rows.state, np.where(rows.activity == IDLE, 0, rows.duration_ps), len(State)
    ).tolist()
    work = {part: sum(sums[state] for state in states) for part, states in WORK.items()}
    return {**work, "waiting_ps": sum(sums) - sum(work.values())}


def in_windows(context: Context) -> dict[int, dict[str, ActivityTime]]:
    """By device whose host recorded device events what it did in its window, by class; `Context.once` keeps it."""
    return {device: _in_window(context, device) for device in context.ledger.devices}


def _in_window(context: Context, device: int) -> dict[str, ActivityTime]:
    columns, own = context.trace.device_columns, context.trace.device_columns.rows_of(device)
    window = context.selection.windows[context.trace.device_list[device].host]
    inside = rows_in(columns.start_ps[own], columns.end_ps[own], window) + own.start
    class_, size = columns.class_[inside], columns.bytes[inside]
    ledger = context.ledger
    rows, gpu_ps = ledger.rows_of(device), ledger.gpu_ps_by_device[device]
    activity, lasted_ps = ledger.columns.activity[rows], ledger.columns.duration_ps[rows]
    exposed, in_steps = (
        totals(activity, of_rows, IDLE + 1).tolist()
        for of_rows in (lasted_ps, lasted_ps * ledger.counts[rows])
    )
    found = {}
    for number, (key, spans) in enumerate(
        zip(CLASS_KEYS, context.activities[device].by_class, strict=True)
    ):
        sizes, busy_ps = size[class_ == number], covered_ps(spans, window)
        known = sizes[sizes != UNKNOWN_BYTES]
        # No false zero where there are copies and no size was recorded.
        is_known = key in COPIES and (known.size or not sizes.size)
        whole = int(known.sum())
        found[key] = ActivityTime(
            count=sizes.size,
            bytes=whole if is_known else None,
            busy_ps=busy_ps,
            exposed_ps=exposed[number],
            exposed_ratio=in_steps[number] / gpu_ps if gpu_ps else None,
            bytes_per_second=rate_of(whole, busy_ps) if known.size == sizes.size else None,
        )
    return found


def rate_of(size: Fraction | int, ps: int) -> int | None:
    """Bytes in a second, rounded down; None without any, and where damaged numbers make more of it than 64 bits hold."""
    rate = size * PS_PER_S // ps if size and ps else None
    return None if rate is not None and rate > LARGEST else rate


# What the processes ran in: a trace does not hold this; `traceview capture` writes it into a sidecar beside the trace


class HostEnvironment(RecordedEnvironment, frozen=True, kw_only=True):
    """The environment of one process, as recorded.

    Attributes:
        host: Name of the host.
    """

    host: Hostname


class Environment(Record, frozen=True):
    """The environments of the processes.

    Attributes:
        hosts: Hosts with a sidecar.
        unknown: Hosts without a sidecar.
    """

    hosts: tuple[HostEnvironment, ...]
    unknown: tuple[Hostname, ...]


def environment_of(trace: Trace) -> Environment | Skipped:
    """The environments of all hosts with a sidecar."""
    hosts = tuple(
        HostEnvironment(**asdict(host.sidecar.environment), host=host.name)
        for host in trace.hosts
        if host.sidecar is not None
    )
    if not hosts:
        return Skipped("no sidecar: only traceview capture writes one beside the trace")
    return Environment(hosts, tuple(host.name for host in trace.hosts if host.sidecar is None))
