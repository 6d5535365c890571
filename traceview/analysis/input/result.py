"""Does the model wait for its input, for whose, and which stage of the pipeline is to blame?

The wait of a step is, on a host with device planes, the idle time with cause `input` of the device that waits
most; without one, the union of the `IteratorGetNext…` calls that hold up the step. The bottleneck is the stage
with the most time of its own, among those that the model waits for; stages that only hand over what others
made (the root, `Prefetch`, the generator of a replica's shard) cannot be it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np

from traceview.analysis.base import Skipped
from traceview.analysis.input.advice import advice_for
from traceview.analysis.selection import Selection, rows_in
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
from traceview.robust import median_ps
from traceview.trace.input_waits import InputWaits, arrivals, find_input_waits, shards
from traceview.trace.model import NONE, Step, Trace
from traceview.trace.pipeline import (
    GENERATOR,
    InputStage,
    IteratorCalls,
    iterator_calls,
    shard_rows,
    stages_of,
)

HIGH_RATIO: Final = 0.20
"""The verdict is high from this share of the step on (METRICS: input pipeline; XProf has the same)."""

MODERATE_RATIO: Final = 0.05
"""The verdict is moderate from this share of the step on (METRICS: input pipeline; XProf has the same)."""

TOP_STAGES: Final = 10
"""Rows of the stage table in a report, unless asked otherwise."""

NOT_ATTRIBUTED: Final = "which idle time of the devices is a wait for input is not known"
NO_WAIT_RECORDED: Final = "no IteratorGetNext of the model was recorded"
NO_STEPS: Final = "no used step"

_WORKS_AHEAD = re.compile(r"Prefetch|Parallel|LegacyParallel|MapAndBatch|ParseExample|DataService")
_READS = re.compile(r"(?:TFRecord|TextLine|FixedLengthRecord|SSTable|RecordIO|LMDB|Csv)(?:V\d+)?")
_KEEPS = re.compile(r"::\w*(?:Cache|Snapshot)\w*")
_RELAYS: Final = ("Root", "Prefetch")


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
    """

    host: Hostname
    measured_by: Annotated[str, one_of("idle", "iterator")]
    device: DeviceKey | None
    wait_ps: Picoseconds | None
    wait_per_step_ps: Picoseconds | None
    input_ratio: Ratio | None
    reason: str | None


class InputStep(Record, frozen=True):
    """The input wait of one step; `used`: takes part in the medians.

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
    """One shard of a distributed dataset. `device`: key of the replica's device, None if it is not known.

    Attributes:
        host: Name of the host.
        shard: Number of the shard and of its replica.
        device: Key of the replica's device; null where it is not known.
        wait_ps: Wait of the replica's own iterator in the window, picoseconds.
        wait_per_step_ps: The same, median over the used steps, picoseconds.
        late_per_step_ps: How much later than the earliest shard its element arrived, at most what it waited
            longer, median over the used steps, picoseconds.
        late_step_count: Used steps in which that is 5 % of the step or more.
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


class Bottleneck(Record, frozen=True):
    """The stage to change first. `own_ps`: its self time without waiting; `share_ratio`: of all stages'.

    Attributes:
        host: Name of the host.
        name: Path of the stage from the root.
        kind: Last component of the path.
        own_ps: Self time without waiting for inputs, picoseconds.
        share_ratio: The same over that of all stages.
        advice: What to change.
    """

    host: Hostname
    name: StageName
    kind: StageName
    own_ps: Picoseconds
    share_ratio: Ratio
    advice: str


class Input(Record, frozen=True):
    """The input pipeline. `input_ratio`, `verdict`: of the host that waits most; None with a `reason`.

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
        missing: What the names of the stages prove to be missing.
        stages: The first stages by falling self time.
        stage_count: Stages in all.
        left_out_count: Stages that are not here.
    """

    input_ratio: Ratio | None
    verdict: Annotated[str, one_of("high", "moderate", "none")] | None
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


@dataclass(frozen=True, eq=False)
class _HostInput:
    """What is known of one host before it is put together.

    `whole`: the stages over the whole recording. `shards`: of each pipeline that a replica waits in;
    `is_distributed`: there are any, even if it is not known whose.
    """

    host: int
    calls: IteratorCalls
    waits: InputWaits
    stages: list[InputStage]
    whole: list[InputStage]
    shards: dict[int, int]
    is_distributed: bool


