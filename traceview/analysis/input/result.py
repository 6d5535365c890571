"""Measures how long the model waits for input, for which shard, and which stage of the pipeline is slowest.

On a host with device planes the wait of a step is the idle time with cause `input` of the device that waits most;
on others it is the union of the `IteratorGetNext…` calls that hold up the step. The bottleneck is the stage with the
longest own time among those that the model waits for. Stages that only pass on what others made (the root, other
wrappers, `Prefetch`, the generator of a replica's shard) cannot be the bottleneck.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import filterfalse
from typing import Annotated, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.base import Skipped, Verdict
from traceview.analysis.cost import mean_of_steps
from traceview.analysis.input.advice import advice_for
from traceview.analysis.input.rules import INPUT_BOUND, REPLICA_STARVED
from traceview.analysis.input.supply import Supply, supply_of
from traceview.analysis.selection import Selection, covered_ps, rows_in, step_bounds
from traceview.intervals import Int64Array, union
from traceview.record import (
    Count,
    DeviceKey,
    Hostname,
    Integer,
    Picoseconds,
    Ratio,
    Record,
    StageName,
    one_of,
)
from traceview.robust import median, median_ps
from traceview.trace.input_waits import InputWaits, arrivals, find_input_waits, shards
from traceview.trace.model import NONE, Trace
from traceview.trace.pipeline import (
    GENERATOR,
    PREFETCH,
    WRAPPERS,
    InputStage,
    IteratorCalls,
    iterator_calls,
    kind_of,
    path_of,
    shard_rows,
    stages_of,
)

TOP_STAGES: Final = 10
"""Rows of the stage table in a report, unless asked otherwise."""

NOT_ATTRIBUTED: Final = "the causes of idle time are not known"
NO_WAIT_RECORDED: Final = "no IteratorGetNext call of the model was recorded"
NO_STEPS: Final = "no used step"

_WORKS_AHEAD = re.compile(r"Prefetch|Parallel|LegacyParallel|MapAndBatch|ParseExample|DataService")
_READS = re.compile(r"(?:TFRecord|TextLine|FixedLengthRecord|SSTable|RecordIO|LMDB|Csv)(?:V\d+)?")
_KEEPS = re.compile(r"::\w*(?:Cache|Snapshot)\w*")
_HANDS_ON = re.compile(r"(?:Finite|Forever)?(?:Repeat|Take|Skip)|Rebatch(?:V\d+)?")
_SHUFFLES = re.compile(r"Shuffle(?:AndRepeat)?(?:V\d+)?")
_FILLING_FACTOR: Final = 2


class InputHost(Record, frozen=True):
    """How long one host's model waited for input.

    Attributes:
        host: Name of the host.
        measured_by: idle: idle time of a device with that cause; iterator: calls of IteratorGetNext that held
            up the step.
        device: Key of the device that waits most; null where the host's calls are measured.
        wait_ps: Wait in the window, picoseconds; null where not known.
        wait_per_step_ps: Median over the used steps, picoseconds; null without steps.
        input_ratio: Wait over step time, median over the used steps; over the window without steps; null where
            not known.
        reason: Why there is no ratio; null where there is one.
        slowest_stage: Path of the stage with the longest own time; null where no stage was recorded.
        work_ratio: Own time of that stage over the window; above 1 where several threads run it.
        empty_step_ratio: Share of the used steps in which a request met an empty prefetch buffer between that
            stage and the model, of the buffer for which it is least; null without a recorded buffer.
        empty_wait_ratio: Share of the wait of the used steps that lies in steps in which a request met an empty buffer, of
            the buffer for which it is least; null without a recorded buffer or a wait.
        work_of_wait_ratio: Own time of that stage over wait_ps; null without a wait.
        mean_wait_per_step_ps: Mean over the used steps, rounded down, picoseconds; null without steps, and in reports of
            earlier versions.
    """

    host: Hostname
    measured_by: Annotated[str, one_of("idle", "iterator")]
    device: DeviceKey | None
    wait_ps: Picoseconds | None
    wait_per_step_ps: Picoseconds | None
    input_ratio: Ratio | None
    reason: str | None
    slowest_stage: StageName | None = None
    work_ratio: Ratio | None = None
    empty_step_ratio: Ratio | None = None
    empty_wait_ratio: Ratio | None = None
    work_of_wait_ratio: Ratio | None = None
    mean_wait_per_step_ps: Picoseconds | None = None


class InputStep(Record, frozen=True):
    """The input wait of one step.

    Attributes:
        host: Name of the host.
        number: Number of the step.
        wait_ps: Wait for input, picoseconds.
        input_ratio: The same over the duration of the step.
        used: Whether the step takes part in the medians.
    """

    host: Hostname
    number: Integer
    wait_ps: Picoseconds
    input_ratio: Ratio
    used: bool


class InputReplica(Record, frozen=True):
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
        mean_late_per_step_ps: As late_per_step_ps, but mean over the used steps, rounded down, picoseconds; null in
            reports of earlier versions.
    """

    host: Hostname
    shard: Count
    device: DeviceKey | None
    wait_ps: Picoseconds
    wait_per_step_ps: Picoseconds
    late_per_step_ps: Picoseconds
    late_step_count: Count
    step_count: Count
    mean_late_per_step_ps: Picoseconds | None = None


