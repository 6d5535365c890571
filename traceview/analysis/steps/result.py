"""How long was each step, and how was its time spent on each device?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import numpy as np
from msgspec import Meta
from msgspec.structs import asdict

from traceview.analysis.activity import DeviceActivity, Parts, one_span
from traceview.analysis.base import Evidence, Finding, Skipped
from traceview.analysis.selection import Selection
from traceview.document import numbers
from traceview.record import (
    LARGEST,
    Count,
    DeviceKey,
    Hostname,
    Integer,
    Picoseconds,
    Record,
    one_of,
)
from traceview.robust import MAD_TO_SIGMA, median_ps, quartile_range
from traceview.trace.model import Step, Trace

UNSTEADY_SPREAD: Final = 0.10
UNSTEADY_OUTLIER: Final = 2.0
UNSTEADY_COST: Final = 0.05
"""Robust spread, longest step over the median, and mean loss from which a warning is due (METRICS: unsteady-steps)."""

"""The standard deviation over the median absolute deviation of a normal distribution."""

FEW_STEPS: Final = 3
"""Fewer used steps than this say little about the typical one (METRICS: few-steps)."""

_EXPLICIT_METHODS: Final = ("marker", "keras")
EXPLAINING: Final = frozenset(
    (
        "input-bound",
        "replica-starved",
        "d2h-sync",
        "retracing",
        "compile-in-window",
        "callback-stall",
        "checkpoint-stall",
        "gpu-throttled",
    )
)
"""Findings that make some steps longer than others."""

_RELIABILITIES: Final = ("high", "medium", "low")
_RELIABILITY: Final = {
    "marker": "high",
    "keras": "high",
    "group": "medium",
    "function": "medium",
    "iterator": "low",
    "period": "low",
}
_INFERRED_FROM: Final = {
    "group": "from stored group ids, without an explicit marker",
    "function": "from repeated function calls, without an explicit marker",
    "iterator": "from repeated calls for input, without an explicit marker",
    "period": "from a repeating sequence of kernels, without an explicit marker",
    "mixed": "in different ways on different hosts",
}


class StepDevice(Parts, frozen=True):
    """The parts of one step on one device; with `idle_ps` they sum to the step's duration.

    Attributes:
        device: Key of the device.
    """

    device: DeviceKey


class StepRow(Record, frozen=True):
    """One step of one host. `number` is the one that `--steps` takes, `recorded_number` the marker's own.

    Attributes:
        host: Name of the host.
        number: Number of the step within its host, as --steps takes it.
        recorded_number: Number in its marker; null without one.
        kind: train or eval.
        start_ps: Start, picoseconds since the origin of the run.
        duration_ps: Length, picoseconds.
        used: Whether it takes part in medians and verdicts.
        excluded: Why it does not; null if it does.
        devices: The parts of the step on every device of the host.
    """

    host: Hostname
    number: Integer
    recorded_number: Integer | None
    kind: Annotated[str, one_of("train", "eval")]
    start_ps: Integer
    duration_ps: Picoseconds
    used: bool
    excluded: str | None
    devices: tuple[StepDevice, ...]


class Steps(Record, frozen=True):
    """The steps in the window.

    Attributes:
        method: How the steps were found; mixed where hosts differ.
        reliability: How sure the bounds of steps are: high (markers), medium (stored groups, function calls),
            low (what else repeats).
        basis: marker: cut at the recorded bounds; device: at the first device event of each, because the host
            runs ahead; mixed where hosts differ.
        loop_iterations: How often a loop in the graph ran per step (median); if that is the training loop, one
            step here is several training steps. Null without one.
        steps_per_call: The most training steps that one call made of those that the capture marked as steps,
            such as steps_per_execution of Keras; null where the sidecar does not say.
        count: Steps in the window, over all hosts.
        used_count: Steps that take part in the statistics.
        median_ps: Median duration of the used steps, picoseconds; null without any.
        iqr_ps: Interquartile range of the durations of the used steps, picoseconds, rounded down; null for
            fewer than two.
        cv_ratio: Standard deviation over mean of the durations of the used steps; null for fewer than two.
        steps: The steps, host by host in time order.
    """

    method: Annotated[
        str, one_of("marker", "keras", "group", "function", "iterator", "period", "mixed")
    ]
    reliability: Annotated[str, one_of("high", "medium", "low")]
    basis: Annotated[str, one_of("marker", "device", "mixed")]
    loop_iterations: Annotated[int, Meta(ge=2, le=LARGEST)] | None
    steps_per_call: Annotated[int, Meta(ge=1, le=LARGEST)] | None
    count: Count
    used_count: Count
    median_ps: Picoseconds | None
    iqr_ps: Picoseconds | None
    cv_ratio: float | None
    steps: tuple[StepRow, ...]


def compute(
    trace: Trace, selection: Selection, activities: Sequence[DeviceActivity]
) -> Steps | Skipped:
    """Cut the time of every device at the bounds of the steps of its host."""
    found = [trace.steps_by_host[host] for host, steps in selection.steps.items() if steps]
    if not found:
        return Skipped("no steps: nothing marks them, and nothing repeats")
    rows = [
        row
        for host, steps in selection.steps.items()
        if steps
        for row in _rows(trace, host, steps, activities)
    ]
    used = np.array([row.duration_ps for row in rows if row.used], dtype=np.int64)
    return Steps(
        method=_common([one.method for one in found]),
        reliability=max((_RELIABILITY[one.method] for one in found), key=_RELIABILITIES.index),
        loop_iterations=_loop_iterations(trace, selection),
        steps_per_call=_steps_per_call(trace, selection),
        basis=_common([one.basis for one in found]),
        count=len(rows),
        used_count=int(used.size),
        median_ps=selection.median_step_ps,
        iqr_ps=_quartile_range(used),
        cv_ratio=float(used.std() / used.mean()) if used.size > 1 and used.mean() else None,
        steps=tuple(rows),
    )


def _loop_iterations(trace: Trace, selection: Selection) -> int | None:
    """The median over the steps of the most iterations that one executor in it ran; None if none ran two."""
    columns = trace.host_columns
    numbers = columns.stat("iter_num")
    executes = trace.names.matching(columns.name[numbers.row], [b"ExecutorState::Process"])
    row, iteration = numbers.row[executes], numbers.value[executes]
    start, host = columns.start_ps[row], columns.host[row]
    most = [
        int(
            iteration[(host == step.host) & (start >= step.start_ps) & (start < step.end_ps)].max(
                initial=0
            )
        )
        for steps in selection.steps.values()
        for step in steps
    ]
    median = median_ps(most) or 0
    return median + 1 if median > 0 else None


def _steps_per_call(trace: Trace, selection: Selection) -> int | None:
    """The most that a host's sidecar says of steps that the capture marked."""
    found = [
        count
        for host, steps in selection.steps.items()
        if steps and trace.steps_by_host[host].method == "marker"
        for sidecar in (trace.hosts[host].sidecar,)
        if sidecar is not None
        for count in sidecar.steps_per_call
    ]
    most = max(found, default=0)
    return most if most > 0 else None


