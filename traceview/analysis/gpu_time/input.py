"""Input: how long the model waits for data, for which host, and which stage of the pipeline is slowest.

The wait of a host is what the ledger has as input of the device that waits most. On a host without devices it is the
union of the `IteratorGetNext…` calls that hold up the step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from traceview.analysis.facts.input_supply import InputSupply, input_supplies
from traceview.analysis.gpu_time.input_rules import INPUT_BOUND, wait_of_host, waits_of_devices
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.rules.finding import Finding, Skipped
from traceview.base.record import (
    Count,
    DeviceKey,
    Hostname,
    Picoseconds,
    Ratio,
    Record,
    StageName,
)
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, table
from traceview.ledger.states import State
from traceview.trace.host.pipeline import SLOW_CALL_PS, InputStage

TOP_STAGES: Final = 10
"""Rows of the stage table in a report, unless asked otherwise."""

_LONG_RATIO: Final = 0.05
"""Of the step: a wait that is worth a remark, as in XProf."""


class InputHost(Record, frozen=True):
    """How long one host's model waited for input.

    Attributes:
        host: Name of the host.
        device: Key of the device whose time in state input it is, the one that waits most; null where it is the time in
            calls of IteratorGetNext that held up the step.
        wait_ps: Wait in the used steps, or without steps in the window, picoseconds; null where not known.
        wait_per_step_ps: Mean over the used steps, rounded down, picoseconds; null without steps.
        input_ratio: Share of the used steps that is waiting for input; of the window without steps; null where not known.
        slowest_stage: Path of the stage with the longest own time; null where no stage was recorded.
        work_ratio: Own time of that stage over the window; above 1 where several threads run it.
        empty_step_ratio: Share of the used steps in which a request met an empty prefetch buffer between that
            stage and the model, of the buffer for which it is least; null without a recorded buffer.
        keeps_up: Whether the pipeline delivers as fast as the model takes, so that its requests wait for nothing.
    """

    host: Hostname
    device: DeviceKey | None
    wait_ps: Picoseconds | None
    wait_per_step_ps: Picoseconds | None
    input_ratio: Ratio | None
    slowest_stage: StageName | None
    work_ratio: Ratio | None
    empty_step_ratio: Ratio | None
    keeps_up: bool


class Input(Record, frozen=True):
    """The input pipeline, and how long the model waits for it.

    Attributes:
        input_ratio: Share of the used steps spent waiting for input on the host that waits most; of the window without
            steps; null where not known.
        hosts: How long the model of each host waited.
        lacks_prefetch: Whether the pipeline of the host that waits most does not work ahead, by the names of its stages.
        stages: Stages with the longest self time, the longest first.
        stage_count: Stages in all.
    """

    input_ratio: Ratio | None
    hosts: tuple[InputHost, ...]
    lacks_prefetch: bool
    stages: tuple[InputStage, ...]
    stage_count: Count

    @property
    def worst(self) -> InputHost:
        """The host that waits most."""
        return max(self.hosts, key=lambda row: row.input_ratio or 0.0)

    @property
    def is_long(self) -> bool:
        """Whether the wait is worth a remark."""
        return (self.input_ratio or 0.0) >= _LONG_RATIO


def compute(context: Context) -> Input | Skipped:
    """The waits and stages of every host."""
    supplies = context.once(input_supplies)
    if not supplies:
        return Skipped("no tf.data iterator was recorded")
    rows = {host: _host(context, host, supply) for host, supply in supplies.items()}
    worst = max(rows, key=lambda host: rows[host].input_ratio or 0.0)
    stages = sorted(
        (stage for supply in supplies.values() for stage in supply.stages),
        key=lambda stage: -stage.self_ps,
    )
    return Input(
        input_ratio=rows[worst].input_ratio,
        hosts=tuple(rows.values()),
        lacks_prefetch=supplies[worst].lacks_prefetch,
        stages=tuple(stages[: context.options.rows_of(TOP_STAGES)]),
        stage_count=len(stages),
    )


def _input_ps(context: Context) -> dict[int, int]:
    """How long each device waits for input."""
    return context.ledger.by_device(context.ledger.rows(states=(State.INPUT,)))


def _host(context: Context, host: int, supply: InputSupply) -> InputHost:
    selection, waited = context.selection, context.once(_input_ps)
    steps, used = selection.steps[host], selection.used_of(host)
    devices = [device for device in context.trace.devices_of_host[host] if device in waited]
    device = max(devices, key=lambda device: waited[device], default=None)
    wait_ps = supply.wait_ps if device is None else waited[device]
    if device is None and used and supply.wait_of_steps is not None:
        of_steps = zip(steps, supply.wait_of_steps, strict=True)
        wait_ps = sum(ps for step, ps in of_steps if step.excluded is None)
    whole_ps = sum(step.duration_ps for step in used)
    if not steps:
        whole_ps = selection.windows[host].length_ps
    return InputHost(
        host=context.trace.hosts[host].name,
        device=None if device is None else context.trace.device_key(device),
        wait_ps=wait_ps,
        wait_per_step_ps=None if wait_ps is None or not used else wait_ps // len(used),
        input_ratio=None if wait_ps is None or not whole_ps else wait_ps / whole_ps,
        slowest_stage=supply.slowest.name if supply.slowest else None,
        work_ratio=supply.work_ratio,
        empty_step_ratio=supply.empty_step_ratio,
        keeps_up=not supply.is_short,
    )


def diagnose(context: Context, result: Input | None) -> Iterator[Finding | None]:
    """What devices wait for input; without recorded devices, what the thread of the step waits for batches.

    `result`: None where no iterator was recorded.
    """
    if context.ledger.devices:
        yield waits_of_devices(context)
    elif result is not None:
        worst = result.worst
        hosts = {context.trace.hosts[host].name: host for host in context.selection.windows}
        if worst.wait_ps is not None and worst.input_ratio is not None and not worst.keeps_up:
            yield from wait_of_host(context, hosts[worst.host], worst.wait_ps)


# The section

TITLE: Final = "Input pipeline"
WORK: Final = (
    "Time in its calls is added up over all threads, with what a stage waits for there; of a parallel map it is the wait for its "
    "functions, which run on other threads. Handing over: a stage waits for, or takes, elements of stages on other threads."
)
_ASKED_BY: Final = {True: "model", False: "background threads"}


def section(view: View, result: Input) -> doc.Section:
    """The wait, and the hosts and stages."""
    everything = f"{view.command('analyze')} --format json"
    stages = sorted(result.stages, key=lambda stage: -stage.own_ps)[: view.few_rows]
    return doc.Section(
        "input",
        TITLE,
        (
            # With a single host the lead gives it.
            *table(
                "Input wait by host",
                result.hosts[: view.few_rows] if len(result.hosts) > 1 else (),
                _HOSTS,
                row_count=len(result.hosts),
                rest=everything,
            ),
            *table(
                "Stages of the input pipeline",
                stages,
                _STAGES,
                row_count=result.stage_count,
                rest=view.command("show input"),
            ),
            *doc.remarks(WORK if stages else None),
        ),
        lead=_lead(result),
    )


def _lead(result: Input) -> str:
    worst = result.worst
    if result.input_ratio is None:
        return "Input wait: unknown."
    whole = "window" if worst.wait_per_step_ps is None else "step"
    share = numbers.percent(result.input_ratio)
    who = worst.device or "The thread that runs the steps"
    if worst.keeps_up and result.is_long:
        return f"{who} loses {share} of the {whole} to input, though a batch is ready when the model asks."
    lead = f"{who} waits {share} of the {whole} for input."
    keeps_up = " The pipeline keeps up: a batch is ready when the model asks."
    return lead + keeps_up if worst.keeps_up else lead


_HOSTS: Final = (
    Shown("host", "host", kind="name"),
    Shown("share of the step", "input_ratio", kind="share"),
    Shown("wait per step", "wait_per_step_ps", 1, kind="time"),
    Shown("device", "device", 2, kind="device", meaning="the device of the host that waits most"),
)
_STAGES: Final = (
    Shown("stage", lambda row: _path(row.name), kind="name"),
    Shown("calls function", "function", 2, if_several=True),
    Shown("host", "host", 3, kind="name", if_several=True),
    Shown("asked by", lambda row: _ASKED_BY[row.blocking], kind="words", if_several=True),
    Shown(
        "in its calls",
        "own_ps",
        kind="time",
        meaning="time in the window, without the stages that it calls or waits for",
    ),
    Shown(
        "handing over",
        "waiting_ps",
        1,
        kind="time",
        meaning="for stages on other threads, in the window",
    ),
    Shown("calls", "calls", 4, kind="count"),
    Shown(f"over {numbers.time(SLOW_CALL_PS)}", "slow_count", 5, kind="count"),
    Shown("parallel calls", "parallelism", 6, kind="count"),
    Shown("buffer", lambda row: _buffer(row), 7, kind="words"),
    Shown("calls with empty buffer", "empty_ratio", 3, kind="share"),
)


def _path(name: str) -> str:
    """The path of a stage from the root."""
    return name.removeprefix("Iterator::")


def _buffer(row: InputStage) -> str | None:
    """The typical fill of the buffer, and its size."""
    if row.buffered_median is None:
        return None
    size = "" if row.buffer_limit is None else f" of {row.buffer_limit}"
    return f"{row.buffered_median}{size}"


ANALYSIS: Final = Analysis[Input](
    "input",
    compute=compute,
    rules=(INPUT_BOUND,),
    diagnose=diagnose,
    if_absent=lambda context: diagnose(context, None),
    sections=(section,),
    rows=(InputStage, lambda result: result.stages),
)
