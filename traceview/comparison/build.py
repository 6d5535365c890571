"""Makes a comparison of two sides, each of one or several reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor
from typing import Final

import numpy as np

from traceview.comparison.conditions import conditions_of, unknown_conditions
from traceview.comparison.difference import (
    REPLICA_RUN_SPREAD,
    Difference,
    RunSpread,
    difference,
)
from traceview.comparison.explanation import device_differences, part_differences
from traceview.comparison.findings import finding_differences
from traceview.comparison.mean_step import CaptureSteps, capture_steps, mean
from traceview.comparison.model import (
    SCHEMA_VERSION,
    ComparedRun,
    Comparison,
    Condition,
    StepDifference,
    interval_ps,
)
from traceview.comparison.ops import op_differences
from traceview.comparison.values import value_differences
from traceview.comparison.verdict import verdict_of
from traceview.document import numbers
from traceview.errors import ComparisonError
from traceview.report.model import Report
from traceview.robust import median
from traceview.version import VERSION

SIDES: Final = ("before", "after")
_LARGE_OVERHEAD: Final = 0.1
"""Of the step: what the profiler adds is worth a word; a choice of ours."""
_LONG_FACTOR: Final = 3
"""Times the median step: a step from there on decides the mean and its noise; a choice of ours."""


def compare(
    before: Sequence[Report], after: Sequence[Report], *, force: bool = False
) -> Comparison:
    """What differs between two sides, each with at least one report.

    `force`: also where their steps are not the same work or ran on other hardware. Raises `ComparisonError` with the
    reasons where they are not, and where a side has no used step.
    """
    steps = [_steps_of(name, side) for name, side in zip(SIDES, (before, after), strict=True)]
    conditions = conditions_of(before, after)
    blocking = [condition for condition in conditions if condition.is_blocking]
    if blocking and not force:
        raise ComparisonError(
            f"these runs cannot be compared ({'; '.join(map(condition_words, blocking))})",
            hint="--force compares them all the same",
        )
    spread = run_spread_of([*before, *after])
    noise = difference(
        [capture.lengths_ps for capture in steps[0]],
        [capture.lengths_ps for capture in steps[1]],
        spread,
    )
    step = _step_difference(noise, steps[0], steps[1])
    parts = part_differences((before, after), steps[0], steps[1], spread)
    devices = device_differences(before, after)
    shown_ps = 0 if step.direction == "none" else step.difference_ps
    ops = op_differences(before, after, shown_ps, spread)
    return Comparison(
        schema_version=SCHEMA_VERSION,
        traceview_version=VERSION,
        verdict=verdict_of(step, parts, devices, ops),
        step=step,
        before=_runs(before, steps[0]),
        after=_runs(after, steps[1]),
        conditions=tuple(conditions),
        limits=tuple(
            _limits(before, after, steps, noise, has_parts=bool(parts), has_ops=bool(ops))
        ),
        parts=parts,
        devices=devices,
        ops=ops,
        op_count=len(ops),
        findings=finding_differences(before, after, step.before_ps, parts),
        values=value_differences(before, after, step.before_ps),
    )


def run_spread_of(reports: Sequence[Report]) -> RunSpread | None:
    """What is known beforehand of how much such runs differ without a change: of replicas, which share a CPU."""
    devices = [
        device
        for report in reports
        if report.results.device_time
        for device in report.results.device_time.devices
    ]
    is_replica = any(device.kind == "replica" for device in devices)
    return REPLICA_RUN_SPREAD if is_replica else None


def condition_words(condition: Condition) -> str:
    """`batch: 128 before, 256 after`."""
    return f"{condition.name}: {condition.before} before, {condition.after} after"


def _steps_of(name: str, side: Sequence[Report]) -> list[CaptureSteps]:
    steps = []
    for report in side:
        of_report = capture_steps(report)
        if of_report is None:
            why = report.skipped.get("steps", "no step takes part in statistics")
            raise ComparisonError(
                f"the run {name}, {report.source.run}, has no step to compare: {why}"
            )
        steps.append(of_report)
    return steps


def _step_difference(
    noise: Difference, before: Sequence[CaptureSteps], after: Sequence[CaptureSteps]
) -> StepDifference:
    old, new = (floor(mean([capture.mean_ps for capture in side])) for side in (before, after))
    low, high = interval_ps(noise)
    return StepDifference(
        before_ps=old,
        after_ps=new,
        difference_ps=new - old,
        ratio=noise.ratio,
        low_ps=low,
        high_ps=high,
        low_ratio=noise.low_ratio,
        high_ratio=noise.high_ratio,
        least_shown_ratio=noise.least_shown_ratio,
        direction=noise.direction,
        is_over_runs=noise.is_over_runs,
    )


def _runs(side: Sequence[Report], steps: Sequence[CaptureSteps]) -> tuple[ComparedRun, ...]:
    return tuple(
        ComparedRun(
            logdir=report.source.logdir,
            run=report.source.run,
            traceview_version=report.traceview_version,
            step_count=int(of_report.lengths_ps.size),
            step_ps=floor(of_report.mean_ps),
        )
        for report, of_report in zip(side, steps, strict=True)
    )


def _long_steps(before: Sequence[CaptureSteps], after: Sequence[CaptureSteps]) -> Iterator[str]:
    """Single steps that decide the mean, with the medians, which they hardly change."""
    lengths = [np.concatenate([capture.lengths_ps for capture in side]) for side in (before, after)]
    medians = [median(side) for side in lengths]
    for name, side, middle in zip(SIDES, lengths, medians, strict=True):
        if side.max() > _LONG_FACTOR * middle:
            count = int((side > _LONG_FACTOR * middle).sum())
            yield (
                f"{numbers.plural(count, 'step')} {name}, of up to {numbers.time(side.max())}, "
                f"{'decides' if count == 1 else 'decide'} the mean: "
                f"the median step is {numbers.time(medians[0])} before and {numbers.time(medians[1])} after"
            )


def _limits(
    before: Sequence[Report],
    after: Sequence[Report],
    steps: Sequence[Sequence[CaptureSteps]],
    noise: Difference,
    *,
    has_parts: bool,
    has_ops: bool,
) -> list[str]:
    """What limits the comparison, what matters most first."""
    limits = [*_long_steps(steps[0], steps[1])]
    if not has_parts:
        limits.append(
            "A side has no critical path, because no device was recorded there: "
            "the difference is not explained by its parts"
        )
    counts = (*noise.before_step_counts, *noise.after_step_counts)
    if min(counts) == 1:
        limits.append("A side has a single step, which shows no noise: capture ten or more")
    spread = run_spread_of([*before, *after])
    if len(before) == len(after) == 1:
        if spread is None:
            limits.append(
                "One capture of each side shows the noise of its steps, not how much runs differ: "
                "repeat --before and --after to include that"
            )
        else:
            limits.append(
                "The interval covers how much runs on shared CPU cores differ without a change: "
                "several captures of each side, by --before and --after, make it narrower"
            )
    for name, side in zip(SIDES, (before, after), strict=True):
        limits += [
            f"The capture {name}, {report.source.run}, is {report.capture.quality}"
            for report in side
            if report.capture.quality != "ok"
        ]
    if any(report.results.op_steps is None for report in (*before, *after)):
        limits.append(
            "A report does not hold the ops of its steps, so ops are not compared: "
            "analyze its trace again with this version"
        )
    elif not has_ops:
        limits.append("No op was recorded in the steps of a side")
    unknown = [text for report in (*before, *after) if (text := unknown_conditions(report))]
    if unknown:
        limits.append(numbers.capitalized(unknown[0]))
    overheads = [
        host.overhead_ratio
        for report in (*before, *after)
        for host in report.capture.hosts
        if host.overhead_ratio is not None
    ]
    if overheads and max(overheads) >= _LARGE_OVERHEAD:
        limits.append(f"The profiler made steps up to {numbers.share(max(overheads))} longer")
    return limits
