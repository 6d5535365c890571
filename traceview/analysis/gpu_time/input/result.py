"""Measures how long the model waits for input, for which shard, and which stage of the pipeline is slowest.

The wait of a host is what the ledger has as input of the device that waits most. On a host without devices it is the
union of the `IteratorGetNext…` calls that hold up the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import numpy as np

from traceview.analysis.facts.input_supply import InputShard, InputSupply, input_supplies
from traceview.analysis.measures.context import Context
from traceview.analysis.rules.finding import Skipped, Verdict
from traceview.base.record import (
    Count,
    DeviceKey,
    Hostname,
    Integer,
    Picoseconds,
    Ratio,
    Record,
    StageName,
    Words,
    one_of,
)
from traceview.ledger.states import State
from traceview.trace.host.pipeline import InputStage, kind_of

TOP_STAGES: Final = 10
"""Rows of the stage table in a report, unless asked otherwise."""

MODERATE_RATIO: Final = 0.05
HIGH_RATIO: Final = 0.20
"""Of the step: waits from which on the verdict is moderate, and high (XProf's limits)."""

NO_WAIT_RECORDED: Final = "no IteratorGetNext call of the model was recorded"
NO_STEPS: Final = "no used step"


class InputHost(Record, frozen=True):
    """How long one host's model waited for input.

    Attributes:
        host: Name of the host.
        measured_by: ledger: time of a device in state input; iterator: calls of IteratorGetNext that held up the step.
        device: Key of the device that waits most; null where the host's calls are measured.
        wait_ps: Wait in the used steps, or without steps in the window, picoseconds; null where not known.
        wait_per_step_ps: Mean over the used steps, rounded down, picoseconds; null without steps.
        input_ratio: Share of the used steps that is waiting for input; of the window without steps; null where not known.
        reason: Why there is no ratio; null where there is one.
        slowest_stage: Path of the stage with the longest own time; null where no stage was recorded.
        work_ratio: Own time of that stage over the window; above 1 where several threads run it.
        empty_step_ratio: Share of the used steps in which a request met an empty prefetch buffer between that
            stage and the model, of the buffer for which it is least; null without a recorded buffer.
        empty_wait_ratio: Share of the time in requests of the used steps that lies in steps in which one met an empty
            buffer, of the buffer for which it is least; null without a recorded buffer or a wait.
        work_of_wait_ratio: Own time of that stage over the time in requests; null without a wait.
        keeps_up: Whether the pipeline delivers as fast as the model takes, so that its requests wait for nothing.
    """

    host: Hostname
    measured_by: Annotated[str, one_of("ledger", "iterator")]
    device: DeviceKey | None
    wait_ps: Picoseconds | None
    wait_per_step_ps: Picoseconds | None
    input_ratio: Ratio | None
    reason: Words | None
    slowest_stage: StageName | None
    work_ratio: Ratio | None
    empty_step_ratio: Ratio | None
    empty_wait_ratio: Ratio | None
    work_of_wait_ratio: Ratio | None
    keeps_up: bool


class InputStep(Record, frozen=True):
    """The input wait of one step.

    Attributes:
        host: Name of the host.
        number: Number of the step.
        wait_ps: Wait for input, picoseconds.
        input_ratio: The same over the duration of the step.
        used: Whether the step takes part in the statistics.
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
    """

    host: Hostname
    name: StageName
    kind: StageName
    own_ps: Picoseconds
    share_ratio: Ratio


class Input(Record, frozen=True):
    """The input pipeline, and how long the model waits for it.

    Attributes:
        input_ratio: Share of the used steps spent waiting for input on the host that waits most; of the window without
            steps; null where not known.
        verdict: high from 0.20 on, moderate from 0.05 on, else none; null without a ratio.
        reason: Why there is no ratio; null where there is one.
        hosts: How long the model of each host waited.
        steps: The wait of every step in the window.
        shards: The shards of a distributed dataset; empty without one, and where it is not known whose they are.
        empty_ratio: How often the buffer that the model takes from was found empty; null where not recorded.
        bottleneck: The stage to change first; null where no stage was recorded.
        missing: What the pipeline lacks, by the names of its stages.
        stages: Stages with the longest self time, the longest first.
        stage_count: Stages in all.
        left_out_count: Stages that are not listed.
    """

    input_ratio: Ratio | None
    verdict: Verdict | None
    reason: Words | None
    hosts: tuple[InputHost, ...]
    steps: tuple[InputStep, ...]
    shards: tuple[InputShard, ...]
    empty_ratio: Ratio | None
    bottleneck: Bottleneck | None
    missing: tuple[
        Annotated[str, one_of("prefetch", "parallel_map", "parallel_interleave", "cache")], ...
    ]
    stages: tuple[InputStage, ...]
    stage_count: Count
    left_out_count: Count


def verdict_of(ratio: float) -> Verdict:
    """How much of the step a wait is, as XProf words it."""
    return "high" if ratio >= HIGH_RATIO else "moderate" if ratio >= MODERATE_RATIO else "none"


def compute(context: Context, top: int | None = TOP_STAGES) -> Input | Skipped:
    """The waits, shards and stages of every host. `top`: rows of stages, None for all."""
    supplies = context.once(input_supplies)
    if not supplies:
        return Skipped("no tf.data iterator was recorded")
    waits = {host: _waits(context, host, supply) for host, supply in supplies.items()}
    rows = {host: _host(context, host, supplies[host], waits[host]) for host in supplies}
    worst = max(rows, key=lambda host: rows[host].input_ratio or 0.0)
    ratio = rows[worst].input_ratio
    stages = sorted(
        (stage for supply in supplies.values() for stage in supply.stages),
        key=lambda stage: -stage.self_ps,
    )
    listed = stages[:top]
    return Input(
        input_ratio=ratio,
        verdict=None if ratio is None else verdict_of(ratio),
        reason=rows[worst].reason if ratio is None else None,
        hosts=tuple(rows.values()),
        steps=tuple(step for host in waits for step in _steps(context, host, waits[host])),
        shards=tuple(shard for supply in supplies.values() for shard in supply.shards),
        empty_ratio=supplies[worst].empty_ratio,
        bottleneck=_bottleneck(rows[worst].host, supplies[worst]),
        missing=supplies[worst].missing,
        stages=tuple(listed),
        stage_count=len(stages),
        left_out_count=len(stages) - len(listed),
    )


_Waits = tuple[int | None, Mapping[int, int], int | None]
"""The device that waits most, the wait by place of the step among those of the host, and the wait in the window."""


def _waits(context: Context, host: int, supply: InputSupply) -> _Waits:
    """What is known of the wait of a host; no wait in the window where nothing is."""
    trace, ledger = context.trace, context.ledger
    devices = [device for device in ledger.devices if trace.device_list[device].host == host]
    if not devices:
        return None, dict(enumerate(supply.wait_of_steps or ())), supply.wait_ps
    is_input = ledger.rows(states=(State.INPUT,))
    waited = {device: ledger.by_state(device, is_input).get(State.INPUT, 0) for device in devices}
    most = max(waited, key=lambda device: waited[device])
    of_steps = ledger.states_of_steps(most)[State.INPUT]
    own = np.array([step.host == host for step in ledger.steps], dtype=np.bool_)
    return most, dict(enumerate(of_steps[own].tolist())), waited[most]


def _steps(context: Context, host: int, waits: _Waits) -> list[InputStep]:
    """The wait of each step; empty where it is not known."""
    steps = context.selection.steps[host]
    return [
        InputStep(
            host=context.trace.hosts[host].name,
            number=steps[place].number,
            wait_ps=wait_ps,
            input_ratio=wait_ps / steps[place].duration_ps if steps[place].duration_ps else 0.0,
            used=steps[place].excluded is None,
        )
        for place, wait_ps in waits[1].items()
    ]


def _host(context: Context, host: int, supply: InputSupply, waits: _Waits) -> InputHost:
    device, of_steps, in_window_ps = waits
    selection, steps = context.selection, context.selection.steps[host]
    used = [place for place in of_steps if steps[place].excluded is None]
    whole_ps = sum(steps[place].duration_ps for place in used)
    wait_ps: int | None = sum(of_steps[place] for place in used)
    if not used:
        wait_ps = in_window_ps
        whole_ps = 0 if steps else selection.windows[host].length_ps
    is_known = wait_ps is not None and whole_ps > 0
    absent = NO_WAIT_RECORDED if wait_ps is None else NO_STEPS
    return InputHost(
        host=context.trace.hosts[host].name,
        measured_by="iterator" if device is None else "ledger",
        device=None if device is None else context.trace.device_key(device),
        wait_ps=wait_ps,
        wait_per_step_ps=(wait_ps or 0) // len(used) if used else None,
        input_ratio=(wait_ps or 0) / whole_ps if is_known else None,
        reason=None if is_known else absent,
        slowest_stage=supply.slowest.name if supply.slowest else None,
        work_ratio=supply.work_ratio,
        empty_step_ratio=supply.empty_step_ratio,
        empty_wait_ratio=supply.empty_wait_ratio,
        work_of_wait_ratio=supply.work_of_wait_ratio,
        keeps_up=not supply.is_short,
    )


def _bottleneck(host: str, supply: InputSupply) -> Bottleneck | None:
    slowest = supply.slowest
    if slowest is None:
        return None
    return Bottleneck(
        host=host,
        name=slowest.name,
        kind=kind_of(slowest.name),
        own_ps=slowest.own_ps,
        share_ratio=supply.share_ratio,
    )
