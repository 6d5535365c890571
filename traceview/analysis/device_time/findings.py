"""Which of the visible devices took part in the training, and which did nothing?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.analysis.activity import DeviceActivity
from traceview.analysis.base import Evidence, Finding
from traceview.analysis.device_time.result import (
    MARGINAL_RATIO,
    DeviceTime,
    DeviceTimeRow,
    busiest_peers,
)
from traceview.analysis.selection import Selection
from traceview.document import numbers
from traceview.trace.model import Trace
from traceview.trace.op_phase import least_replica_counts
from traceview.xplane.planes import ActivityClass

MEMORY_HELD_BYTES: Final = 256_000_000
"""Memory held by a device without an event that is worth a warning (METRICS: memory-held-idle-gpu)."""

CRITICAL_UNUSED_RATIO: Final = 0.5
"""Unused GPUs are critical from this share of the visible ones on (METRICS: unused-gpu)."""

_WITHOUT_EVENT: Final = ("empty", "memory_only")


def diagnose(
    trace: Trace,
    result: DeviceTime,
    selection: Selection,
    activities: Sequence[DeviceActivity],
) -> list[Finding]:
    """Devices that were visible and took no proper part in the training; `activities` by device index."""
    gpus = [row for row in result.devices if row.kind in ("gpu", "tpu")]
    # Where no device of a host recorded an event its tracer failed: that is the capture's finding.
    traced = {row.host for row in gpus if row.status not in _WITHOUT_EVENT}
    gpus = [row for row in gpus if row.host in traced]
    found = []
    unused = [row for row in gpus if row.status in _WITHOUT_EVENT]
    if unused:
        ran = [row for row in gpus if row.status not in (*_WITHOUT_EVENT, "copy_only")]
        unseen = _replicas_unseen(trace, {row.host for row in unused}, len(ran))
        found.append(_unused(unused, gpus, selection, unseen, len(ran)))
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
    compute_ps = [activity.by_class[ActivityClass.COMPUTE].length for activity in activities]
    busiest = busiest_peers(trace, compute_ps)
    index_of = {trace.device_key(index): index for index in range(len(trace.device_list))}
    for row in gpus:
        if row.status == "marginal":
            index = index_of[row.device]
            most = busiest[index]
            found.append(
                _marginal(row.device, trace.device_key(most), compute_ps[index], compute_ps[most])
            )
    return found


def _replicas_unseen(trace: Trace, hosts: set[str], ran_count: int) -> int | None:
    """At least so many replicas the names of ops show, if more than GPUs ran kernels; None where they do not."""
    counts = least_replica_counts(trace)
    known = [counts.get(i, 1) for i, host in enumerate(trace.hosts) if host.name in hosts]
    return known[0] if len(known) == 1 and known[0] > ran_count else None


def _unused(
    unused: list[DeviceTimeRow],
    gpus: list[DeviceTimeRow],
    selection: Selection,
    replica_count: int | None,
    ran_count: int,
) -> Finding:
    share = len(unused) / len(gpus)
    if replica_count is not None:
        return _unseen(unused, share, replica_count, ran_count)
    step = selection.median_step_ps
    # Only the time in which some GPU works can be shared out.
    saved_ratio = share * max(row.busy_ratio or 0.0 for row in gpus)
    return Finding(
        code="unused-gpu",
        severity="critical" if share >= CRITICAL_UNUSED_RATIO else "warning",
        title=f"{len(unused)} of {len(gpus)} visible GPUs recorded no event",
        explanation=(
            f"{numbers.listed([row.device for row in unused])} did nothing in the whole recording while other GPUs "
            "of the job worked. The cost is a bound: what would be saved if the busy time of the busiest GPU "
            "were shared evenly with those that did nothing."
        ),
        advice=(
            "Let the strategy use them: tf.distribute.MirroredStrategy() takes every visible GPU unless "
            "devices= or CUDA_VISIBLE_DEVICES says otherwise; print strategy.num_replicas_in_sync. "
            "If they are meant to be free, hide them with CUDA_VISIBLE_DEVICES."
        ),
        confidence="high",
        confidence_reason="the tracer recorded other GPUs of the same process",
        evidence=tuple(Evidence("status", row.status, None, row.device) for row in unused),
        devices=tuple(row.device for row in unused),
        cost_ps_per_step=None if step is None else int(step * saved_ratio),
        cost_ratio=saved_ratio,
    )


def _unseen(
    unused: list[DeviceTimeRow], share: float, replica_count: int, ran_count: int
) -> Finding:
    """GPUs without an event, though the job has more replicas than GPUs that ran kernels."""
    names = numbers.listed([row.device for row in unused])
    return Finding(
        code="unused-gpu",
        severity="critical" if share >= CRITICAL_UNUSED_RATIO else "warning",
        title=f"{len(unused)} of {round(len(unused) / share)} visible GPUs recorded no event",
        explanation=(
            f"{names} did nothing in the whole recording. The strategy does use more GPUs than worked in it: names "
            f"of ops show at least {replica_count} replicas, and {numbers.plural(ran_count, 'GPU')} ran kernels. So the "
            "other replicas had their turn before or after, or did not get to it; what that costs this recording "
            "cannot show."
        ),
        advice=(
            "Record several whole steps: traceview capture --steps A:B. If GPUs still have nothing to do then, look "
            "at what their replicas wait for (traceview gaps), and whether the global batch reaches all of them."
        ),
        confidence="medium",
        confidence_reason="replicas are known by the names of ops; which GPU each has is not recorded",
        evidence=(
            Evidence("least_replica_count", replica_count, ran_count, "names of ops"),
            *(Evidence("status", row.status, None, row.device) for row in unused),
        ),
        devices=tuple(row.device for row in unused),
    )


def _memory_held(holding: list[DeviceTimeRow]) -> Finding:
    total = sum(row.memory_held_bytes or 0 for row in holding)
    return Finding(
        code="memory-held-idle-gpu",
        severity="warning",
        title=f"{numbers.size(total)} of memory held on {numbers.plural(len(holding), 'GPU')} that ran nothing",
        explanation=(
            f"TensorFlow's allocator holds memory on {numbers.listed([row.device for row in holding])}, "
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
    memory = f" TensorFlow holds {numbers.size(held)} of memory there." if held else ""
    evidence = [Evidence("status", row.status, None, row.device) for row in copying]
    evidence += [
        Evidence("memory_held_bytes", row.memory_held_bytes, MEMORY_HELD_BYTES, row.device)
        for row in copying
        if row.memory_held_bytes is not None and row.memory_held_bytes >= MEMORY_HELD_BYTES
    ]
    return Finding(
        code="copy-only-gpu",
        severity="warning",
        title=f"{numbers.listed([row.device for row in copying])} copied data and ran no kernel",
        explanation=(
            "Nothing but copies or fills was recorded there in the whole recording." + memory
        ),
        advice=(
            "Either a replica did not reach its step inside the capture (capture more steps), or data is "
            "placed where no replica uses it: check the devices of the strategy and of tf.device scopes."
        ),
        confidence="medium",
        confidence_reason="kernels may have run outside the capture",
        evidence=tuple(evidence),
        devices=tuple(row.device for row in copying),
    )


def _marginal(device: str, busiest: str, compute_ps: int, most_ps: int) -> Finding:
    share = compute_ps / most_ps
    return Finding(
        code="marginal-gpu",
        severity="warning",
        title=f"{device} computes {numbers.share(share)} of what {busiest} does",
        explanation=(
            "All replicas of a mirrored step should compute about the same. This one runs only a small "
            "part of it."
        ),
        advice=(
            "Check that the global batch divides into all replicas, that the step runs under "
            "strategy.run, and that no tf.device pins the model to one GPU."
        ),
        confidence="high",
        confidence_reason="judged over the whole recording",
        evidence=(
            Evidence("compute_ps", compute_ps, None, device),
            Evidence("compute_ratio_to_busiest", share, MARGINAL_RATIO, device),
        ),
        devices=(device,),
    )
