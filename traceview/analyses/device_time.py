"""How busy was each device, with what, and which devices did nothing?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from traceview.analyses.activity import DeviceActivity, one_span
from traceview.analyses.finding import Evidence, Finding, listed
from traceview.analyses.selection import Selection, rows_in
from traceview.intervals import union
from traceview.trace.model import UNKNOWN_BYTES, Trace
from traceview.trace.windows import Window
from traceview.xplane.planes import ActivityClass

MARGINAL_RATIO: Final = 0.20
"""A device that computes less than this of the busiest one is marginal (METRICS: status)."""

MEMORY_HELD_BYTES: Final = 256_000_000
"""Memory held by a device without an event that is worth a warning (METRICS: memory-held-idle-gpu)."""

CRITICAL_UNUSED_RATIO: Final = 0.5
"""Unused GPUs are critical from this share of the visible ones on (METRICS: unused-gpu)."""


@dataclass(frozen=True)
class DeviceTimeRow:
    """One device over its host's window. Every `_ps` is a union over its streams, never a sum.

    `device`: `GPU:3`, with several hosts `host/GPU:3`. `status`: active, marginal (computes less than a
    fifth of the busiest device), copy_only (copies or fills, no kernel), memory_only (its allocator holds
    bytes, no event), empty; judged over the whole recording. The exposed parts are what a class adds to
    those before it, in the order of the fields, so that compute, exposed parts and idle sum to `window_ps`.
    `total_ps`: the union of each class alone. Numbers are None where the tracer recorded no device of the
    host. Counts and bytes are of the events that overlap the window; `unknown_direction_count` counts the
    copies taken as d2d because nothing tells their direction.
    """

    host: str
    device: str
    ordinal: int
    kind: str
    model: str | None
    status: str
    window_ps: int | None
    busy_ps: int | None
    busy_ratio: float | None
    compute_ps: int | None
    compute_ratio: float | None
    exposed_collective_ps: int | None
    exposed_h2d_ps: int | None
    exposed_d2h_ps: int | None
    exposed_d2d_ps: int | None
    exposed_memset_ps: int | None
    idle_ps: int | None
    total_ps: dict[str, int] | None
    kernel_count: int | None
    collective_count: int | None
    copy_count: int | None
    memset_count: int | None
    h2d_bytes: int | None
    d2h_bytes: int | None
    d2d_bytes: int | None
    unknown_direction_count: int | None
    opaque_count: int | None
    memory_held_bytes: int | None
    memory_peak_bytes: int | None


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


def compute(
    trace: Trace, selection: Selection, activities: Sequence[DeviceActivity]
) -> DeviceTime:
    """Account for every picosecond of each device in its window; `activities` by roster index."""
    statuses = _statuses(trace, activities)
    hosts_with_events = {
        device.host
        for index, device in enumerate(trace.roster)
        if (rows := trace.device_columns.rows_of(index)).stop > rows.start
    }
    rows = [
        _row(trace, index, statuses[index], selection, activities[index])
        if device.host in hosts_with_events
        else _without_numbers(trace, index, statuses[index], selection)
        for index, device in enumerate(trace.roster)
    ]
    order = sorted(
        range(len(rows)), key=lambda i: (trace.roster[i].host, rows[i].kind, rows[i].ordinal)
    )
    return DeviceTime(tuple(rows[i] for i in order), _shared(trace, selection))


def _statuses(trace: Trace, activities: Sequence[DeviceActivity]) -> list[str]:
    compute_ps = [a.by_class[ActivityClass.COMPUTE].length for a in activities]
    busiest = max(compute_ps, default=0)
    statuses = []
    for index, device in enumerate(trace.roster):
        rows = trace.device_columns.rows_of(index)
        classes = trace.device_columns.class_[rows]
        if classes.size == 0:
            statuses.append("memory_only" if device.memory_held_bytes else "empty")
        elif (classes >= ActivityClass.H2D).all():
            statuses.append("copy_only")
        elif compute_ps[index] < MARGINAL_RATIO * busiest:
            statuses.append("marginal")
        else:
            statuses.append("active")
    return statuses


def _without_numbers(
    trace: Trace, index: int, status: str, selection: Selection
) -> DeviceTimeRow:
    device = trace.roster[index]
    window = selection.window_of_device(trace, index)
    known = {
        "host": trace.hosts[device.host].name,
        "device": trace.device_key(index),
        "ordinal": device.ordinal,
        "kind": device.kind,
        "model": device.model,
        "status": status,
        "window_ps": None if window is None else window.length_ps,
        "memory_held_bytes": device.memory_held_bytes,
        "memory_peak_bytes": device.memory_peak_bytes,
    }
    return DeviceTimeRow(**{key: known.get(key) for key in DeviceTimeRow.__dataclass_fields__})  # type: ignore[arg-type]


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
    counts = _counts(trace, index, window)
    return replace(
        bare,
        busy_ps=busy,
        busy_ratio=_ratio(busy, length),
        compute_ratio=_ratio(parts.compute_ps, length),
        total_ps={
            one.name.lower(): int(activity.by_class[one].within(window.start_ps, window.end_ps))
            for one in ActivityClass
        },
        **vars(parts),
        **counts,
    )


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _counts(trace: Trace, index: int, window: Window) -> dict[str, int | None]:
    columns, rows = trace.device_columns, trace.device_columns.rows_of(index)
    inside = rows_in(columns.start_ps[rows], columns.end_ps[rows], window) + rows.start
    class_ = columns.class_[inside]
    count_of = np.bincount(class_, minlength=len(ActivityClass))
    copies = (ActivityClass.H2D, ActivityClass.D2H, ActivityClass.D2D)
    result: dict[str, int | None] = {
        "kernel_count": int(count_of[ActivityClass.COMPUTE]),
        "collective_count": int(count_of[ActivityClass.COLLECTIVE]),
        "copy_count": int(sum(count_of[one] for one in copies)),
        "memset_count": int(count_of[ActivityClass.MEMSET]),
        "unknown_direction_count": int(columns.unknown_direction[inside].sum()),
        "opaque_count": int(columns.opaque[inside].sum()),
    }
    for one in copies:
        sizes = columns.bytes[inside][class_ == one]
        known = sizes[sizes != UNKNOWN_BYTES]
        # Copies whose size was not recorded: no number rather than a false zero.
        result[f"{one.name.lower()}_bytes"] = int(known.sum()) if known.size or not sizes.size else None
    return result


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


def diagnose(result: DeviceTime, selection: Selection) -> list[Finding]:
    """Devices that were visible and took no proper part in the training."""
    gpus = [row for row in result.devices if row.kind in ("gpu", "tpu")]
    if all(row.status in ("empty", "memory_only") for row in gpus):
        return []
    found = []
    unused = [row for row in gpus if row.status in ("empty", "memory_only")]
    if unused:
        found.append(_unused(unused, gpus, selection))
    holding = [
        row
        for row in unused
        if row.status == "memory_only" and (row.memory_held_bytes or 0) >= MEMORY_HELD_BYTES
    ]
    if holding:
        found.append(_memory_held(holding))
    copying = [row for row in gpus if row.status == "copy_only"]
    if copying:
        found.append(_copy_only(copying))
    found += [_marginal(row, gpus) for row in gpus if row.status == "marginal"]
    return found


def _unused(unused: list[DeviceTimeRow], gpus: list[DeviceTimeRow], selection: Selection) -> Finding:
    share = len(unused) / len(gpus)
    step = selection.median_step_ps
    used = len(gpus) - len(unused)
    return Finding(
        code="unused-gpu",
        severity="critical" if share >= CRITICAL_UNUSED_RATIO else "warning",
        title=f"{len(unused)} of {len(gpus)} visible GPUs recorded no event",
        explanation=(
            f"{listed([row.device for row in unused])} did nothing in the whole recording while other GPUs "
            "of the job worked. The cost is a bound: the share of a step that would be saved if the same "
            "work were spread evenly over all visible GPUs."
        ),
        advice=(
            "Let the strategy use them: tf.distribute.MirroredStrategy() takes every visible GPU unless "
            "devices= or CUDA_VISIBLE_DEVICES says otherwise; print strategy.num_replicas_in_sync. "
            "If they are meant to be free, hide them with CUDA_VISIBLE_DEVICES."
        ),
        confidence="high" if used else "low",
        confidence_reason="the tracer recorded other GPUs of the same process",
        evidence=tuple(
            Evidence("status", row.status, None, row.device) for row in unused
        ),
        devices=tuple(row.device for row in unused),
        cost_ps_per_step=None if step is None else step * len(unused) // len(gpus),
        cost_ratio=share,
    )


def _memory_held(holding: list[DeviceTimeRow]) -> Finding:
    total = sum(row.memory_held_bytes or 0 for row in holding)
    return Finding(
        code="memory-held-idle-gpu",
        severity="warning",
        title=f"{total / 1e9:.1f} GB of memory held on {len(holding)} GPU(s) that ran nothing",
        explanation=(
            f"TensorFlow's allocator holds memory on {listed([row.device for row in holding])}, "
            "but no kernel and no copy was recorded there."
        ),
        advice=(
            "Create the strategy over the GPUs that should train, and call "
            "tf.config.set_visible_devices([...], 'GPU') or set CUDA_VISIBLE_DEVICES for the others."
        ),
        confidence="high",
        confidence_reason="the allocator's own events say so",
        evidence=tuple(
            Evidence("memory_held_bytes", row.memory_held_bytes or 0, MEMORY_HELD_BYTES, row.device)
            for row in holding
        ),
        devices=tuple(row.device for row in holding),
    )


def _copy_only(copying: list[DeviceTimeRow]) -> Finding:
    held = sum(row.memory_held_bytes or 0 for row in copying)
    memory = f" They hold {held / 1e9:.1f} GB of memory." if held else ""
    evidence = [Evidence("status", row.status, None, row.device) for row in copying]
    evidence += [
        Evidence("memory_held_bytes", row.memory_held_bytes, MEMORY_HELD_BYTES, row.device)
        for row in copying
        if row.memory_held_bytes is not None and row.memory_held_bytes >= MEMORY_HELD_BYTES
    ]
    return Finding(
        code="copy-only-gpu",
        severity="warning",
        title=f"{listed([row.device for row in copying])} received copies and ran no kernel",
        explanation=(
            "Data was copied to or from these GPUs, and nothing was computed with it in the whole recording."
            + memory
        ),
        advice=(
            "Either a replica did not reach its step inside the capture (capture more steps), or data is "
            "placed there that no replica uses: check the devices of the strategy and of tf.device scopes."
        ),
        confidence="medium",
        confidence_reason="kernels may have run outside the capture",
        evidence=tuple(evidence),
        devices=tuple(row.device for row in copying),
    )


def _marginal(row: DeviceTimeRow, gpus: list[DeviceTimeRow]) -> Finding:
    busiest = max(gpus, key=lambda other: other.compute_ps or 0)
    share = _ratio(row.compute_ps or 0, busiest.compute_ps or 0)
    return Finding(
        code="marginal-gpu",
        severity="warning",
        title=f"{row.device} computes {share:.1%} of what {busiest.device} does",
        explanation=(
            "All replicas of a mirrored step should compute about the same. This one runs only a small "
            "part of it."
        ),
        advice=(
            "Check that the global batch divides into all replicas, that the step runs under "
            "strategy.run, and that no tf.device pins the model to one GPU."
        ),
        confidence="high",
        confidence_reason="both devices were recorded over the same window",
        evidence=(Evidence("compute_ps", row.compute_ps or 0, None, row.device),
                  Evidence("compute_ratio_to_busiest", share, MARGINAL_RATIO, row.device)),
        devices=(row.device,),
    )
