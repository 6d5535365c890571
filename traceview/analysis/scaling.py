"""How much faster is the job than on one device, and where did the rest go?

The step of each run is split along its critical device, the one that computes longest in the step:

    step = mean compute + imbalance + exposed communication + waiting for input + waiting for launches + the rest

Parts are medians over the used steps, and the rest is what is left of the median step, so the parts of a run sum to
its median step, and their differences to the difference of the two, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from msgspec.structs import asdict

from traceview.analysis.activity import DeviceActivity, activities
from traceview.analysis.balance.result import devices_in_use
from traceview.analysis.balance.throughput import Throughput, throughput_of
from traceview.analysis.base import Skipped
from traceview.analysis.context import Analysis
from traceview.analysis.idle_attribution import attribute_idle_time
from traceview.analysis.joined_steps import JoinedSteps, joined_steps
from traceview.analysis.selection import Selection, select
from traceview.intervals import Int64Array
from traceview.record import Count, Integer, PathName, Picoseconds, Ratio, Record, RunName
from traceview.robust import median_ps
from traceview.trace.cause import Cause
from traceview.trace.model import Trace
from traceview.xplane.planes import ActivityClass

NO_BASELINE: Final = "no baseline was given: --baseline LOGDIR of a run on one device"


class ScalingParts(Record, frozen=True):
    """The median step of a run, or the difference of two, in picoseconds; they sum to it.

    Attributes:
        compute_ps: Mean compute of the devices, picoseconds.
        imbalance_ps: What the one that computes longest computes more, picoseconds.
        communication_ps: Its exposed collectives, picoseconds.
        input_ps: Its idle time for input, picoseconds.
        launch_ps: Its idle time for launches, picoseconds.
        other_ps: The rest: copies and other waiting, picoseconds.
    """

    compute_ps: Integer
    imbalance_ps: Integer
    communication_ps: Integer
    input_ps: Integer
    launch_ps: Integer
    other_ps: Integer


class ScalingRun(Record, frozen=True):
    """One of the two runs: `step_ps` is its median step, `batch_size` the examples of one.

    Attributes:
        logdir: Where it was read.
        run: Name of the run.
        device_count: Devices that computed.
        step_ps: Its median step, picoseconds.
        batch_size: Examples of one step; null where not known.
        parts: Where the step goes; the parts sum to it.
    """

    logdir: PathName
    run: RunName
    device_count: Count
    step_ps: Picoseconds
    batch_size: Count | None
    parts: ScalingParts


class Scaling(Record, frozen=True):
    """This run beside a baseline.

    Attributes:
        this: This run.
        baseline: The baseline.
        speedup: Examples per second over those of the baseline; null where a batch size is not known.
        speedup_by_step: The same if every device had as many examples as in the baseline, from the step times
            alone.
        scaling_efficiency_ratio: The speed-up, without it the one by step, over how many times as many devices
            there are.
        difference_ps: The median step less the baseline's, picoseconds.
        parts: Where the difference comes from; the parts sum to it.
        reason: Why the speed-up is not known; null where it is.
    """

    this: ScalingRun
    baseline: ScalingRun
    speedup: Ratio | None
    speedup_by_step: Ratio
    scaling_efficiency_ratio: Ratio
    difference_ps: Integer
    parts: ScalingParts
    reason: str | None


def baseline_run(trace: Trace) -> ScalingRun | Skipped:
    """Split the median step of a run of which nothing else is asked, in the window `auto`."""
    selection = select(trace)
    unions = tuple(activities(trace))
    in_use = devices_in_use(trace, selection, unions)
    if not in_use:
        return Skipped(f"no device computed in run {trace.run}")
    return scaling_run(
        trace,
        selection,
        unions,
        joined_steps(trace, selection, unions, in_use),
        attribute_idle_time(trace, selection).causes_of_steps,
        throughput_of(trace, selection, len(in_use)),
    )


def scaling_run(
    trace: Trace,
    selection: Selection,
    unions: Sequence[DeviceActivity],
    joined: JoinedSteps,
    causes: Mapping[int, Int64Array],
    throughput: Throughput,
) -> ScalingRun | Skipped:
    """Split the median step of one run; `unions` by device index.

    `causes`: by device index the idle picoseconds by cause and step, int64 `[causes, steps]`, the steps in the
    order of `selection.steps`.
    """
    step_ps = selection.median_step_ps
    if not step_ps or not joined.count:
        return Skipped(f"run {trace.run} has no step that all its devices computed in")
    compute = joined.compute_ps
    critical = compute.argmax(axis=0)
    mean = compute.sum(axis=0) // len(joined.devices)
    exposed, waits = _exposed(unions, joined), _waits(trace, selection, joined, causes)
    every = np.arange(joined.count)
    known = {
        "compute_ps": mean,
        "imbalance_ps": compute[critical, every] - mean,
        "communication_ps": exposed[critical, every],
        "input_ps": waits[Cause.INPUT][critical, every],
        "launch_ps": waits[Cause.LAUNCH][critical, every],
    }
    medians = {name: median_ps(values) or 0 for name, values in known.items()}
    parts = ScalingParts(**medians, other_ps=step_ps - sum(medians.values()))
    return ScalingRun(
        logdir=str(trace.logdir),
        run=trace.run,
        device_count=len(joined.devices),
        step_ps=step_ps,
        batch_size=throughput.batch_size,
        parts=parts,
    )


def _exposed(unions: Sequence[DeviceActivity], joined: JoinedSteps) -> Int64Array:
    return np.stack(
        [
            unions[device].parts(joined.start_ps[row], joined.end_ps[row])[ActivityClass.COLLECTIVE]
            for row, device in enumerate(joined.devices)
        ]
    )


def _waits(
    trace: Trace, selection: Selection, joined: JoinedSteps, causes: Mapping[int, Int64Array]
) -> dict[Cause, Int64Array]:
    """Idle time for input and for launches, int64 `[devices, steps]` each."""
    found = {
        cause: np.zeros((len(joined.devices), joined.count), dtype=np.int64)
        for cause in (Cause.INPUT, Cause.LAUNCH)
    }
    for row, device in enumerate(joined.devices):
        if device not in causes:
            continue
        steps = selection.steps[trace.device_list[device].host]
        place = {step.number: index for index, step in enumerate(steps)}
        chosen = [place[number] for number in joined.numbers]
        for cause, values in found.items():
            values[row] = causes[device][cause][chosen]
    return found


def compare(
    trace: Trace,
    selection: Selection,
    unions: Sequence[DeviceActivity],
    causes: Mapping[int, Int64Array],
    baseline: Trace | None,
) -> Scaling | Skipped:
    """Set a run beside its baseline; arguments as for `scaling_run`."""
    if baseline is None:
        return Skipped(NO_BASELINE)
    in_use = devices_in_use(trace, selection, unions)
    if not in_use:
        return Skipped("no device computed in the window")
    joined = joined_steps(trace, selection, unions, in_use)
    throughput = throughput_of(trace, selection, len(in_use))
    this = scaling_run(trace, selection, unions, joined, causes, throughput)
    return compared(this, baseline_run(baseline))


def compared(this: ScalingRun | Skipped, baseline: ScalingRun | Skipped) -> Scaling | Skipped:
    """Set one split step beside the other."""
    if isinstance(this, Skipped):
        return this
    if isinstance(baseline, Skipped):
        return Skipped(f"the baseline cannot be compared: {baseline.reason}")
    factor = this.device_count / baseline.device_count
    by_step = factor * baseline.step_ps / this.step_ps
    speedup = None
    if this.batch_size is not None and baseline.batch_size:
        speedup = this.batch_size / baseline.batch_size * baseline.step_ps / this.step_ps
    reason = None
    if speedup is None:
        lacking = [
            name
            for name, run in (("this run", this), ("the baseline", baseline))
            if not run.batch_size
        ]
        missing = " and of ".join(lacking)
        reason = (
            f"the batch size of {missing} is not known, so step times are compared as if every device had as "
            "many examples in both"
        )
    ours, theirs = asdict(this.parts), asdict(baseline.parts)
    return Scaling(
        this=this,
        baseline=baseline,
        speedup=speedup,
        speedup_by_step=by_step,
        scaling_efficiency_ratio=(by_step if speedup is None else speedup) / factor,
        difference_ps=this.step_ps - baseline.step_ps,
        parts=ScalingParts(**{name: ours[name] - theirs[name] for name in ours}),
        reason=reason,
    )


ANALYSIS: Final = Analysis[Scaling](
    "scaling",
    compute=lambda context: compare(
        context.trace,
        context.selection,
        context.activities,
        context.idle.causes_of_steps,
        context.options.baseline,
    ),
)
