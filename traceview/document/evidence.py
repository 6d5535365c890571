"""Names the values that findings rest on, in words and with what they are a share of.

The keys are those of `metric` in the evidence of the JSON.
"""

from __future__ import annotations

import re
from typing import Final

from traceview.document.vocabulary import CAUSES, STATUSES, STEP_METHODS

_IDLE: Final = re.compile(r"idle_(\w+)_ratio")
_UNIT: Final = re.compile(r"_(?:ps|ns|bytes|ratio|count)$")

METRICS: Final = {
    "affected_step_cost_ps": "cost of one affected step, mean",
    "affected_step_count": "affected steps",
    "alone_ratio": "share of the mean step in which nothing else runs",
    "backward_count": "kernels of the backward pass",
    "backward_ratio": "backward pass, share of the named compute",
    "cause": "cause",
    "chance_ratio": "overlap of independent devices, share of the maximum",
    "compute_ps": "compute in the recording",
    "compute_ratio": "share of the compute",
    "compute_ratio_to_busiest": "compute, relative to the busiest device",
    "concurrency_ratio": "overlap of compute, share of the maximum",
    "constant_copy_count": "copies of constants to the device",
    "cpu_op_idle_ratio": "idle while the op runs, share of the mean step",
    "damage": "damage",
    "device_event_count": "events on devices",
    "device_plane_count": "GPU planes in the file",
    "difference_ratio": "difference between NVML and the trace, of the time",
    "dropped_event_count": "dropped events",
    "eager_dispatch_ps": "Python and dispatch between these ops, mean step",
    "eager_ops_per_step": "ops outside of any tf.function per step",
    "eager_ops_ratio": "time lost to ops outside of any tf.function, share of the mean step",
    "empty_step_ratio": "steps that found the prefetch buffer empty",
    "empty_wait_ratio": "waiting for input while the prefetch buffer was empty, share of the wait",
    "error": "message of the profiler",
    "evaluation_ratio": "evaluation, share of the mean step",
    "exposed_ratio": "exposed copies, share of the mean step",
    "exposed_transfer_ratio": "exposed transfer of collectives, share of the mean step",
    "exposed_wait_ratio": "exposed waiting in collectives, share of the mean step",
    "hardware": "hardware",
    "host_event": "event on the host",
    "in_use_efficiency_ratio": "share of the window in which the devices in use compute",
    "input_cost_ratio": "cost of the input pipeline, share of the mean step",
    "input_ps_per_step": "its batch is late by, median step",
    "input_ratio": "waiting for input, share of the step",
    "checkpoint_ratio": "checkpoints and the Python around them, share of the mean step",
    "other_callback_ratio": "idle, Python between steps without that of saves and evaluations, share of the step",
    "saving_ps": "idle, checkpoints, mean step",
    "saving_python_ps": "idle, Python between steps around saves, mean step",
    "input_wait_ps": "waiting for input, mean step",
    "kernel_count": "kernels",
    "last_count": "collectives in which a device came last",
    "layer": "its first layer",
    "layer_collective_count": "collectives of layers per step",
    "layer_collective_ratio": "collectives of layers without compute, share of the mean step",
    "late_per_step_ps": "its part of the batch is late by, median step",
    "late_step_ratio": "steps in which its part of the batch is late",
    "launches_ratio": "kernels, relative to the others",
    "least_replica_count": "replicas, at least",
    "link_use_ratio": "speed of its copies, share of what the link carries",
    "lock_cost_ratio": "idle while the thread keeps the lock, share of the mean step",
    "lock_kept_ratio": "keeps the lock, share of the window",
    "lock_wait_ratio": "waiting for Python's lock after calls of TensorFlow, share of the mean step",
    "lock_wait_ps": "waiting for Python's lock, mean step",
    "longest_gap_ps": "its longest gap of this cause",
    "longest_step_ps": "longest step",
    "low_precision_ratio": "compute in 16 bits or less",
    "mean_longer_ratio": "mean compute beyond the median of the others",
    "median_ps": "median step",
    "memory_held_bytes": "memory held",
    "memory_ratio": "memory of the GPU that the process uses",
    "method": "steps found",
    "missing": "missing in the pipeline",
    "next_event": "next event on the host",
    "nvml_busy_ratio": "busy by NVML",
    "op": "op",
    "op_count": "ops of this kind on each device in the used steps",
    "op_type": "type of the op",
    "opaque_count": "kernels without an op",
    "pageable_ratio": "bytes that come from pageable memory",
    "path": "how gradients are summed",
    "path_op": "op that sums gradients",
    "path_ratio": "on the critical path, share of the mean step",
    "previous_event": "previous event on the host",
    "profiler_ps": "left out of that waiting, time of the profiler, mean step",
    "python_line": "line of Python",
    "reason": "reason",
    "role": "not recorded",
    "sha256": "SHA-256",
    "share_ratio": "work of the stage, share of the work of all that count",
    "slowed_dispatch_ps": "dispatch takes longer by, mean step",
    "slowed_ops_ps": "ops take longer by, mean step",
    "small_count_per_step": "small copies per step",
    "spread_ratio": "spread of the step times (IQR), share of the median step",
    "spread_ps": "spread of the delay over the steps (IQR)",
    "status": "status",
    "steps_ratio": "steps or collectives in which it is last",
    "throttle_reasons": "reasons of the driver",
    "throttled_ratio": "time with lowered clocks",
    "trace_busy_ratio": "busy by the trace",
    "traced_call_count": "calls that were traced",
    "unexplained_ps": "longest part without a recorded cause",
    "unprofiled_dispatch_ratio": "dispatch of ops, share of the mean step without the profiler",
    "unexplained_ratio": "no recorded cause, share of the critical path",
    "used_count": "steps in the statistics",
    "utilization_ratio": "use of the GPU by the process",
    "wait_ratio": "the others wait for it, share of the median step",
    "work_of_wait_ratio": "work of the stage, share of the wait",
    "work_ratio": "work of the stage, share of the window",
}
"""What was measured, by metric."""