def _common(values: list[str]) -> str:
    return values[0] if len(set(values)) == 1 else "mixed"


def _quartile_range(used: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int | None:
    if used.size < 2:
        return None
    return int(quartile_range(used))


def _rows(
    trace: Trace, host: int, steps: tuple[Step, ...], activities: Sequence[DeviceActivity]
) -> list[StepRow]:
    starts = [step.start_ps for step in steps]
    ends = [step.end_ps for step in steps]
    devices = [
        (trace.device_key(index), activities[index].parts(starts, ends))
        for index, device in enumerate(trace.device_list)
        if device.host == host
    ]
    return [
        StepRow(
            host=trace.hosts[host].name,
            number=step.number,
            recorded_number=step.recorded_number,
            kind=step.kind,
            start_ps=step.start_ps,
            duration_ps=step.duration_ps,
            used=step.excluded is None,
            excluded=step.excluded,
            devices=tuple(
                StepDevice(**asdict(one_span(parts, place)), device=key) for key, parts in devices
            ),
        )
        for place, step in enumerate(steps)
    ]


def diagnose(result: Steps | Skipped, selection: Selection) -> list[Finding]:
    """Captures that hold too few steps, or none that was marked."""
    del selection
    if isinstance(result, Skipped):
        return [_no_marker("none", 0)]
    found = []
    if result.used_count < FEW_STEPS:
        found.append(_few(result))
    if result.method not in _EXPLICIT_METHODS:
        found.append(_no_marker(result.method, result.count))
    return found


def diagnose_unsteady(result: Steps | Skipped, findings: Sequence[Finding]) -> list[Finding]:
    """Steps that differ more than they should, unless one of the findings explains it."""
    codes = {finding.code for finding in findings}
    if isinstance(result, Skipped) or result.median_ps is None or EXPLAINING & codes:
        return []
    if result.reliability == "low":
        # What merely repeats need not be a step, and may come at any distance.
        return []
    used = [row for row in result.steps if row.used]
    if len(used) < FEW_STEPS or result.median_ps == 0:
        return []
    durations = np.array([row.duration_ps for row in used], dtype=np.int64)
    deviation = float(np.median(np.abs(durations - result.median_ps)))
    spread = MAD_TO_SIGMA * deviation / result.median_ps
    longest = used[int(durations.argmax())]
    times = longest.duration_ps / result.median_ps
    if spread < UNSTEADY_SPREAD and times < UNSTEADY_OUTLIER:
        return []
    cost = max(int(durations.mean()) - result.median_ps, 0)
    ratio = cost / result.median_ps
    slow = tuple(
        row.number for row in used if row.duration_ps >= UNSTEADY_OUTLIER * result.median_ps
    )
    return [
        Finding(
            code="unsteady-steps",
            severity="warning" if ratio >= UNSTEADY_COST else "info",
            title=(
                f"step {longest.number} took {times:.1f} times the median step"
                if times >= UNSTEADY_OUTLIER
                else f"step times spread by {spread:.0%} around their median"
            ),
            explanation=(
                "Steps of one training loop should take equally long. The cost is what the mean step takes "
                "more than the median one; no other finding explains it."
            ),
            advice=(
                "Compare a slow step with a usual one: traceview gaps LOGDIR --steps A:B. Capture more steps, "
                "and look for other jobs on the host, for garbage collection and for clock changes."
            ),
            confidence="medium",
            confidence_reason=f"{numbers.plural(len(used), 'step')} measured; why they differ is not known",
            evidence=(
                Evidence(
                    "robust_spread_ratio",
                    spread,
                    UNSTEADY_SPREAD if spread >= UNSTEADY_SPREAD else None,
                    "steps",
                ),
                Evidence(
                    "longest_step_ps",
                    longest.duration_ps,
                    int(UNSTEADY_OUTLIER * result.median_ps) if times >= UNSTEADY_OUTLIER else None,
                    f"step {longest.number}",
                ),
                Evidence("median_ps", result.median_ps, None, "steps"),
            ),
            steps=slow,
            cost_ps_per_step=cost or None,
            cost_ratio=ratio or None,
        )
    ]


def _few(result: Steps) -> Finding:
    left_out = result.count - result.used_count
    return Finding(
        code="few-steps",
        severity="info",
        title=(
            f"only {numbers.plural(result.used_count, 'step')} to judge by"
            if result.used_count
            else "no step to judge by"
        ),
        explanation=(
            f"{numbers.plural(result.count, 'step')} in the window, {left_out} left out of the statistics. "
            "A typical step cannot be told from so few."
        ),
        advice="Capture at least five steps after the warm-up.",
        confidence="high",
        confidence_reason="counted",
        evidence=(Evidence("used_count", result.used_count, FEW_STEPS, "steps"),),
    )


def _no_marker(method: str, count: int) -> Finding:
    if method == "none":
        title = "no steps could be found"
        explanation = (
            "There is no step marker and nothing that repeats once per step; no number is per step."
        )
    else:
        title = f"{numbers.plural(count, 'step')} found {_INFERRED_FROM[method]}"
        explanation = (
            "Step bounds were inferred, so step times may include or miss work at their edges."
        )
    return Finding(
        code="no-step-marker",
        severity="info",
        title=title,
        explanation=explanation,
        advice=(
            "Mark the steps: with tf.profiler.experimental.Trace('train', step_num=step, _r=1): "
            "around next(iterator) and the call of the training step; in JAX with "
            "jax.profiler.StepTraceAnnotation('train', step_num=step): around the step."
        ),
        confidence="high",
        confidence_reason="no such event is recorded",
        evidence=(Evidence("method", method, None, "steps"),),
    )
