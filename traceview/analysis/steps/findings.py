"""Concludes whether a capture holds enough marked steps, and whether steps take equally long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from traceview.analysis.base import Evidence, Finding, Rule, Skipped
from traceview.analysis.cost import Cost
from traceview.analysis.steps.result import StepRow, Steps
from traceview.document import numbers
from traceview.document.vocabulary import STEP_METHODS
from traceview.ids import is_in
from traceview.intervals import Int64Array
from traceview.robust import median, quartile_range

FEW_STEPS: Final = Rule(
    code="few-steps",
    starts_at="fewer than {used_step_count} used steps",
    severities=("info",),
    limits={"used_step_count": 3},
    meaning="Too few steps to tell a typical one from an exception.",
    evidence="used_count in results.steps",
    advice="Capture at least five steps after the warm-up.",
    example="only 1 step in the statistics",
    jax_advice=(
        "Record steps after the warm-up: jax.profiler.start_trace('logs') before them, "
        "jax.profiler.stop_trace() after them. Five steps or more."
    ),
)

_MORE_STEPS: Final = "Capture more steps, and look for other jobs on the host, for garbage collection and for clock changes."

UNSTEADY_STEPS: Final = Rule(
    code="unsteady-steps",
    starts_at=(
        "a spread of the step times (interquartile range) of {spread_ratio} of the median step, or one step of "
        "{times_the_median} times the median; not where another finding explains it"
    ),
    conditions_of="a warning only with both of these",
    conditions=(
        "the median step is shorter than the mean step by {warning_ratio} of the mean",
        "the devices are no replicas on a CPU, which share its cores with everything else",
    ),
    severities=("info", "warning"),
    limits={"spread_ratio": 0.135, "times_the_median": 2.0, "warning_ratio": 0.05},
    meaning=(
        "Steps of one training loop should take equally long, apart from those after which the capture saw an evaluation, "
        "and from the updates where gradients accumulate over several steps. No other finding explains why they do not."
    ),
    evidence="interquartile range of the step times over the median step, and the longest step",
    advice=(
        f"Compare a slow step with a usual one: traceview gaps LOGDIR --steps 14:15 shows step 14. {_MORE_STEPS}"
    ),
    example="step 14 took 2.3 times the median step",
)

NO_STEP_MARKER: Final = Rule(
    code="no-step-marker",
    is_of_absence=True,
    starts_at="steps that no explicit marker bounds, or no steps",
    severities=("info",),
    meaning="The bounds of steps are inferred, so step times may include or miss work at their edges.",
    evidence="method in results.steps",
    advice=(
        "Mark the steps: put next(iterator) and the call of the training step in a with block of "
        "tf.profiler.experimental.Trace('train', step_num=step, _r=1)."
    ),
    example="6 steps found by a function call that repeats, without an explicit marker",
    jax_advice=(
        "Mark the steps: put the call of the training step in a with block of "
        "jax.profiler.StepTraceAnnotation('train', step_num=step)."
    ),
)

RULES: Final = (FEW_STEPS, UNSTEADY_STEPS, NO_STEP_MARKER)

_EXPLICIT_METHODS: Final = ("marker", "keras")

_CAUSES_OF_UNSTEADY_STEPS: Final = frozenset(
    (
        "input-bound",
        "replica-starved",
        "d2h-sync",
        "retracing",
        "compile-in-window",
        "callback-stall",
        "python-thread",
        "checkpoint-stall",
        "validation-stall",
        "gpu-throttled",
    )
)
"""Findings that make some steps longer than others."""


def diagnose(result: Steps) -> Iterator[Finding]:
    """Captures with too few steps, or with steps that nothing marks."""
    used_count, least_count = result.used_count, int(FEW_STEPS.limits["used_step_count"])
    count = numbers.plural(result.count, "step")
    if used_count < least_count:
        used = f"only {numbers.plural(used_count, 'step')}" if used_count else "no step"
        yield FEW_STEPS.finding(
            f"{used} in the statistics",
            [Evidence("used_count", used_count, least_count, "steps")],
            explanation=(
                f"{count} in the window, {result.count - used_count} left out of the statistics: too few to tell a "
                "typical step from an exception."
            ),
            confidence=("high", "counted"),
        )
    if result.method not in _EXPLICIT_METHODS:
        suffix = "" if result.method == "mixed" else ", without an explicit marker"
        yield NO_STEP_MARKER.finding(
            f"{count} found {STEP_METHODS[result.method].words}{suffix}",
            [Evidence("method", result.method, None, "steps")],
            confidence=("high", "the trace holds no step marker"),
        )


def diagnose_absent() -> Finding:
    """A trace in which no step is found."""
    return NO_STEP_MARKER.finding(
        "no steps found",
        [Evidence("method", "none", None, "steps")],
        explanation="The trace has no step marker and nothing that repeats once per step; no number is per step.",
        confidence=("high", "the trace holds no step marker"),
    )


def diagnose_unsteady(
    result: Steps | Skipped, findings: Sequence[Finding], *, on_cpu: bool
) -> list[Finding]:
    """Steps that differ more than they should, unless one of the findings explains it.

    `on_cpu`: the devices are replicas on a CPU, whose steps differ by whatever else the machine does.
    """
    codes = {finding.code for finding in findings}
    if isinstance(result, Skipped) or _CAUSES_OF_UNSTEADY_STEPS & codes:
        return []
    # What merely repeats need not be a step, and may come at any distance.
    evaluated = {(row.host, row.after) for row in result.evaluations}
    used = [
        row
        for row in result.steps
        if row.used
        and result.reliability != "low"
        and (row.host, row.recorded_number) not in evaluated
    ]
    if len(used) < FEW_STEPS.limits["used_step_count"] or not result.median_ps:
        return []
    limits, median_ps = UNSTEADY_STEPS.limits, result.median_ps
    durations = _unexplained(result, used)
    spread = quartile_range(durations) / median_ps
    longest = used[int(durations.argmax())]
    usual = used[int(np.abs(durations - median_ps).argmin())]
    longest_ps = int(durations.max())
    times_the_median = longest_ps / median_ps
    is_spread = spread >= limits["spread_ratio"]
    is_outlier = times_the_median >= limits["times_the_median"]
    if not (is_spread or is_outlier):
        return []
    mean_ps = int(durations.sum()) // len(used)
    cost = Cost.per_step("mean", max(mean_ps - median_ps, 0), mean_ps)
    least_outlier_ps = limits["times_the_median"] * median_ps
    return [
        UNSTEADY_STEPS.finding(
            f"step {longest.number} took {times_the_median:.1f} times the median step"
            if is_outlier
            else f"step times vary: the longest takes {numbers.time(longest_ps)}, the median {numbers.time(median_ps)}",
            (
                Evidence(
                    "spread_ratio",
                    spread,
                    limits["spread_ratio"] if is_spread else None,
                    "steps",
                ),
                Evidence(
                    "longest_step_ps",
                    longest_ps,
                    int(least_outlier_ps) if is_outlier else None,
                    f"step {longest.number}",
                ),
                Evidence("median_ps", median_ps, None, "steps"),
            ),
            severity=None if on_cpu else UNSTEADY_STEPS.severity_of(cost.ratio or 0.0),
            confidence=("low", "everything else on the machine takes cores from the replicas")
            if on_cpu
            else (
                "medium",
                f"{numbers.plural(len(used), 'step')} measured; why they differ is not known",
            ),
            explanation=f"{UNSTEADY_STEPS.meaning}{_costs(cost)}",
            advice=f"{_comparison(longest.number, usual.number)} {_MORE_STEPS}",
            steps=[
                row.number
                for row, duration_ps in zip(used, durations.tolist(), strict=True)
                if duration_ps >= least_outlier_ps
            ],
            cost=cost if cost.ps_per_step else None,
        )
    ]


def _comparison(longest: int, usual: int) -> str:
    """The commands that show two steps."""
    command = f"traceview gaps LOGDIR --steps {longest}:{longest + 1}"
    return f"Compare step {longest} with step {usual}, a usual one: {command}, then --steps {usual}:{usual + 1}."


def _costs(cost: Cost) -> str:
    """What a mean step that is longer than the median step costs; one that is not costs nothing."""
    if not cost.ps_per_step:
        return ""
    return " The cost is how much longer the mean step is than the median step."


def _unexplained(result: Steps, used: Sequence[StepRow]) -> Int64Array:
    """The durations of steps, without what the update takes where gradients accumulate over several steps."""
    durations = np.array([row.duration_ps for row in used], dtype=np.int64)
    updates = is_in([row.number for row in used], result.optimizer_steps)
    if updates.any() and not updates.all():
        durations[updates] -= int(median(durations[updates]) - median(durations[~updates]))
    return durations