_BELOW: Final = frozenset(
    (
        "compute_ratio_to_busiest",
        "concurrency_ratio",
        "in_use_efficiency_ratio",
        "link_use_ratio",
        "low_precision_ratio",
        "used_count",
    )
)
"""Values that are below their threshold where a finding is made."""

_ABOVE: Final = frozenset(("dropped_event_count", "least_replica_count", "opaque_count"))
"""Values that exceed their threshold where a finding is made."""


def metric_words(metric: str) -> str:
    """The name of a measured value; of one that a later version may have added, its key without unit."""
    words = METRICS.get(metric)
    if words is not None:
        return words
    idle = _IDLE.fullmatch(metric)
    if idle is not None and idle[1] in CAUSES:
        return f"idle, {CAUSES[idle[1]].words}, share of the step"
    if idle is not None and idle[1] == "lock_wait":
        return "idle while the step waits for Python's lock, share of the step"
    return _UNIT.sub("", metric).replace("_", " ")


_VALUES: Final = {
    "cause": {
        "slower_device": "slower at the same kernels",
        "more_work": "more to compute",
        "input": "late input",
        "late_start": "kernels start late",
    },
    "method": {"none": "none", **{key: look.words for key, look in STEP_METHODS.items()}},
    "path": {
        "cpu_bounce": "copied to the host and summed there",
        "one_device": "copied to one device and summed there",
    },
    "status": {key: look.words for key, look in STATUSES.items()},
}


def threshold_words(metric: str, threshold: str) -> str:
    """`reported from 5.0%`: from which value on a finding is made."""
    if metric == "spread_ps":
        return f"must be at most {threshold}"
    bound = "below" if metric in _BELOW else "above" if metric in _ABOVE else "from"
    return f"reported {bound} {threshold}"


def value_words(metric: str, value: str) -> str:
    """A measured value that is a word, as documents write it."""
    return _VALUES.get(metric, {}).get(value, value)
