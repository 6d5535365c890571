"""Finds visible devices that took no proper part in the training: unused, copying only, marginal, holding memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from traceview.analysis.activity import DeviceActivity
from traceview.analysis.base import Evidence, Finding, Rule, Severity
from traceview.analysis.cost import Cost
from traceview.analysis.device_time.result import (
    MARGINAL_RATIO,
    DeviceTime,
    DeviceTimeRow,
    busiest_peers,
)
from traceview.analysis.selection import Selection
from traceview.document import numbers
from traceview.trace.model import Trace
from traceview.trace.replica_names import ReplicaNames
from traceview.xplane.planes import ActivityClass

UNUSED_GPU: Final = Rule(
    "unused-gpu",
    is_of_absence=True,
    starts_at="GPUs without any event beside GPUs that ran kernels; critical from {critical_ratio} of the visible GPUs",
    limits={"critical_ratio": 0.5},
    severities=("warning", "critical"),
    meaning="A GPU that the process can see recorded neither a kernel nor a copy in the whole recording.",
    evidence="status of the device in results.device_time",
    advice=(
        "Let the strategy use them: tf.distribute.MirroredStrategy() takes every visible GPU unless "
        "devices= or CUDA_VISIBLE_DEVICES says otherwise; print strategy.num_replicas_in_sync. "
        "To keep them free for other jobs, hide them with CUDA_VISIBLE_DEVICES."
    ),
    example="5 of 8 visible GPUs recorded no event",
    explains=("single-gpu-gradients",),
    jax_advice=(
        "Use them: place the arrays over all of jax.devices() with a jax.sharding.Mesh and NamedSharding. To "
        "keep them free for other jobs, hide them with CUDA_VISIBLE_DEVICES."
    ),
)

COPY_ONLY_GPU: Final = Rule(
    "copy-only-gpu",
    is_of_absence=True,
    starts_at="a GPU with copies and no kernel",
    meaning=(
        "Only copies or fills were recorded on the GPU and no kernel: either its replica did not reach its step "
        "within the capture, or data is placed where no replica uses it."
    ),
    evidence="status of the device, and the memory it holds",
    advice=(
        "Capture more steps. If the GPU still runs no kernel, check the devices of the strategy and of "
        "tf.device scopes."
    ),
    example="GPU:1 copied data and ran no kernel",
    jax_advice="Record more steps. If the GPU still runs no kernel, check the mesh and the shardings of the arrays.",
)

MARGINAL_GPU: Final = Rule(
    "marginal-gpu",
    is_of_absence=True,
    starts_at="compute below {marginal_ratio} of the busiest device of its kind",
    limits={"marginal_ratio": MARGINAL_RATIO},
    meaning="Replicas of a mirrored step do equal work; this device computes far less than another.",
    evidence="compute_ps of the device over that of the busiest one, whole recording",
    advice=(
        "Check that the global batch divides into all replicas, that the step runs under "
        "strategy.run, and that no tf.device pins the model to one GPU."
    ),
    example="GPU:1 computes 12.5% of what GPU:0 does",
    explains=("straggler-gpu", "serial-gpus"),
    jax_advice="Check that the shardings divide the batch over all devices of the mesh.",
)

MEMORY_HELD_IDLE_GPU: Final = Rule(
    "memory-held-idle-gpu",
    is_of_absence=True,
    starts_at="a GPU without any event on which TensorFlow holds at least {held_bytes}",
    limits={"held_bytes": 256_000_000},
    meaning="TensorFlow's allocator holds memory on a GPU on which nothing ran, so no other job can use it.",
    evidence="memory_held_bytes of the device",
    advice=(
        "Create the strategy over the GPUs that should train, and call "
        "tf.config.set_visible_devices([...], 'GPU') or set CUDA_VISIBLE_DEVICES for the others."
    ),
    example="4.01 GB of memory held on 1 GPU that ran nothing",
    jax_advice=(
        "Hide GPUs that should not train with CUDA_VISIBLE_DEVICES, or set "
        "XLA_PYTHON_CLIENT_PREALLOCATE=false."
    ),
)

RULES: Final = (UNUSED_GPU, COPY_ONLY_GPU, MARGINAL_GPU, MEMORY_HELD_IDLE_GPU)

_WITHOUT_EVENT: Final = ("empty", "memory_only")


def diagnose(
    trace: Trace,
    result: DeviceTime,
    selection: Selection,
    activities: Sequence[DeviceActivity],
) -> Iterator[Finding]:
    """Devices that were visible and took no proper part in the training; `activities` by device index."""
    gpus = [row for row in result.devices if row.kind in ("gpu", "tpu")]
    # Where no device of a host recorded an event its tracer failed: that is the capture's finding.
    traced = {row.host for row in gpus if row.status not in _WITHOUT_EVENT}
    gpus = [row for row in gpus if row.host in traced]
    unused = [row for row in gpus if row.status in _WITHOUT_EVENT]
    if unused:
        yield _unused(trace, unused, gpus, selection)
    least_bytes = MEMORY_HELD_IDLE_GPU.limits["held_bytes"]
    holding = [
        row
        for row in unused
        if row.status == "memory_only" and (row.memory_held_bytes or 0) >= least_bytes
    ]
    if holding:
        yield _memory_held(holding)
    copying = [row for row in gpus if row.status == "copy_only"]
    if copying:
        yield _copy_only(copying)
    yield from _marginal(trace, gpus, activities)


def _unused(
    trace: Trace, unused: list[DeviceTimeRow], gpus: list[DeviceTimeRow], selection: Selection
) -> Finding:
    ratio = len(unused) / len(gpus)
    is_critical = ratio >= UNUSED_GPU.limits["critical_ratio"]
    severity: Severity = "critical" if is_critical else "warning"
    title = f"{len(unused)} of {len(gpus)} visible GPUs recorded no event"
    devices = [row.device for row in unused]
    statuses = [_status_evidence(row) for row in unused]
    computing_count = sum(row.status not in (*_WITHOUT_EVENT, "copy_only") for row in gpus)
    replica_count = _least_replica_count(trace, {row.host for row in unused})
    if replica_count is not None and replica_count > computing_count:
        return UNUSED_GPU.finding(
            title,
            [
                Evidence("least_replica_count", replica_count, computing_count, "names of ops"),
                *statuses,
            ],
            severity=severity,
            confidence=(
                "medium",
                "replicas are known by the names of ops; which GPU each has is not recorded",
            ),
            explanation=(
                f"{numbers.listed(devices)} did nothing in the whole recording, but the strategy uses more GPUs than "
                f"worked in it: names of ops show at least {replica_count} replicas, and "
                f"{numbers.plural(computing_count, 'GPU')} ran kernels. The other replicas ran before or after the "
                "recording, or did not start; the recording cannot show what that costs."
            ),
            advice=(
                "Record several whole steps: traceview capture --steps 100:110. If GPUs are still unused then, look "
                "at what their replicas wait for (traceview gaps), and whether the global batch reaches all of them."
            ),
            devices=devices,
        )
    step_ps = selection.mean_step_ps
    # Only the time in which some GPU works can be shared out.
    saved_ratio = ratio * max(row.busy_ratio or 0.0 for row in gpus)
    return UNUSED_GPU.finding(
        title,
        statuses,
        severity=severity,
        confidence=("high", "the tracer recorded other GPUs of the same process"),
        explanation=(
            f"{numbers.listed(devices)} did nothing in the whole recording while other GPUs "
            "of the job worked. The cost is an upper bound: what would be saved if the busy time of the busiest GPU "
            "were shared evenly with the unused GPUs."
        ),
        devices=devices,
        cost=(
            Cost.of_window(saved_ratio)
            if step_ps is None
            else selection.cost("mean", int(step_ps * saved_ratio))
        ).as_bound("upper"),
    )


def _least_replica_count(trace: Trace, hosts: set[str]) -> int | None:
    """How many replicas the names of ops show at least; None unless `hosts` is one host."""
    counts = ReplicaNames(trace).least_counts
    known = [counts.get(i, 1) for i, host in enumerate(trace.hosts) if host.name in hosts]
    return known[0] if len(known) == 1 else None


def _status_evidence(row: DeviceTimeRow) -> Evidence:
    return Evidence("status", row.status, None, row.device)


def _held_evidence(row: DeviceTimeRow) -> Evidence:
    limit = MEMORY_HELD_IDLE_GPU.limits["held_bytes"]
    return Evidence("memory_held_bytes", row.memory_held_bytes or 0, limit, row.device)


def _memory_held(holding: list[DeviceTimeRow]) -> Finding:
    total = sum(row.memory_held_bytes or 0 for row in holding)
    return MEMORY_HELD_IDLE_GPU.finding(
        f"{numbers.size(total)} of memory held on {numbers.plural(len(holding), 'GPU')} that ran nothing",
        [_held_evidence(row) for row in holding],
        confidence=("high", "recorded by the allocator itself"),
        devices=[row.device for row in holding],
    )


def _copy_only(copying: list[DeviceTimeRow]) -> Finding:
    devices = [row.device for row in copying]
    total = sum(row.memory_held_bytes or 0 for row in copying)
    memory = f" TensorFlow holds {numbers.size(total)} of memory there." if total else ""
    least_bytes = MEMORY_HELD_IDLE_GPU.limits["held_bytes"]
    holding = [row for row in copying if (row.memory_held_bytes or 0) >= least_bytes]
    return COPY_ONLY_GPU.finding(
        f"{numbers.listed(devices)} copied data and ran no kernel",
        [*map(_status_evidence, copying), *map(_held_evidence, holding)],
        confidence=("medium", "kernels may have run outside the capture"),
        explanation=COPY_ONLY_GPU.meaning + memory,
        devices=devices,
    )


def _marginal(
    trace: Trace, gpus: Sequence[DeviceTimeRow], activities: Sequence[DeviceActivity]
) -> Iterator[Finding]:
    compute_ps = [activity.by_class[ActivityClass.COMPUTE].length for activity in activities]
    busiest = busiest_peers(trace, compute_ps)
    index_of = {trace.device_key(index): index for index in range(len(trace.device_list))}
    for row in gpus:
        if row.status != "marginal":
            continue
        index = index_of[row.device]
        peer = busiest[index]
        ratio = compute_ps[index] / compute_ps[peer]
        limit = MARGINAL_GPU.limits["marginal_ratio"]
        yield MARGINAL_GPU.finding(
            f"{row.device} computes {numbers.share(ratio)} of what {trace.device_key(peer)} does",
            [
                Evidence("compute_ps", compute_ps[index], None, row.device),
                Evidence("compute_ratio_to_busiest", ratio, limit, row.device),
            ],
            confidence=("high", "judged over the whole recording"),
            devices=[row.device],
        )