class Bottleneck(Record, frozen=True):
    """The stage to change first.

    Attributes:
        host: Name of the host.
        name: Path of the stage from the root.
        kind: Last component of the path.
        own_ps: Self time without waiting for inputs, picoseconds.
        share_ratio: Its share of the own time of all stages that the model waits for.
        advice: What to change.
    """

    host: Hostname
    name: StageName
    kind: StageName
    own_ps: Picoseconds
    share_ratio: Ratio
    advice: str


class Input(Record, frozen=True):
    """The input pipeline, and how long the model waits for it.

    Attributes:
        input_ratio: Share of the step spent waiting for input, median over the used steps of the host that
            waits most; of the window without steps; null where not known.
        verdict: high from 0.20 on, moderate from 0.05 on, else none; null without a ratio.
        reason: Why there is no ratio; null where there is one.
        hosts: How long the model of each host waited.
        steps: The wait of every step in the window.
        replicas: The shards of a distributed dataset; empty without one, and where it is not known whose they
            are.
        empty_ratio: How often the buffer that the model takes from was found empty; null where not recorded.
        bottleneck: The stage to change first; null where no stage was recorded.
        missing: What the pipeline lacks, by the names of its stages.
        stages: Stages with the longest self time, the longest first.
        stage_count: Stages in all.
        left_out_count: Stages that are not listed.
    """

    input_ratio: Ratio | None
    verdict: Verdict | None
    reason: str | None
    hosts: tuple[InputHost, ...]
    steps: tuple[InputStep, ...]
    replicas: tuple[InputReplica, ...]
    empty_ratio: Ratio | None
    bottleneck: Bottleneck | None
    missing: tuple[
        Annotated[str, one_of("prefetch", "parallel_map", "parallel_interleave", "cache")], ...
    ]
    stages: tuple[InputStage, ...]
    stage_count: Count
    left_out_count: Count


def keeps_waiting(row: InputHost) -> bool:
    """Whether the pipeline of a host agrees that the model waits for it: it works much, and its buffers are empty.

    Where the buffers are empty while the model waits, its work is compared with that wait.
    """
    if row.empty_step_ratio is None or row.work_ratio is None:
        return True
    limits = INPUT_BOUND.limits
    if (row.empty_wait_ratio or 0.0) >= limits["empty_wait_ratio"]:
        return max(row.work_ratio, row.work_of_wait_ratio or 0.0) >= limits["work_ratio"]
    return (
        row.empty_step_ratio >= limits["empty_step_ratio"]
        and row.work_ratio >= limits["work_ratio"]
    )


