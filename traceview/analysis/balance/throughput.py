"""Computes examples per second, and what twice as many devices would do at best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceview.analysis.activity import DeviceActivity
from traceview.analysis.base import FEWEST_STEPS, Skipped
from traceview.analysis.joined_steps import JoinedSteps
from traceview.analysis.selection import Selection
from traceview.intervals import IntervalSet, uncovered
from traceview.record import LARGEST_RECORDED, Count, Picoseconds, Ratio, Record
from traceview.robust import median_ps
from traceview.trace.model import Trace
from traceview.units import PS_PER_S


class Throughput(Record, frozen=True):
    """Examples per second over the median step, in all and per device in use.

    Attributes:
        examples_per_second: Of all devices; null where the batch size is not known.
        per_gpu_per_second: The same per device in use.
        batch_size: Examples of one step of all replicas; null where not known.
        found_by: What showed the batch size: arguments, dataset or generator; null where not known.
        reason: Why something is not known; null where all is.
    """

    examples_per_second: Ratio | None
    per_gpu_per_second: Ratio | None
    batch_size: Count | None
    found_by: str | None
    reason: str | None


class Prediction(Record, frozen=True):
    """A bound for twice as many devices, each with as much work as now.

    Attributes:
        device_count: Twice as many devices as now.
        step_bound_ps: Least step time, picoseconds.
        speedup_bound: Largest ratio of examples per second to those of now.
        examples_per_second_bound: The same in examples per second; null where the batch size is not known.
        assumptions: Conditions of the bound.
    """

    device_count: Count
    step_bound_ps: Picoseconds
    speedup_bound: Ratio
    examples_per_second_bound: Ratio | None
    assumptions: tuple[str, ...]


def throughput_of(trace: Trace, selection: Selection, device_count: int) -> Throughput:
    """From the batch size in the sidecars and the median step."""
    step_ps = selection.median_step_ps
    size, found_by, reason = _batch_size(trace)
    if size is None or not step_ps:
        return Throughput(None, None, size, found_by, reason or "no step was measured")
    per_second = size * PS_PER_S / step_ps
    return Throughput(per_second, per_second / device_count, size, found_by, None)


def _batch_size(trace: Trace) -> tuple[int | None, str | None, str | None]:
    """Examples of one step over all hosts, what showed them, or why they are not known."""
    sidecars = [host.sidecar for host in trace.hosts]
    first = sidecars[0] if sidecars else None
    if first is None or None in sidecars:
        return None, None, "only a sidecar of traceview capture has the batch size"
    batch, strategy = first.environment.batch, first.environment.strategy
    if any(graph.training_loop for graph in first.placement.functions):
        return None, None, "each step of this trace is a call of several training steps"
    if len(sidecars) == 1:
        reason = batch.missing.get("global", "the sidecar does not say")
        return batch.global_, batch.found_by, None if batch.global_ is not None else reason
    if batch.per_replica is None or not strategy.replicas:
        reason = batch.missing.get("per_replica", "the sidecars do not say")
        return None, None, reason
    size = batch.per_replica * strategy.replicas
    if size > LARGEST_RECORDED:
        return None, None, "the batch size in the sidecars is too large to be one"
    return size, batch.found_by, None


def prediction_of(
    trace: Trace,
    selection: Selection,
    activities: Sequence[DeviceActivity],
    joined: JoinedSteps,
    throughput: Throughput,
    transfers: Sequence[IntervalSet],
) -> Prediction | Skipped:
    """What twice the devices of `joined` would do at best; `transfers` of collectives by device index.

    Skipped for fewer than two steps, and for replicas on a CPU.
    """
    step_ps, count = selection.median_step_ps, len(joined.devices)
    is_replica = any(trace.device_list[device].kind == "replica" for device in joined.devices)
    if is_replica:
        return Skipped("replicas share the cores of their host, however many there are")
    if not step_ps or joined.count < FEWEST_STEPS:
        return Skipped(f"fewer than {FEWEST_STEPS} used steps")
    exposed = [
        uncovered(
            transfers[device],
            activities[device].compute,
            joined.start_ps[row],
            joined.end_ps[row],
        )
        for row, device in enumerate(joined.devices)
    ]
    # Transfer that one device hides was in time: only what no device hides is sure to become longer.
    exposed_ps = median_ps(np.min(exposed, axis=0)) or 0
    # A ring sends 2(n - 1)/n of the data over every link.
    more_ps = exposed_ps * (2 * count - 1) // (2 * (count - 1)) - exposed_ps if count > 1 else 0
    bound = step_ps + more_ps
    speedup = 2 * step_ps / bound
    rate = throughput.examples_per_second
    return Prediction(
        device_count=2 * count,
        step_bound_ps=bound,
        speedup_bound=speedup,
        examples_per_second_bound=None if rate is None else rate * speedup,
        assumptions=(
            "the batch doubles",
            "compute, input and launches take as long as now",
            "collectives grow as in a ring over links of the same speed"
            if exposed_ps
            else "communication stays hidden"
            if count > 1
            else "communication costs nothing",
        ),
    )
