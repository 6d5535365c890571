"""Judges whether the input pipeline of each host makes batches as fast as the model takes them, and how late each shard is.

The slowest stage says how much of the window it works. The prefetch buffers between it and the model say whether that
is too slow: a model that takes faster than the pipeline makes meets empty ones. Only the fill of `Prefetch` counts;
parallel stages record calls that still run as elements.

A Python function of the pipeline, such as a generator, is one op, whether it computes or waits for a server. While it waits,
as the processor time of its thread shows, it does not need Python's lock, so that time is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.input_pipelines import HostPipelines, pipelines_of
from traceview.analysis.facts.python_lock import LOCKED, SILENT, lock_waits
from traceview.analysis.facts.run import Run
from traceview.analysis.facts.selection import covered_ps, rows_in, step_bounds
from traceview.base.ids import is_in, unique_ids
from traceview.base.intervals import (
    BoolArray,
    Int64Array,
    IntervalSet,
    difference,
    largest_between,
    places,
    union,
)
from traceview.base.record import Count, DeviceKey, Hostname, Picoseconds, Record
from traceview.base.stats import median_ps
from traceview.trace.columns import NONE
from traceview.trace.host.cause import Cause
from traceview.trace.host.pipeline import (
    GENERATOR,
    PREFETCH,
    InputStage,
    InputWaits,
    IteratorCalls,
    arrivals,
    kind_of,
    requests_of_buffer,
)
from traceview.trace.host.state_timeline import intersection, joined_spans


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


def _late_shards(context: Run, pipelines: HostPipelines) -> list[InputShard]:
    """The shards of a distributed dataset, in their order, over the used steps."""
    trace, selection = context.trace, context.selection
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
        trace.device_list[index].ordinal: trace.device_key(index)
        for index in trace.devices_of_host[pipelines.host]
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
    asked = np.minimum(
        np.append(waits.start_ps, np.iinfo(np.int64).max)[places(waits.start_ps, start)], end
    )
    for shard, pipeline in enumerate(of_shard):
        own = np.flatnonzero(waits.pipeline == pipeline)
        first, last = (places(waits.start_ps[own], times) for times in (start, end))
        # An element that was ready before the first request is not late at all.
        elements = largest_between(arrived[own], first, last, np.iinfo(np.int64).min)
        arrival[shard] = np.maximum(elements, asked)
    late: Int64Array = np.minimum(wait - wait.min(axis=0), arrival - arrival.min(axis=0))
    return late


WORK_RATIO: Final = 0.25
"""Of the window, or of the wait: how long the slowest stage works where the model waits for it (XProf's limit)."""
EMPTY_STEP_RATIO: Final = 0.25
"""Of the steps: in how many the buffers are empty where the model waits for the pipeline (XProf's limit)."""
EMPTY_WAIT_RATIO: Final = 0.5
"""Of the wait: how much of it is in steps with empty buffers. A pipeline that fills a buffer from time to time makes few
steps wait, and those for long."""
LIMITING_WORK_RATIO: Final = 0.70
"""Of the window: how long a stage works that cannot make more."""
LOCK_WAIT_RATIO: Final = 0.02
"""Of the window: how long the thread of the step waits for Python's lock where another thread keeps it. Without a generator
it was below 0.001."""


class InputSupply(Struct, frozen=True, eq=False):
    """What the pipelines of one host deliver.

    `stages`: those in the window, longest first. `slowest`: the one to change first; `share_ratio`: its share of the work of
    all that the model waits for, `work_ratio`: of the window, `work_of_wait_ratio`: over the wait; `fills_shuffle`: most of
    what it makes stays in the buffer of a shuffle. `missing`: what the pipeline lacks. `empty_step_ratio`: the share of the used steps in which a request met an empty buffer, of the
    buffer for which that is least; `empty_wait_ratio`: the share of the wait in these steps. `shards`: of a distributed
    dataset. `wait_ps`: how long the thread of the steps was in calls for the next batch, in the window; `wait_of_steps`:
    in each step of the host, used or not. `pass_count`: passes over the data in the window. `iterator_count`: iterators made
    in it, if the first requests to them are most of the wait. What is not known is None.
    """

    stages: tuple[InputStage, ...]
    slowest: InputStage | None
    share_ratio: float
    fills_shuffle: bool
    missing: tuple[str, ...]
    work_ratio: float | None
    work_of_wait_ratio: float | None
    empty_step_ratio: float | None
    empty_wait_ratio: float | None
    shards: tuple[InputShard, ...]
    wait_ps: int | None
    wait_of_steps: tuple[int, ...] | None
    pass_count: int
    iterator_count: int

    @property
    def is_short(self) -> bool:
        """Whether the pipeline agrees that the model waits for it: it works much, and its buffers are empty.

        Where the buffers are empty while the model waits, its work is compared with that wait.
        """
        if self.empty_step_ratio is None or self.work_ratio is None:
            return True
        if (self.empty_wait_ratio or 0.0) >= EMPTY_WAIT_RATIO:
            return max(self.work_ratio, self.work_of_wait_ratio or 0.0) >= WORK_RATIO
        return self.empty_step_ratio >= EMPTY_STEP_RATIO and self.work_ratio >= WORK_RATIO

    @property
    def is_generator(self) -> bool:
        """Whether the slowest stage is a Python generator."""
        return self.slowest is not None and self.slowest.name.endswith(GENERATOR)


def input_supplies(context: Run) -> Mapping[int, InputSupply]:
    """What the pipelines of each host with an iterator deliver, by index."""
    every = (
        pipelines_of(context.trace, context.selection, host) for host in context.selection.windows
    )
    return {
        pipelines.host: _supply(context, pipelines)
        for pipelines in every
        if pipelines.calls.row.size or pipelines.waits.row.size
    }


def supply_of(context: Run, host: int) -> InputSupply | None:
    """What the pipelines of a host deliver; None where no iterator was recorded."""
    return context.once(input_supplies).get(host)


def causes_prolonged(context: Run, host: int, device: int) -> frozenset[Cause]:
    """Causes of idle time of a device that Python of the pipeline prolongs, for it keeps the lock; mostly none.

    It does where the thread of the step is seen to wait for the lock, and where a generator that is too slow works, and
    does not wait, for most of the window.
    """
    window, python = context.selection.windows[host], pipeline_python(context, host)
    if not window.length_ps or not python.start.size:
        return frozenset()
    waits = intersection(lock_waits(context, device), python)
    if covered_ps(waits, window) >= LOCK_WAIT_RATIO * window.length_ps:
        return frozenset(LOCKED)
    supply = supply_of(context, host)
    if supply is None or not supply.is_short or not supply.is_generator:
        return frozenset()
    rests = difference(joined_spans(_rest_by_thread(context, host).values()), python)
    at_work_ratio = (supply.work_ratio or 0.0) - covered_ps(rests, window) / window.length_ps
    return frozenset(SILENT) if at_work_ratio >= LIMITING_WORK_RATIO else frozenset()


def _supply(context: Run, pipelines: HostPipelines) -> InputSupply:
    trace, selection, host = context.trace, context.selection, pipelines.host
    window, slowest, waits = selection.windows[host], pipelines.slowest, pipelines.waits
    steps = step_bounds(selection.steps[host])
    wait_ps = of_steps = None
    if waits.row.size:
        spans = union(waits.start_ps, waits.end_ps)
        wait_ps, of_steps = covered_ps(spans, window), spans.within(*steps)
    waited_ps, waited = wait_ps, of_steps
    devices = trace.devices_of_host[host]
    if any(trace.device_list[device].kind != "replica" for device in devices):
        # What the thread waits while the devices have work costs nothing.
        gaps = [context.idle.gaps[device] for device in devices if device in context.idle.gaps]
        idle = [of_device.spans_with(Cause.INPUT).within(*steps) for of_device in gaps]
        waited = np.max(idle, axis=0) if idle else None
        waited_ps = None if waited is None else int(waited.sum())
    is_used = [step.excluded is None for step in selection.steps[host]]
    of_used = None if waited is None else waited[np.array(is_used, dtype=np.bool_)]
    empty = (None, None) if slowest is None else _empty(context, pipelines, slowest, of_used)
    candidates_ps = sum(stage.own_ps for stage in pipelines.candidates)
    return InputSupply(
        stages=tuple(sorted(pipelines.stages, key=lambda stage: -stage.self_ps)),
        slowest=slowest,
        share_ratio=slowest.own_ps / candidates_ps if slowest else 0.0,
        fills_shuffle=slowest is not None and pipelines.fills_a_shuffle(slowest),
        missing=pipelines.missing,
        work_ratio=None
        if slowest is None
        else slowest.own_ps / window.length_ps
        if window.length_ps
        else 0.0,
        work_of_wait_ratio=slowest.own_ps / waited_ps if slowest and waited_ps else None,
        empty_step_ratio=empty[0],
        empty_wait_ratio=empty[1],
        shards=tuple(_late_shards(context, pipelines)),
        wait_ps=wait_ps,
        wait_of_steps=None if of_steps is None else tuple(of_steps.tolist()),
        pass_count=pipelines.pass_count,
        iterator_count=_new_iterators(context, pipelines),
    )


def _new_iterators(context: Run, pipelines: HostPipelines) -> int:
    """How many iterators the window makes, if the first requests to them are most of what the model waits; else 0."""
    window, waits = context.selection.windows[pipelines.host], pipelines.waits
    columns = context.trace.host_columns
    rows = context.trace.named_on(pipelines.host, _makes_iterator)
    rows = rows[rows_in(columns.start_ps[rows], columns.end_ps[rows], window)]
    asked = rows_in(waits.start_ps, waits.end_ps, window)
    wait_ps = (waits.end_ps - waits.start_ps)[asked]
    following = places(waits.start_ps[asked], columns.end_ps[rows])
    first = unique_ids(following[following < asked.size])
    return rows.size if 2 * wait_ps[first].sum() >= max(wait_ps.sum(), 1) else 0


def _makes_iterator(name: bytes) -> bool:
    return name.endswith(b": MakeIterator")


def _empty(
    context: Run, pipelines: HostPipelines, stage: InputStage, wait_ps: Int64Array | None
) -> tuple[float | None, float | None]:
    """The share of the used steps, or of the window, and of the wait, in which a request met an empty buffer.

    Of the buffer for which it is least. `wait_ps`: of each used step; None where it is not known.
    """
    calls, selection = pipelines.calls, context.selection
    steps = selection.used_of(pipelines.host)
    start, end = step_bounds(steps or (selection.windows[pipelines.host],))
    blocks = is_in(calls.pipeline, pipelines.waits.pipeline)
    of_steps, of_wait = [], []
    for chosen in _buffers(calls, blocks, stage):
        begun, is_empty = requests_of_buffer(context.trace, calls, chosen)
        order = np.argsort(begun, kind="stable")
        first, last = (places(begun[order], times) for times in (start, end))
        met = np.append(0, np.cumsum(is_empty[order]))
        is_asked, is_met = first < last, met[last] > met[first]
        if is_asked.any():
            of_steps.append(int(is_met.sum()) / int(is_asked.sum()))
            if steps and wait_ps is not None and wait_ps[is_asked].any():
                of_wait.append(int(wait_ps[is_met].sum()) / int(wait_ps[is_asked].sum()))
    return min(of_steps, default=None), min(of_wait, default=None)


def _buffers(calls: IteratorCalls, blocks: BoolArray, stage: InputStage) -> Iterator[Int64Array]:
    """The calls of each prefetch stage between a stage and the model."""
    for number, name in enumerate(calls.stage_names):
        if kind_of(name) != PREFETCH:
            continue
        is_stage = calls.stage == number
        if stage.name.startswith(f"{name}::"):
            yield np.flatnonzero(is_stage & (blocks == stage.blocking))
        if not stage.blocking:
            # What fills the shards of a distributed dataset is followed by the pipelines of the replicas.
            yield np.flatnonzero(is_stage & blocks)


def pipeline_python(context: Run, host: int) -> IntervalSet:
    """When Python functions of the pipeline run, or wait for Python's lock."""
    states, rest = context.idle.states[host], _rest_by_thread(context, host)
    return joined_spans(
        difference(spans, rest[thread]) if thread in rest else spans
        for thread, spans in states.spans_by_thread(states.pipeline_python).items()
    )


def _rest_by_thread(context: Run, host: int) -> dict[int, IntervalSet]:
    """When each thread of the pipeline waits in a Python function; without samples that is not known."""
    idle = context.idle
    if host not in idle.python:
        return {}
    states, sampled = idle.states[host], idle.python[host].lines
    line = unique_ids(context.trace.host_columns.line[states.pipeline_python])
    known = [each for each in line.tolist() if sampled.thread_of(each) != NONE]
    at_rest = {int(states.thread[each]): sampled.at_rest(sampled.thread_of(each)) for each in known}
    return {
        thread: intersection(spans, at_rest[thread])
        for thread, spans in states.spans_by_thread(states.pipeline_python).items()
        if thread in at_rest
    }
