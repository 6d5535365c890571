"""Scaling: how much faster a run is than a baseline on one device, and in which states the difference is spent."""

from __future__ import annotations

from typing import Annotated, Final

from traceview.analysis.facts.devices import devices_in_use
from traceview.analysis.facts.run import throughput_of
from traceview.analysis.facts.selection import select
from traceview.analysis.measures.context import Analysis, Context, View
from traceview.analysis.rules.finding import Skipped
from traceview.base.record import (
    Count,
    Integer,
    PathName,
    Picoseconds,
    Ratio,
    Record,
    RunName,
    Words,
    one_of,
)
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import STATES, look_of
from traceview.ledger.states import KEYS, State

_StateKey = Annotated[str, one_of(*KEYS)]


class ScalingRun(Record, frozen=True):
    """One of the two runs.

    Attributes:
        logdir: Log directory that it was read from.
        run: Name of the run.
        device_count: Devices that computed.
        step_ps: Mean step over these devices, rounded down, picoseconds.
        batch_size: Examples of one step; null where not known.
        states: Picoseconds of the mean step in each state, mean over these devices, rounded down.
    """

    logdir: PathName
    run: RunName
    device_count: Count
    step_ps: Picoseconds
    batch_size: Count | None
    states: dict[_StateKey, Count]


class Scaling(Record, frozen=True):
    """This run compared with a baseline.

    Attributes:
        this: This run.
        baseline: The baseline.
        speedup: Examples per second over those of the baseline; null where a batch size is not known.
        speedup_by_step: The same from step times alone, as if each device had as many examples as in the
            baseline.
        scaling_efficiency_ratio: The speed-up (speedup_by_step where speedup is null) over the ratio of device
            counts.
        states: Picoseconds by state of the mean step of this run less those of the baseline.
        reason: Why the speed-up is not known; null where it is.
    """

    this: ScalingRun
    baseline: ScalingRun
    speedup: Ratio | None
    speedup_by_step: Ratio
    scaling_efficiency_ratio: Ratio
    states: dict[_StateKey, Integer]
    reason: Words | None


def compute(context: Context) -> Scaling | Skipped:
    """Compare a run with its baseline, of which the window `auto` counts."""
    trace = context.options.baseline
    if trace is None:
        return Skipped("no baseline was given; --baseline adds a run on one device")
    this = _run(context)
    if isinstance(this, Skipped):
        return this
    baseline = _run(Context(trace, select(trace)))
    if isinstance(baseline, Skipped):
        return Skipped(f"the baseline cannot be compared: {baseline.reason}")
    factor = this.device_count / baseline.device_count
    by_step = factor * baseline.step_ps / this.step_ps
    speedup = None
    if this.batch_size is not None and baseline.batch_size:
        speedup = this.batch_size / baseline.batch_size * baseline.step_ps / this.step_ps
    return Scaling(
        this=this,
        baseline=baseline,
        speedup=speedup,
        speedup_by_step=by_step,
        scaling_efficiency_ratio=(by_step if speedup is None else speedup) / factor,
        states={
            key: this.states.get(key, 0) - baseline.states.get(key, 0)
            for key in KEYS
            if key in this.states or key in baseline.states
        },
        reason=_reason(this, baseline) if speedup is None else None,
    )


def _reason(this: ScalingRun, baseline: ScalingRun) -> str:
    runs = (("this run", this), ("the baseline", baseline))
    lacking = " and of ".join(name for name, run in runs if not run.batch_size)
    return (
        f"the batch size of {lacking} is not known, so step times are compared as if each device had as many examples "
        "in both runs"
    )


def _run(context: Context) -> ScalingRun | Skipped:
    """The mean step of one run by state."""
    trace, ledger = context.trace, context.ledger
    in_use = devices_in_use(trace, context.selection, context.activities)
    step_count = sum(ledger.steps_of_device[device] for device in in_use)
    if not step_count:
        return Skipped(f"run {trace.run} has no step in which a device computed")
    total = dict.fromkeys(State, 0)
    for device in in_use:
        for state, ps in ledger.by_state(device).items():
            total[state] += ps
    return ScalingRun(
        logdir=str(trace.logdir),
        run=trace.run,
        device_count=len(in_use),
        step_ps=sum(total.values()) // step_count,
        batch_size=throughput_of(trace, context.selection, len(in_use)).batch_size,
        states={state.key: ps // step_count for state, ps in total.items() if ps},
    )


def scaling_section(view: View, result: Scaling) -> doc.Section:
    """The mean steps of both runs, state by state."""
    del view
    keys = list(result.states)
    return doc.Section(
        "scaling",
        "Scaling",
        (
            *doc.facts(
                f"this run: {_step(result.this)}",
                f"baseline: {_step(result.baseline)}, run {result.baseline.run} in {result.baseline.logdir}",
            ),
            *doc.table(
                "Mean step in both runs by state",
                (
                    doc.words("state", [look_of(STATES, key).words for key in keys]),
                    doc.times("baseline", map(result.baseline.states.get, keys), priority=1),
                    doc.times("this run", map(result.this.states.get, keys), priority=2),
                    doc.signed_times("difference", map(result.states.get, keys)),
                ),
            ),
            *doc.remarks(
                "Means over the devices that computed.", numbers.sentence(result.reason or "")
            ),
        ),
        lead=_summary(result),
    )


def _step(run: ScalingRun) -> str:
    return f"{numbers.time(run.step_ps)} per step on {numbers.plural(run.device_count, 'device')}"


def _summary(result: Scaling) -> str:
    """How much faster than the baseline, in a sentence."""
    factor = numbers.number(result.this.device_count / result.baseline.device_count)
    efficiency = numbers.share(result.scaling_efficiency_ratio)
    speed = (
        f"{result.speedup_by_step:.2f}× the speed of the baseline by step time"
        if result.speedup is None
        else f"{result.speedup:.2f}× the examples per second of the baseline"
    )
    return f"{speed} on {factor}× the devices: {efficiency} scaling efficiency."


ANALYSIS: Final = Analysis[Scaling]("scaling", compute=compute, sections=(scaling_section,))