class _HostInput(Struct, frozen=True, eq=False):
    """The iterators of one host.

    `stages`: over the window. `whole`: the stages over the whole recording. `shards`: the shard of each pipeline that
    a replica waits in. `is_distributed`: the dataset has shards, even if it is not known for which replica.
    """

    host: int
    calls: IteratorCalls
    waits: InputWaits
    stages: list[InputStage]
    whole: list[InputStage]
    shards: dict[int, int]
    is_distributed: bool

    @property
    def candidates(self) -> list[InputStage]:
        """The stages over the window that may hold up the model."""
        return _waited_for(self, self.stages)

    @property
    def slowest(self) -> InputStage | None:
        """The candidate that works longest; None if none of them works."""
        most = max(self.candidates, key=lambda stage: stage.own_ps, default=None)
        return most if most is not None and most.own_ps > 0 else None


def compute(
    trace: Trace,
    selection: Selection,
    input_idle: Mapping[int, Int64Array],
    top: int | None = TOP_STAGES,
) -> Input | Skipped:
    """The waits, shards and stages of every host.

    `input_idle`: for each device of the device list the idle picoseconds of cause input in each step of its host,
    in the order of `selection.steps`, without those where that is not known. `top`: rows of stages, None for all.
    """
    inputs = [
        host_input
        for host in selection.windows
        if (host_input := _host_input(trace, selection, host)).calls.row.size
        or host_input.waits.row.size
    ]
    if not inputs:
        return Skipped("no tf.data iterator was recorded")
    steps_of = {each.host: _steps(trace, selection, each, input_idle) for each in inputs}
    hosts = [_host(trace, selection, each, steps_of[each.host], input_idle) for each in inputs]
    worst = max(range(len(inputs)), key=lambda place: hosts[place].input_ratio or 0.0)
    ratio = hosts[worst].input_ratio
    stages = sorted(
        (stage for each in inputs for stage in each.stages), key=lambda stage: -stage.self_ps
    )
    listed = stages[:top]
    return Input(
        input_ratio=ratio,
        verdict=None if ratio is None else INPUT_BOUND.verdict_of(ratio),
        reason=hosts[worst].reason if ratio is None else None,
        hosts=tuple(hosts),
        steps=tuple(step for each in inputs for step in steps_of[each.host]),
        replicas=tuple(row for each in inputs for row in _replicas(trace, selection, each)),
        empty_ratio=_empty_ratio(inputs[worst]),
        bottleneck=_bottleneck(trace, inputs[worst]),
        missing=_missing(inputs[worst]),
        stages=tuple(listed),
        stage_count=len(stages),
        left_out_count=len(stages) - len(listed),
    )


def _host_input(trace: Trace, selection: Selection, host: int) -> _HostInput:
    columns = trace.host_columns
    calls = iterator_calls(trace, host)
    waits = find_input_waits(trace, host, calls)
    in_window = rows_in(
        columns.start_ps[calls.row], columns.end_ps[calls.row], selection.windows[host]
    )
    asked = waits.pipeline[waits.pipeline != NONE]
    everything = np.arange(calls.row.size)
    return _HostInput(
        host,
        calls,
        waits,
        stages_of(trace, host, calls, in_window, asked),
        stages_of(trace, host, calls, everything, asked),
        shards(trace, host, calls, waits),
        bool(shard_rows(trace, host).size),
    )


# Waits


def _has_plane(trace: Trace, host: int) -> bool:
    return any(device.host == host and device.kind != "replica" for device in trace.device_list)


def _steps(
    trace: Trace,
    selection: Selection,
    host_input: _HostInput,
    input_idle: Mapping[int, Int64Array],
) -> list[InputStep]:
    """The wait of each step; empty where it is not known."""
    steps = selection.steps[host_input.host]
    if _has_plane(trace, host_input.host):
        idle = _idle_of_host(trace, host_input.host, input_idle)
        if not idle or not steps:
            return []
        wait = np.max(list(idle.values()), axis=0)
    elif host_input.waits.row.size:
        wait = union(host_input.waits.start_ps, host_input.waits.end_ps).within(*step_bounds(steps))
    else:
        return []
    return [
        InputStep(
            host=trace.hosts[host_input.host].name,
            number=step.number,
            wait_ps=wait_ps,
            input_ratio=wait_ps / step.duration_ps if step.duration_ps else 0.0,
            used=step.excluded is None,
        )
        for step, wait_ps in zip(steps, wait.tolist(), strict=True)
    ]