def compute(
    trace: Trace,
    selection: Selection,
    input_idle: Mapping[int, Int64Array] | None,
    top: int | None = TOP_STAGES,
) -> Input | Skipped:
    """The waits, shards and stages of every host.

    `input_idle`: for each device of the device list the idle picoseconds of cause input in each step of its host,
    in the order of `selection.steps`; None where that is not known. `top`: rows of stages, None for all.
    """
    known = [
        one
        for host in selection.windows
        if (one := _host_input(trace, selection, host)).calls.row.size or one.waits.row.size
    ]
    if not known:
        return Skipped("no tf.data iterator was recorded")
    steps_of = {one.host: _steps(trace, selection, one, input_idle) for one in known}
    hosts = [_host(trace, selection, one, steps_of[one.host], input_idle) for one in known]
    worst = max(range(len(known)), key=lambda place: hosts[place].input_ratio or 0.0)
    ratio = hosts[worst].input_ratio
    stages = sorted(
        (stage for one in known for stage in one.stages),
        key=lambda stage: -stage.self_ps,
    )
    shown = stages[:top]
    return Input(
        input_ratio=ratio,
        verdict=None if ratio is None else verdict_of(ratio),
        reason=hosts[worst].reason if ratio is None else None,
        hosts=tuple(hosts),
        steps=tuple(step for one in known for step in steps_of[one.host]),
        replicas=tuple(row for one in known for row in _replicas(trace, selection, one)),
        empty_ratio=_emptiness(known[worst]),
        bottleneck=_bottleneck(trace, known[worst]),
        missing=_missing(known[worst]),
        stages=tuple(shown),
        stage_count=len(stages),
        left_out_count=len(stages) - len(shown),
    )


def verdict_of(ratio: float) -> str:
    """`high`, `moderate` or `none`, by the share of the step that is spent waiting for input."""
    if ratio >= HIGH_RATIO:
        return "high"
    return "moderate" if ratio >= MODERATE_RATIO else "none"


def _host_input(trace: Trace, selection: Selection, host: int) -> _HostInput:
    columns = trace.host_columns
    calls = iterator_calls(trace, host)
    waits = find_input_waits(trace, host, calls)
    inside = rows_in(
        columns.start_ps[calls.row], columns.end_ps[calls.row], selection.windows[host]
    )
    asked = waits.pipeline[waits.pipeline != NONE]
    everything = np.arange(calls.row.size)
    return _HostInput(
        host,
        calls,
        waits,
        stages_of(trace, host, calls, inside, asked),
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
    one: _HostInput,
    input_idle: Mapping[int, Int64Array] | None,
) -> list[InputStep]:
    """The wait of each step, nothing where it is not known."""
    steps = selection.steps[one.host]
    if _has_plane(trace, one.host):
        idle = _idle_of_host(trace, one.host, input_idle)
        if not idle or not steps:
            return []
        wait = np.max(list(idle.values()), axis=0)
    elif one.waits.row.size:
        wait = union(one.waits.start_ps, one.waits.end_ps).within(*_bounds(steps))
    else:
        return []
    return [
        InputStep(
            host=trace.hosts[one.host].name,
            number=step.number,
            wait_ps=wait_ps,
            input_ratio=wait_ps / step.duration_ps if step.duration_ps else 0.0,
            used=step.excluded is None,
        )
        for step, wait_ps in zip(steps, wait.tolist(), strict=True)
    ]


def _idle_of_host(
    trace: Trace, host: int, input_idle: Mapping[int, Int64Array] | None
) -> dict[int, Int64Array]:
    return {
        device: per_step
        for device, per_step in (input_idle or {}).items()
        if trace.device_list[device].host == host
    }


def _bounds(steps: Sequence[Step]) -> tuple[Int64Array, Int64Array]:
    start = np.array([step.start_ps for step in steps], dtype=np.int64)
    return start, np.array([step.end_ps for step in steps], dtype=np.int64)


def _host(
    trace: Trace,
    selection: Selection,
    one: _HostInput,
    steps: list[InputStep],
    input_idle: Mapping[int, Int64Array] | None,
) -> InputHost:
    name = trace.hosts[one.host].name
    used = [step for step in steps if step.used]
    per_step = median_ps([step.wait_ps for step in used])
    ratio = float(np.median([step.input_ratio for step in used])) if used else None
    if _has_plane(trace, one.host):
        idle = _idle_of_host(trace, one.host, input_idle)
        device = max(idle, key=lambda key: int(idle[key].sum())) if idle else None
        return InputHost(
            host=name,
            measured_by="idle",
            device=None if device is None else trace.device_key(device),
            wait_ps=sum(step.wait_ps for step in steps) if steps else None,
            wait_per_step_ps=per_step,
            input_ratio=ratio,
            reason=None if used else NO_STEPS if idle else NOT_ATTRIBUTED,
        )
    waited, window = None, selection.windows[one.host]
    if one.waits.row.size:
        waits = union(one.waits.start_ps, one.waits.end_ps)
        waited = int(waits.within(window.start_ps, window.end_ps))
        if not selection.steps[one.host] and window.length_ps:
            ratio = waited / window.length_ps
    absent = NO_WAIT_RECORDED if waited is None else NO_STEPS
    return InputHost(
        host=name,
        measured_by="iterator",
        device=None,
        wait_ps=waited,
        wait_per_step_ps=per_step,
        input_ratio=ratio,
        reason=absent if ratio is None else None,
    )


