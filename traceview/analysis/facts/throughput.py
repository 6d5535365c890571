"""Computes examples per second from the batch size in the sidecars and the median step."""

from __future__ import annotations

from traceview.analysis.selection import Selection
from traceview.base.record import LARGEST_RECORDED, Count, Ratio, Record
from traceview.base.units import PS_PER_S
from traceview.trace.model import Trace


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
