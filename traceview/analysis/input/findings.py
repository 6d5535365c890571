"""What is wrong with the input pipeline?"""

from __future__ import annotations

from typing import Final

from traceview.analysis.base import Confidence, Evidence, Finding, Severity, Skipped
from traceview.analysis.input.result import (
    HIGH_RATIO,
    MODERATE_RATIO,
    Input,
    InputHost,
    InputReplica,
)
from traceview.analysis.selection import Selection
from traceview.document import numbers

INPUT_BOUND_RATIO: Final = MODERATE_RATIO
"""Waiting for input is a finding from this share of the step on (METRICS: input-bound)."""

INPUT_BOUND_CRITICAL_RATIO: Final = HIGH_RATIO
"""It is critical from this share of the step on (METRICS: input-bound)."""

SLOW_STAGE_RATIO: Final = 0.50
"""A stage with this share of the pipeline's own time is named (METRICS: slow-input-stage)."""

STARVED_RATIO: Final = MODERATE_RATIO
"""A shard is late by this share of the step … (METRICS: replica-starved)."""

STARVED_STEPS_RATIO: Final = 0.60
"""… in this share of the steps (METRICS: replica-starved)."""

ENOUGH_STEPS: Final = 2
"""With fewer used steps a finding about performance is only a hint (METRICS: findings)."""

_READY: Final = (
    " An element was ready each time, so it is taking it that needs the time: too few cores for all threads, "
    "or steps so short that the call itself counts."
)


def diagnose(
    result: Input | Skipped, selection: Selection, *, is_bound: bool | None = None
) -> list[Finding]:
    """Waits of the model, the stage and the shard behind them; none of it where the ratio is not known.

    `is_bound`: whether the idle time of the devices says that input costs time, which is a finding already;
    None where no device was recorded, and the waits of the host have to tell.
    """
    if isinstance(result, Skipped):
        return []
    found = [_starved(row, selection) for row in result.replicas if _is_starved(row)]
    ratio = result.input_ratio
    if is_bound is False or ratio is None or ratio < INPUT_BOUND_RATIO:
        return found
    worst = max(result.hosts, key=lambda one: one.input_ratio or 0.0)
    if is_bound is None:
        found.append(_bound(result, worst, ratio, selection))
    if result.bottleneck and result.bottleneck.share_ratio >= SLOW_STAGE_RATIO:
        found.append(_slow_stage(result, worst, ratio, selection))
    if "prefetch" in result.missing:
        found.append(_no_prefetch(worst, ratio, selection))
    return found


def _sure(selection: Selection, severity: Severity) -> tuple[Severity, Confidence, str]:
    used = len(selection.used_steps)
    if used < ENOUGH_STEPS:
        return (
            "info",
            "low",
            f"only {numbers.plural(used, 'used step')}" if used else "no used step",
        )
    return severity, "high", f"over {numbers.plural(used, 'used step')}"


def _keeps_up(result: Input) -> bool:
    """Whether an element was ready each time; what takes the time then is to take it."""
    return result.empty_ratio == 0


def _where(worst: InputHost) -> str:
    return worst.device or worst.host


def _of(selection: Selection) -> str:
    return "the step" if selection.used_steps else "the window"


def _bound(result: Input, worst: InputHost, ratio: float, selection: Selection) -> Finding:
    critical = ratio >= INPUT_BOUND_CRITICAL_RATIO
    severity, confidence, reason = _sure(selection, "critical" if critical else "warning")
    neck = result.bottleneck
    limit = INPUT_BOUND_CRITICAL_RATIO if critical else INPUT_BOUND_RATIO
    if _keeps_up(result) and confidence == "high":
        confidence, reason = "medium", "an element was ready whenever the model asked"
    what = f"{worst.device} was idle" if worst.device else f"the step on {worst.host} waited"
    return Finding(
        code="input-bound",
        severity=severity,
        title=f"{numbers.share(ratio)} of {_of(selection)} is spent waiting for input",
        explanation=f"For that long {what} in the iterator of the dataset."
        + (_READY if _keeps_up(result) else _stage_words(result)),
        advice=neck.advice
        if neck
        else "Let the pipeline work ahead of the model: dataset.prefetch(tf.data.AUTOTUNE) at its end.",
        confidence=confidence,
        confidence_reason=reason,
        evidence=(Evidence("input_ratio", ratio, limit, _where(worst)),),
        devices=(worst.device,) if worst.device else (),
        cost_ps_per_step=worst.wait_per_step_ps,
        cost_ratio=ratio,
    )


