"""What does each finding mean? The text behind `traceview explain`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class FindingKind:
    """One code: where it starts, its severity, what it means, the evidence, the advice, an example title."""

    code: str
    starts_at: str
    severity: str
    meaning: str
    evidence: str
    advice: str
    example: str


_KINDS: Final = (
    FindingKind(
        "no-gpu-plane",
        "a host without any device plane, though GPUs were expected; on a plain CPU run it is only said",
        "critical; info on a CPU run",
        "The GPU tracer did not start, so the trace says nothing about GPUs. TensorFlow leaves no other sign "
        "of this in the file. On a run without GPUs the replicas on the host are reported instead.",
        "no plane /device:GPU:n, while threads are named after GPUs or the profiler reported an error",
        "Check that CUPTI loads, that the driver does not restrict profiling to administrators, and that no "
        "other profiler (nsys, Nsight Compute, DCGM) is attached.",
        "no GPU plane was recorded on host0, though GPUs were in use",
    ),
    FindingKind(
        "gpu-planes-empty",
        "GPU planes, none with an event",
        "critical",
        "The tracer listed the GPUs and recorded nothing on any: nothing ran there, or every event was lost.",
        "planes /device:GPU:n without activity on all of them",
        "Capture while steps run and for more than one step; look for CUPTI errors in the log.",
        "the GPU planes of host0 hold no event",
    ),
    FindingKind(
        "unused-gpu",
        "status empty or memory_only beside active devices",
        "critical from half of the visible GPUs on, else warning",
        "A GPU that the process can see recorded neither kernel nor copy in the whole recording.",
        "status of the device in results.device_time",
        "Let MirroredStrategy take all GPUs, or hide those that should stay free with CUDA_VISIBLE_DEVICES.",
        "5 of 8 visible GPUs recorded no event",
    ),
    FindingKind(
        "copy-only-gpu",
        "status copy_only",
        "warning",
        "Data went to or from the GPU and no kernel ran on it: a replica that did not get to its step in the "
        "capture, or data placed where nothing uses it.",
        "status of the device, and the memory it holds",
        "Capture more steps; check which devices the strategy uses and what tf.device scopes pin.",
        "GPU:1 copied data and ran no kernel",
    ),
    FindingKind(
        "marginal-gpu",
        "compute below 20 % of the busiest device's",
        "warning",
        "Replicas of a mirrored step do equal work; this device does far less than another.",
        "compute_ps of the device over that of the busiest one, whole recording",
        "Check the global batch size, that the step runs under strategy.run, and tf.device scopes.",
        "GPU:1 computes 12.5% of what GPU:0 does",
    ),
    FindingKind(
        "memory-held-idle-gpu",
        "status memory_only with at least 256 MB held",
        "warning",
        "TensorFlow's allocator holds memory on a GPU on which nothing ran, so no other job can use it.",
        "memory_held_bytes of the device",
        "Set CUDA_VISIBLE_DEVICES or tf.config.set_visible_devices to the GPUs that train.",
        "4.01 GB of memory held on 1 GPU that ran nothing",
    ),
    FindingKind(
        "events-dropped",
        "any",
        "warning",
        "The tracer's buffers were full, so times and counts are too low from that moment on.",
        "the tracer's warning in the trace",
        "Capture fewer steps.",
        "the tracer dropped 1200 events",
    ),
    FindingKind(
        "profiler-error",
        "any",
        "warning",
        "The profiler wrote an error into the trace; what it could not record is missing.",
        "the message",
        "Read the message: missing privileges and a second profiler are the usual reasons.",
        "the profiler reported 1 error",
    ),
    FindingKind(
        "damaged-file",
        "any",
        "warning",
        "A trace file is cut off or damaged. What is readable was used, and the report is incomplete.",
        "file and byte offset",
        "Copy the file again, or let the profiler finish before copying.",
        "the trace of host1 is damaged in 1 place; what is readable was used",
    ),
    FindingKind(
        "duplicate-host-file",
        "any",
        "warning",
        "Two host files hold the same bytes. They are one host and were counted once.",
        "file names and their SHA-256",
        "Remove the copy; if two hosts were meant, one overwrote the other's trace.",
        "one host's trace is in the run twice",
    ),
    FindingKind(
        "few-steps",
        "fewer than 3 used steps",
        "info",
        "Too few steps to tell a typical one from an exception.",
        "used_count in results.steps",
        "Capture at least five steps after the warm-up.",
        "only 1 step to judge by",
    ),
    FindingKind(
        "no-step-marker",
        "no explicit marker",
        "info",
        "Steps were inferred from what repeats, or not found at all.",
        "method in results.steps",
        "Mark steps with tf.profiler.experimental.Trace('train', step_num=i, _r=1).",
        "6 steps found from repeated function calls, without an explicit marker",
    ),
)

FINDINGS: Final[dict[str, FindingKind]] = {kind.code: kind for kind in _KINDS}
"""Every finding by its code, in the order in which they are explained."""
