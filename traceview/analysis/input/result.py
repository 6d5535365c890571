"""Measures how long the model waits for input, for which shard, and which stage of the pipeline is slowest.

On a host with device planes the wait of a step is the idle time with cause `input` of the device that waits most;
on others it is the union of the `IteratorGetNext…` calls that hold up the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import numpy as np
from msgspec.structs import replace

from traceview.analysis.base import Skipped, Verdict
from traceview.analysis.cost import mean_of_steps
from traceview.analysis.input.advice import advice_for
from traceview.analysis.input.host_pipelines import HostPipelines, pipelines_of
from traceview.analysis.input.late_shards import InputReplica, late_shards
from traceview.analysis.input.rules import INPUT_BOUND
from traceview.analysis.input.supply import Supply, supply_of
from traceview.analysis.of_hosts import OfHosts
from traceview.analysis.selection import Selection, covered_ps, step_bounds
from traceview.document import numbers
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
from traceview.trace.model import Trace
from traceview.trace.pipeline import (
    InputStage,
    kind_of,
)

TOP_STAGES: Final = 10
"""Rows of the stage table in a report, unless asked otherwise."""

NOT_ATTRIBUTED: Final = "the causes of idle time are not known"
NO_WAIT_RECORDED: Final = "no IteratorGetNext call of the model was recorded"
NO_STEPS: Final = "no used step"


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


def work_words(ratio: float) -> str:
    """`works 70.0% of the window`: how long a stage works, on one thread or on several."""
    more = ", on more than one thread" if ratio > 1 else ""
    return f"works {numbers.share(ratio)} of the window{more}"


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
        pipelines
        for host in selection.windows
        if (pipelines := pipelines_of(trace, selection, host)).calls.row.size
        or pipelines.waits.row.size
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
        replicas=tuple(row for each in inputs for row in late_shards(trace, selection, each)),
        empty_ratio=inputs[worst].empty_ratio,
        bottleneck=_bottleneck(trace, inputs[worst]),
        missing=inputs[worst].missing,
        stages=tuple(listed),
        stage_count=len(stages),
        left_out_count=len(stages) - len(listed),
    )


def join(hosts: OfHosts[Input]) -> Input:
    """The waits, shards and stages of all hosts. Each has no more than `TOP_STAGES` stages, the longest."""
    each = hosts.by_host
    worst = max(each, key=lambda result: result.input_ratio or 0.0)
    stages = sorted(
        (stage for result in each for stage in result.stages), key=lambda stage: -stage.self_ps
    )
    listed = stages[:TOP_STAGES]
    stage_count = sum(result.stage_count for result in each)
    return replace(
        worst,
        hosts=tuple(row for result in each for row in result.hosts),
        steps=tuple(step for result in each for step in result.steps),
        replicas=tuple(row for result in each for row in result.replicas),
        stages=tuple(listed),
        stage_count=stage_count,
        left_out_count=stage_count - len(listed),
    )


# Waits


def _has_plane(trace: Trace, host: int) -> bool:
    return any(device.host == host and device.kind != "replica" for device in trace.device_list)


def _steps(
    trace: Trace,
    selection: Selection,
    pipelines: HostPipelines,
    input_idle: Mapping[int, Int64Array],
) -> list[InputStep]:
    """The wait of each step; empty where it is not known."""
    steps = selection.steps[pipelines.host]
    if _has_plane(trace, pipelines.host):
        idle = _idle_of_host(trace, pipelines.host, input_idle)
        if not idle or not steps:
            return []
        wait = np.max(list(idle.values()), axis=0)
    elif pipelines.waits.row.size:
        wait = union(pipelines.waits.start_ps, pipelines.waits.end_ps).within(*step_bounds(steps))
    else:
        return []
    return [
        InputStep(
            host=trace.hosts[pipelines.host].name,
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
    pipelines: HostPipelines,
    steps: list[InputStep],
    input_idle: Mapping[int, Int64Array],
) -> InputHost:
    window, used = selection.windows[pipelines.host], [step for step in steps if step.used]
    supply = _supply(trace, selection, pipelines, [step.wait_ps for step in used])
    row = InputHost(
        host=trace.hosts[pipelines.host].name,
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
    if _has_plane(trace, pipelines.host):
        idle = _idle_of_host(trace, pipelines.host, input_idle)
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
    if pipelines.waits.row.size:
        waits = union(pipelines.waits.start_ps, pipelines.waits.end_ps)
        waited = covered_ps(waits, window)
        if not selection.steps[pipelines.host] and window.length_ps:
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
    trace: Trace, selection: Selection, pipelines: HostPipelines, wait_ps: Sequence[int]
) -> Supply | None:
    stage, window = pipelines.slowest, selection.windows[pipelines.host]
    if stage is None:
        return None
    steps = selection.used_of(pipelines.host)
    start, end = (each.tolist() for each in step_bounds(steps))
    bounds = (start, end) if steps else ([window.start_ps], [window.end_ps])
    asked = pipelines.waits.pipeline
    return supply_of(trace, pipelines.calls, asked, stage, window.length_ps, bounds, wait_ps)


def _bottleneck(trace: Trace, pipelines: HostPipelines) -> Bottleneck | None:
    slowest = pipelines.slowest
    if slowest is None:
        return None
    kind = kind_of(slowest.name)
    fills = "Shuffle" if pipelines.fills_a_shuffle(slowest) else kind
    return Bottleneck(
        host=trace.hosts[pipelines.host].name,
        name=slowest.name,
        kind=kind,
        own_ps=slowest.own_ps,
        share_ratio=slowest.own_ps / sum(stage.own_ps for stage in pipelines.candidates),
        advice=advice_for(fills, slowest.parallelism),
    )