def _stage_words(result: Input) -> str:
    neck = result.bottleneck
    return f" Most of the pipeline's own time is spent in {neck.name}." if neck else ""


def _slow_stage(result: Input, worst: InputHost, ratio: float, selection: Selection) -> Finding:
    neck = result.bottleneck
    assert neck is not None
    _, confidence, reason = _sure(selection, "info")
    if _keeps_up(result):
        confidence, reason = "low", "an element was ready whenever the model asked"
    return Finding(
        code="slow-input-stage",
        severity="info",
        title=f"{neck.kind} takes {numbers.share(neck.share_ratio)} of the input pipeline's own time",
        explanation=(
            f"{neck.name} is the stage that the others wait for; its time is counted without that of its "
            "inputs and without waiting for them."
        ),
        advice=neck.advice,
        confidence=confidence,
        confidence_reason=reason,
        evidence=(
            Evidence(
                "share_ratio", neck.share_ratio, SLOW_STAGE_RATIO, f"{neck.host}, {neck.name}"
            ),
            Evidence("input_ratio", ratio, INPUT_BOUND_RATIO, _where(worst)),
        ),
    )


def _no_prefetch(worst: InputHost, ratio: float, selection: Selection) -> Finding:
    _, confidence, reason = _sure(selection, "info")
    return Finding(
        code="no-prefetch",
        severity="info",
        title="the root of the input pipeline does not work ahead of the model",
        explanation=(
            "The stage there runs in the thread that waits for it, so its part of each batch is made only when "
            "the model asks."
        ),
        advice="End the pipeline with dataset.prefetch(tf.data.AUTOTUNE).",
        confidence=confidence,
        confidence_reason=reason,
        evidence=(
            Evidence("missing", "prefetch", None, worst.host),
            Evidence("input_ratio", ratio, INPUT_BOUND_RATIO, _where(worst)),
        ),
    )


def _is_starved(row: InputReplica) -> bool:
    return row.late_step_count > 0 and row.late_step_count >= STARVED_STEPS_RATIO * row.step_count


def _starved(row: InputReplica, selection: Selection) -> Finding:
    severity, confidence, reason = _sure(selection, "warning")
    median = selection.median_step_ps or 0
    name = row.device or f"replica {row.shard}"
    return Finding(
        code="replica-starved",
        severity=severity,
        title=(
            f"shard {row.shard} of the distributed dataset is late in {row.late_step_count} of "
            f"{numbers.plural(row.step_count, 'step')}"
        ),
        explanation=(
            f"{name} waits for its shard when the earliest shard is there already, and the other replicas "
            "then wait for it."
        ),
        advice=(
            "Give every replica an equal share: batches that divide by the number of replicas, files of equal "
            "size, and tf.data.Options().experimental_distribute.auto_shard_policy = "
            "tf.data.experimental.AutoShardPolicy.DATA."
        ),
        confidence=confidence,
        confidence_reason=reason,
        evidence=(
            Evidence(
                "late_step_ratio",
                row.late_step_count / row.step_count,
                STARVED_STEPS_RATIO,
                f"{row.host}, shard {row.shard}",
            ),
            Evidence(
                "late_per_step_ps",
                row.late_per_step_ps,
                int(STARVED_RATIO * median),
                f"{row.host}, shard {row.shard}",
            ),
        ),
        devices=(row.device,) if row.device else (),
        cost_ps_per_step=row.late_per_step_ps,
        cost_ratio=row.late_per_step_ps / median if median else None,
    )
