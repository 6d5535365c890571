"""Which of the visible devices took part in the training, and which did nothing?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from traceview.analyses.activity import DeviceActivity
from traceview.analyses.finding import Evidence, Finding, listed
from traceview.analyses.selection import Selection
from traceview.trace.model import Trace
from traceview.xplane.planes import ActivityClass

if TYPE_CHECKING:
    from traceview.analyses.device_time import DeviceTime, DeviceTimeRow

MARGINAL_RATIO: Final = 0.20
"""A device that computes less than this of the busiest one is marginal (METRICS: status)."""

MEMORY_HELD_BYTES: Final = 256_000_000
"""Memory held by a device without an event that is worth a warning (METRICS: memory-held-idle-gpu)."""

CRITICAL_UNUSED_RATIO: Final = 0.5
"""Unused GPUs are critical from this share of the visible ones on (METRICS: unused-gpu)."""


def statuses(trace: Trace, activities: Sequence[DeviceActivity]) -> list[str]:
    """The status of each device of the roster, judged over the whole recording.

    active; marginal (computes less than a fifth of the busiest device); copy_only (copies or fills, no
    kernel); memory_only (its allocator holds bytes, no event); empty.
    """
    compute_ps = [a.by_class[ActivityClass.COMPUTE].length for a in activities]
    busiest = max(compute_ps, default=0)
    found = []
    for index, device in enumerate(trace.roster):
        rows = trace.device_columns.rows_of(index)
        classes = trace.device_columns.class_[rows]
        if classes.size == 0:
            found.append("memory_only" if device.memory_held_bytes else "empty")
        elif (classes >= ActivityClass.H2D).all():
            found.append("copy_only")
        elif compute_ps[index] < MARGINAL_RATIO * busiest:
            found.append("marginal")
        else:
            found.append("active")
    return found


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


def _unused(
    unused: list[DeviceTimeRow], gpus: list[DeviceTimeRow], selection: Selection
) -> Finding:
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
        evidence=tuple(Evidence("status", row.status, None, row.device) for row in unused),
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
    share = (row.compute_ps or 0) / (busiest.compute_ps or 1)
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
        evidence=(
            Evidence("compute_ps", row.compute_ps or 0, None, row.device),
            Evidence("compute_ratio_to_busiest", share, MARGINAL_RATIO, row.device),
        ),
        devices=(row.device,),
    )