def _idle_of_host(
    trace: Trace, host: int, input_idle: Mapping[int, Int64Array]
) -> dict[int, Int64Array]:
    return {
        device: per_step
        for device, per_step in input_idle.items()
        if trace.device_list[device].host == host
    }


def _host(
    trace: Trace,
    selection: Selection,
    host_input: _HostInput,
    steps: list[InputStep],
    input_idle: Mapping[int, Int64Array],
) -> InputHost:
    window, used = selection.windows[host_input.host], [step for step in steps if step.used]
    supply = _supply(trace, selection, host_input, [step.wait_ps for step in used])
    row = InputHost(
        host=trace.hosts[host_input.host].name,
        measured_by="iterator",
        device=None,
        wait_ps=None,
        wait_per_step_ps=None,
        input_ratio=None,
        reason=None,
        slowest_stage=supply.stage.name if supply else None,
        work_ratio=supply.work_ratio if supply else None,
        empty_step_ratio=supply.empty_step_ratio if supply else None,
        empty_wait_ratio=supply.empty_wait_ratio if supply else None,
        mean_wait_per_step_ps=mean_of_steps(
            np.array([step.wait_ps for step in used], dtype=np.int64)
        ),
    )
    per_step = median_ps([step.wait_ps for step in used])
    ratio = median([step.input_ratio for step in used]) if used else None
    if _has_plane(trace, host_input.host):
        idle = _idle_of_host(trace, host_input.host, input_idle)
        device = max(idle, key=lambda key: int(idle[key].sum())) if idle else None
        waited = sum(step.wait_ps for step in steps) if steps else None
        return replace(
            row,
            measured_by="idle",
            device=None if device is None else trace.device_key(device),
            wait_ps=waited,
            work_of_wait_ratio=_of_wait(supply, waited),
            wait_per_step_ps=per_step,
            input_ratio=ratio,
            reason=None if used else NO_STEPS if idle else NOT_ATTRIBUTED,
        )
    waited = None
    if host_input.waits.row.size:
        waits = union(host_input.waits.start_ps, host_input.waits.end_ps)
        waited = covered_ps(waits, window)
        if not selection.steps[host_input.host] and window.length_ps:
            ratio = waited / window.length_ps
    absent = NO_WAIT_RECORDED if waited is None else NO_STEPS
    return replace(
        row,
        wait_ps=waited,
        work_of_wait_ratio=_of_wait(supply, waited),
        wait_per_step_ps=per_step,
        input_ratio=ratio,
        reason=absent if ratio is None else None,
    )


def _of_wait(supply: Supply | None, wait_ps: int | None) -> float | None:
    return supply.stage.own_ps / wait_ps if supply and wait_ps else None


def _supply(
    trace: Trace, selection: Selection, host_input: _HostInput, wait_ps: Sequence[int]
) -> Supply | None:
    stage, window = host_input.slowest, selection.windows[host_input.host]
    if stage is None:
        return None
    steps = selection.used_of(host_input.host)
    start, end = (each.tolist() for each in step_bounds(steps))
    bounds = (start, end) if steps else ([window.start_ps], [window.end_ps])
    asked = host_input.waits.pipeline
    return supply_of(trace, host_input.calls, asked, stage, window.length_ps, bounds, wait_ps)


# Shards


