"""Makes a comparison of two sides, each of one or several reports."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

from traceview.comparison.conditions import WORK, conditions_of
from traceview.comparison.difference import (
    REPLICA_RUN_SPREAD,
    Difference,
    RunSpread,
    step_difference,
)
from traceview.comparison.explanation import device_differences, part_differences
from traceview.comparison.findings import finding_differences
from traceview.comparison.limits import SIDES, limits_of
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
from traceview.comparison.repeats import distinct, is_one_run, repeats_of
from traceview.comparison.values import value_differences
from traceview.comparison.verdict import verdict_of, verdict_on_one_run
from traceview.errors import ComparisonError
from traceview.report.model import Report
from traceview.version import VERSION


def compare(
    before: Sequence[Report], after: Sequence[Report], *, force: bool = False
) -> Comparison:
    """What differs between two sides, each with at least one report.

    `force`: also where their steps are not the same work or ran on other hardware. Raises `ComparisonError` with the
    reasons where they are not, and where a side has no used step. A capture that a side has several times counts once.
    """
    repeats = list(repeats_of(before, after))
    before, after = distinct(before), distinct(after)
    steps = [_steps_of(name, side) for name, side in zip(SIDES, (before, after), strict=True)]
    conditions = conditions_of(before, after)
    blocking = [condition for condition in conditions if condition.is_blocking]
    if blocking and not force:
        raise ComparisonError(
            f"these runs cannot be compared ({'; '.join(map(condition_words, blocking))})",
            hint="--force compares them all the same",
        )
    spread = run_spread_of([*before, *after])
    noise = step_difference(
        [capture.lengths_ps for capture in steps[0]],
        [capture.lengths_ps for capture in steps[1]],
        spread,
    )
    step = _step_difference(noise, steps[0], steps[1])
    parts = part_differences((before, after), steps[0], steps[1], spread)
    devices = device_differences(before, after)
    shown_ps = step.difference_ps if step.direction != "none" and step.is_mean_shown else 0
    ops = op_differences(before, after, shown_ps, spread)
    return Comparison(
        schema_version=SCHEMA_VERSION,
        traceview_version=VERSION,
        verdict=verdict_on_one_run(step)
        if is_one_run(before, after)
        else verdict_of(step, parts, devices, ops) + _other_work(blocking),
        step=step,
        before=_runs(before, steps[0]),
        after=_runs(after, steps[1]),
        conditions=tuple(conditions),
        limits=(
            *repeats,
            *limits_of((before, after), steps, spread, has_parts=bool(parts)),
        ),
        parts=parts,
        devices=devices,
        ops=ops,
        findings=finding_differences(before, after, step.before_ps, parts),
        values=value_differences(before, after, step),
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


def _other_work(blocking: Sequence[Condition]) -> str:
    """That steps that are not the same work were compared all the same."""
    changes = [f"{row.name} {row.before} → {row.after}" for row in blocking if row.name in WORK]
    return f"; the steps are not the same work ({', '.join(changes)})" if changes else ""


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
    typical = noise.typical
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
        typical_ratio=typical.ratio if typical else None,
        typical_low_ratio=typical.low_ratio if typical else None,
        typical_high_ratio=typical.high_ratio if typical else None,
        needed_steps=noise.needed_steps,
        needed_captures=noise.needed_captures,
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
