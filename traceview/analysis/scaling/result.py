"""Compares a run with a baseline on one device: the speed-up, and the part of the step that takes the rest.

The step of each run is split along its critical device, which computes longest in the step:

    step = mean compute + imbalance + exposed communication + waiting for input + waiting for launches + the rest

Parts are medians over the used steps, and the rest is what remains of the median step. So the parts of a run sum to
its median step, and their differences to the difference of the two steps, exactly.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec.structs import asdict

from traceview.analysis.balance.result import devices_in_use
from traceview.analysis.balance.throughput import throughput_of
from traceview.analysis.base import Skipped
from traceview.analysis.context import Context
from traceview.analysis.joined_steps import joined_steps
from traceview.analysis.selection import select
from traceview.record import Count, Integer, PathName, Picoseconds, Ratio, Record, RunName
from traceview.robust import median_ps
from traceview.trace.cause import Cause
from traceview.xplane.planes import ActivityClass

NO_BASELINE: Final = "no baseline was given; --baseline adds a run on one device"


class ScalingParts(Record, frozen=True):
    """The median step of a run, or the difference of two, in picoseconds; they sum to it.

    Attributes:
        compute_ps: Mean compute of the devices, picoseconds.
        imbalance_ps: Compute of the critical device beyond the mean, picoseconds.
        communication_ps: Exposed collectives of the critical device, picoseconds.
        input_ps: Idle time of the critical device for input, picoseconds.
        launch_ps: Idle time of the critical device for kernel launches, picoseconds.
        other_ps: The rest: copies and other waiting, picoseconds.
    """

    compute_ps: Integer
    imbalance_ps: Integer
    communication_ps: Integer
    input_ps: Integer
    launch_ps: Integer
    other_ps: Integer


class ScalingRun(Record, frozen=True):
    """One of the two runs.

    Attributes:
        logdir: Log directory that it was read from.
        run: Name of the run.
        device_count: Devices that computed.
        step_ps: Median step, picoseconds.
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
    """This run compared with a baseline.

    Attributes:
        this: This run.
        baseline: The baseline.
        speedup: Examples per second over those of the baseline; null where a batch size is not known.
        speedup_by_step: The same from step times alone, as if each device had as many examples as in the
            baseline.
        scaling_efficiency_ratio: The speed-up (speedup_by_step where speedup is null) over the ratio of device
            counts.
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


def compute(context: Context) -> Scaling | Skipped:
    """Compare a run with its baseline, of which the window `auto` counts."""
    trace = context.options.baseline
    if trace is None:
        return Skipped(NO_BASELINE)
    this = _split(context)
    if isinstance(this, Skipped):
        return this
    baseline = _split(Context(trace, select(trace)))
    if isinstance(baseline, Skipped):
        return Skipped(f"the baseline cannot be compared: {baseline.reason}")
    factor = this.device_count / baseline.device_count
    by_step = factor * baseline.step_ps / this.step_ps
    speedup = None
    if this.batch_size is not None and baseline.batch_size:
        speedup = this.batch_size / baseline.batch_size * baseline.step_ps / this.step_ps
    parts, of_baseline = asdict(this.parts), asdict(baseline.parts)
    return Scaling(
        this=this,
        baseline=baseline,
        speedup=speedup,
        speedup_by_step=by_step,
        scaling_efficiency_ratio=(by_step if speedup is None else speedup) / factor,
        difference_ps=this.step_ps - baseline.step_ps,
        parts=ScalingParts(**{name: parts[name] - of_baseline[name] for name in parts}),
        reason=_reason(this, baseline) if speedup is None else None,
    )


def _reason(this: ScalingRun, baseline: ScalingRun) -> str:
    runs = (("this run", this), ("the baseline", baseline))
    lacking = " and of ".join(name for name, run in runs if not run.batch_size)
    return (
        f"the batch size of {lacking} is not known, so step times are compared as if each device had as many examples "
        "in both runs"
    )


def _split(context: Context) -> ScalingRun | Skipped:
    """Split the median step of one run."""
    trace, selection = context.trace, context.selection
    in_use = devices_in_use(trace, selection, context.activities)
    if not in_use:
        return Skipped(f"no device computed in run {trace.run}")
    joined = joined_steps(trace, selection, context.activities, in_use)
    step_ps = selection.median_step_ps
    if not step_ps or not joined.count:
        return Skipped(f"run {trace.run} has no step that all its devices computed in")
    compute_ps = joined.compute_ps
    mean = compute_ps.sum(axis=0) // len(joined.devices)
    critical, steps = compute_ps.argmax(axis=0), np.arange(joined.count)
    causes = context.idle.causes_of_steps
    waits = {
        cause: joined.placed(trace, selection, {i: of[cause] for i, of in causes.items()})
        for cause in (Cause.INPUT, Cause.LAUNCH)
    }
    exposed = np.stack(
        [
            context.activities[device].parts(joined.start_ps[row], joined.end_ps[row])
            for row, device in enumerate(joined.devices)
        ]
    )[:, ActivityClass.COLLECTIVE]
    known = {
        "compute_ps": mean,
        "imbalance_ps": compute_ps[critical, steps] - mean,
        "communication_ps": exposed[critical, steps],
        "input_ps": waits[Cause.INPUT][critical, steps],
        "launch_ps": waits[Cause.LAUNCH][critical, steps],
    }
    medians = {name: median_ps(lengths) or 0 for name, lengths in known.items()}
    return ScalingRun(
        logdir=str(trace.logdir),
        run=trace.run,
        device_count=len(joined.devices),
        step_ps=step_ps,
        batch_size=throughput_of(trace, selection, len(in_use)).batch_size,
        parts=ScalingParts(**medians, other_ps=step_ps - sum(medians.values())),
    )