# Shards


def _replicas(trace: Trace, selection: Selection, one: _HostInput) -> list[InputReplica]:
    """The shards of a distributed dataset, in their order, over the used steps."""
    steps = [step for step in selection.steps[one.host] if step.excluded is None]
    if not steps or not one.shards:
        return []
    waits, window = one.waits, selection.windows[one.host]
    start, end = _bounds(steps)
    arrived = arrivals(trace, one.calls, waits)
    of_shard = sorted(one.shards, key=lambda pipeline: one.shards[pipeline])
    unions = [
        union(waits.start_ps[waits.pipeline == p], waits.end_ps[waits.pipeline == p])
        for p in of_shard
    ]
    wait = np.stack([each.within(start, end) for each in unions])
    late = _lateness(waits, arrived, of_shard, wait, start, end)
    enough = MODERATE_RATIO * (end - start)
    keys = {
        device.ordinal: trace.device_key(index)
        for index, device in enumerate(trace.device_list)
        if device.host == one.host
    }
    return [
        InputReplica(
            host=trace.hosts[one.host].name,
            shard=shard,
            device=keys.get(shard),
            wait_ps=int(unions[shard].within(window.start_ps, window.end_ps)),
            wait_per_step_ps=median_ps(wait[shard]) or 0,
            late_per_step_ps=median_ps(late[shard]) or 0,
            late_step_count=int((late[shard] >= enough).sum()),
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
    """How much later than the earliest each shard arrived in each step, at most what it waited longer."""
    arrival = np.empty_like(wait)
    for place, (begin, finish) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        inside = (waits.start_ps >= begin) & (waits.start_ps < finish)
        asked = int(waits.start_ps[inside].min(initial=finish))
        for shard, pipeline in enumerate(of_shard):
            mine = arrived[inside & (waits.pipeline == pipeline)]
            # What was there before it was first asked for was not late at all.
            arrival[shard, place] = max(int(mine.max(initial=asked)), asked)
    late: Int64Array = np.minimum(wait - wait.min(axis=0), arrival - arrival.min(axis=0))
    return late


# Stages


def kind_of(name: str) -> str:
    """The last component of a stage's path: what the stage is."""
    return name.rpartition("::")[2]


def _waited_for(one: _HostInput, stages: Sequence[InputStage]) -> list[InputStage]:
    """The stages that may hold up the model, without those that only hand over."""
    asked = [stage for stage in stages if stage.blocking or one.is_distributed]
    return [
        stage
        for stage in asked or stages
        if kind_of(stage.name) not in _RELAYS
        and not (one.is_distributed and stage.blocking and stage.name.endswith(GENERATOR))
    ]


def _bottleneck(trace: Trace, one: _HostInput) -> Bottleneck | None:
    candidates = _waited_for(one, one.stages)
    whole = sum(stage.own_ps for stage in candidates)
    if whole <= 0:
        return None
    most = max(candidates, key=lambda stage: stage.own_ps)
    kind = kind_of(most.name)
    return Bottleneck(
        host=trace.hosts[one.host].name,
        name=most.name,
        kind=kind,
        own_ps=most.own_ps,
        share_ratio=most.own_ps / whole,
        advice=advice_for(kind, most.parallelism),
    )


def _emptiness(one: _HostInput) -> float | None:
    """How often the buffer of the stage below the root was empty, where the model asks it."""
    found = [s.empty_ratio for s in one.stages if s.blocking and len(_path(s.name)) == 1]
    return max((ratio for ratio in found if ratio is not None), default=None)


def _missing(one: _HostInput) -> tuple[str, ...]:
    """What the names of the stages prove to be missing; nothing is said of a pipeline without names."""
    names = [stage.name for stage in _waited_for(one, one.whole)]
    paths = [_path(name) for name in names]
    reading = [name for name in names if _READS.fullmatch(kind_of(name))]
    found = []
    # A distributed dataset works ahead by itself, on the threads that fill the shards.
    if not one.is_distributed and any(not _WORKS_AHEAD.match(path[0]) for path in paths if path):
        found.append("prefetch")
    if any("Map" in path for path in paths):
        found.append("parallel_map")
    if any("Interleave" in path for path in paths) or any("Interleave" not in n for n in reading):
        found.append("parallel_interleave")
    if reading and not any(_KEEPS.search(name) for name in names):
        found.append("cache")
    return tuple(found)


def _path(name: str) -> list[str]:
    """The components below the root."""
    parts = name.split("::")[1:]
    return parts[1:] if parts[:1] == ["Root"] else parts