def _replicas(trace: Trace, selection: Selection, host_input: _HostInput) -> list[InputReplica]:
    """The shards of a distributed dataset, in their order, over the used steps."""
    steps = selection.used_of(host_input.host)
    if not steps or not host_input.shards:
        return []
    waits, window = host_input.waits, selection.windows[host_input.host]
    start, end = step_bounds(steps)
    arrived = arrivals(trace, host_input.calls, waits)
    of_shard = sorted(host_input.shards, key=lambda pipeline: host_input.shards[pipeline])
    unions = [
        union(waits.start_ps[waits.pipeline == p], waits.end_ps[waits.pipeline == p])
        for p in of_shard
    ]
    wait = np.stack([waited.within(start, end) for waited in unions])
    late = _lateness(waits, arrived, of_shard, wait, start, end)
    limit_ps = REPLICA_STARVED.limits["late_ratio"] * (end - start)
    keys = {
        device.ordinal: trace.device_key(index)
        for index, device in enumerate(trace.device_list)
        if device.host == host_input.host
    }
    return [
        InputReplica(
            host=trace.hosts[host_input.host].name,
            shard=shard,
            device=keys.get(shard),
            wait_ps=covered_ps(unions[shard], window),
            wait_per_step_ps=median_ps(wait[shard]) or 0,
            late_per_step_ps=median_ps(late[shard]) or 0,
            late_step_count=int((late[shard] >= limit_ps).sum()),
            step_count=len(steps),
            mean_late_per_step_ps=mean_of_steps(late[shard]),
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


# Stages


def _waited_for(host_input: _HostInput, stages: Sequence[InputStage]) -> list[InputStage]:
    """The stages that may hold up the model, without those that only pass on elements."""
    asked = [stage for stage in stages if stage.blocking or host_input.is_distributed]
    return [
        stage
        for stage in asked or stages
        if kind_of(stage.name) not in (*WRAPPERS, PREFETCH)
        and not (host_input.is_distributed and stage.blocking and stage.name.endswith(GENERATOR))
    ]


def _bottleneck(trace: Trace, host_input: _HostInput) -> Bottleneck | None:
    slowest = host_input.slowest
    if slowest is None:
        return None
    kind = kind_of(slowest.name)
    fills = "Shuffle" if _fills_a_shuffle(host_input, slowest) else kind
    return Bottleneck(
        host=trace.hosts[host_input.host].name,
        name=slowest.name,
        kind=kind,
        own_ps=slowest.own_ps,
        share_ratio=slowest.own_ps / sum(stage.own_ps for stage in host_input.candidates),
        advice=advice_for(fills, slowest.parallelism),
    )


def _fills_a_shuffle(host_input: _HostInput, stage: InputStage) -> bool:
    """Whether most of what a stage makes stays in the buffer of a shuffle: it is asked twice as often as the shuffle."""
    return any(
        _SHUFFLES.fullmatch(kind_of(other.name))
        and stage.name.startswith(f"{other.name}::")
        and stage.calls >= _FILLING_FACTOR * other.calls
        for other in host_input.stages
    )


def _empty_ratio(host_input: _HostInput) -> float | None:
    """How often the model found the buffer of the stage below the root empty."""
    ratios = [
        stage.empty_ratio
        for stage in host_input.stages
        if stage.blocking and len(path_of(stage.name)) == 1 and stage.empty_ratio is not None
    ]
    return max(ratios, default=None)


def _missing(host_input: _HostInput) -> tuple[str, ...]:
    """What the pipeline lacks, by the names of its stages; nothing without names."""
    names = [stage.name for stage in _waited_for(host_input, host_input.whole)]
    paths = [path_of(name) for name in names]
    readers = [name for name in names if _READS.fullmatch(kind_of(name))]
    missing = []
    # A distributed dataset works ahead by itself, on the threads that fill the shards.
    last = [next(filterfalse(_HANDS_ON.fullmatch, path), PREFETCH) for path in paths]
    if not host_input.is_distributed and not all(map(_WORKS_AHEAD.match, last)):
        missing.append("prefetch")
    if any("Map" in path for path in paths):
        missing.append("parallel_map")
    if any("Interleave" in path for path in paths) or any(
        "Interleave" not in name for name in readers
    ):
        missing.append("parallel_interleave")
    if readers and not any(_KEEPS.search(name) for name in names):
        missing.append("cache")
    return tuple(missing)
