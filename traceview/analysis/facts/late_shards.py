"""Measures how much later than the earliest shard each shard of a distributed dataset gets its elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from traceview.analysis.facts.input_pipelines import HostPipelines
from traceview.analysis.facts.selection import Selection, covered_ps, step_bounds
from traceview.base.intervals import Int64Array, union
from traceview.base.record import Count, DeviceKey, Hostname, Picoseconds, Record
from traceview.base.stats import median_ps
from traceview.trace.host.input_waits import InputWaits, arrivals
from traceview.trace.model import Trace


class InputShard(Record, frozen=True):
    """One shard of a distributed dataset.

    Attributes:
        host: Name of the host.
        shard: Number of the shard and of its replica.
        device: Key of the replica's device; null where it is not known.
        wait_ps: Wait of the replica's own iterator in the window, picoseconds.
        wait_per_step_ps: The same, median over the used steps, picoseconds.
        late_per_step_ps: How much later than the earliest shard its element arrived, at most what it waited
            longer, median over the used steps, picoseconds.
        late_step_count: Used steps in which the shard is late by 5 % of the step or more.
        step_count: Used steps.
    """

    host: Hostname
    shard: Count
    device: DeviceKey | None
    wait_ps: Picoseconds
    wait_per_step_ps: Picoseconds
    late_per_step_ps: Picoseconds
    late_step_count: Count
    step_count: Count


LATE_RATIO: Final = 0.05
"""Of the step: how late a shard is in a step that counts as late."""


def late_shards(trace: Trace, selection: Selection, pipelines: HostPipelines) -> list[InputShard]:
    """The shards of a distributed dataset, in their order, over the used steps."""
    steps = selection.used_of(pipelines.host)
    if not steps or not pipelines.shards:
        return []
    waits, window = pipelines.waits, selection.windows[pipelines.host]
    start, end = step_bounds(steps)
    arrived = arrivals(trace, pipelines.calls, waits)
    of_shard = sorted(pipelines.shards, key=lambda pipeline: pipelines.shards[pipeline])
    unions = [
        union(waits.start_ps[waits.pipeline == p], waits.end_ps[waits.pipeline == p])
        for p in of_shard
    ]
    wait = np.stack([waited.within(start, end) for waited in unions])
    late = _lateness(waits, arrived, of_shard, wait, start, end)
    limit_ps = LATE_RATIO * (end - start)
    keys = {
        device.ordinal: trace.device_key(index)
        for index, device in enumerate(trace.device_list)
        if device.host == pipelines.host
    }
    return [
        InputShard(
            host=trace.hosts[pipelines.host].name,
            shard=shard,
            device=keys.get(shard),
            wait_ps=covered_ps(unions[shard], window),
            wait_per_step_ps=median_ps(wait[shard]) or 0,
            late_per_step_ps=median_ps(late[shard]) or 0,
            late_step_count=int((late[shard] >= limit_ps).sum()),
            step_count=len(steps),
        )
        for shard in range(len(of_shard))
    ]


def _lateness(
    waits: InputWaits,
    arrived: Int64Array,
    of_shard: Sequence[int],
    wait: Int64Array,
    start: Int64Array,
    end: Int64Array,
) -> Int64Array:
    """How much later than the earliest each shard arrived in each step, at most by what it waited longer."""
    arrival = np.empty_like(wait)
    for place, (begin, finish) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        inside = (waits.start_ps >= begin) & (waits.start_ps < finish)
        asked = int(waits.start_ps[inside].min(initial=finish))
        for shard, pipeline in enumerate(of_shard):
            elements = arrived[inside & (waits.pipeline == pipeline)]
            # An element that was ready before the first request is not late at all.
            arrival[shard, place] = max(int(elements.max(initial=asked)), asked)
    late: Int64Array = np.minimum(wait - wait.min(axis=0), arrival - arrival.min(axis=0))
    return late
