"""Concludes from the input pipeline which stage and which shard make the model wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from traceview.analysis.base import Confidence, Evidence, Finding, Severity
from traceview.analysis.cost import Cost
from traceview.analysis.idle_python import PythonShare
from traceview.analysis.input.late_shards import InputReplica
from traceview.analysis.input.result import (
    Bottleneck,
    Input,
    InputHost,
    keeps_waiting,
)
from traceview.analysis.input.rules import (
    INPUT_BOUND,
    NO_PREFETCH,
    REPLICA_STARVED,
    SLOW_INPUT_STAGE,
    WORK_OF_STAGES,
)
from traceview.analysis.selection import Selection
from traceview.document import numbers
from traceview.trace.pipeline import GENERATOR


def diagnose(
    result: Input,
    selection: Selection,
    bound: Sequence[Finding] | None = None,
    python: Mapping[str, PythonShare] | None = None,
) -> list[Finding]:
    """Waits of the model, and the stage and the shard behind them; no wait where the ratio is not known.

    `bound`: the findings that devices wait for input; None where no device was recorded, so that the waits of the
    host decide. `python`: by host, what threads other than that of the steps ran in Python.
    """
    findings = [_starved(row, selection) for row in result.replicas if _is_starved(row)]
    worst = max(result.hosts, key=lambda host: host.input_ratio or 0.0)
    if bound is None:
        cost = _wait_cost(worst, selection)
        if cost is None or INPUT_BOUND.severity_of(cost.ratio or 0.0) is None:
            return findings
        if not keeps_waiting(worst):
            return findings
        bound = (_bound(result, worst, cost, selection),)
        findings += bound
    if not bound:
        return findings
    most = max(bound, key=lambda finding: finding.cost_ratio or 0.0)
    costly = _input_evidence(worst, most)
    stage = result.bottleneck
    if stage and stage.share_ratio >= SLOW_INPUT_STAGE.limits["share_ratio"]:
        ran = (python or {}).get(stage.host)
        findings.append(_slow_stage(stage, costly, selection, ran))
    if "prefetch" in result.missing and not (stage and stage.name.endswith(GENERATOR)):
        findings.append(_no_prefetch(worst, costly, selection))
    return findings


def _confidence(selection: Selection) -> tuple[Confidence, str]:
    count = numbers.plural(len(selection.used_steps), "used step")
    return selection.few_steps or ("high", f"over {count}")


def _severity(selection: Selection, severity: Severity) -> Severity:
    return "info" if selection.few_steps else severity


def _where(worst: InputHost) -> str:
    return worst.device or worst.host


def _wait_cost(worst: InputHost, selection: Selection) -> Cost | None:
    """What the wait costs where no device was recorded; None where it is not known."""
    if worst.input_ratio is None:
        return None
    if worst.mean_wait_per_step_ps is None:
        return Cost.of_window(worst.input_ratio)
    return selection.cost("mean", worst.mean_wait_per_step_ps)


def _bound(result: Input, worst: InputHost, cost: Cost, selection: Selection) -> Finding:
    ratio = cost.ratio or 0.0
    severity = INPUT_BOUND.severity_of(ratio) or "warning"
    confidence = _confidence(selection)
    explanation = (
        f"{worst.device} was idle" if worst.device else f"The step on {worst.host} waited"
    ) + " for that long while the host was in the iterator of the dataset."
    if result.bottleneck:
        explanation += f" Stage {result.bottleneck.name} does most of the pipeline's work."
    return INPUT_BOUND.finding(
        f"waiting for input takes {cost.stated}",
        (Evidence("input_ratio", ratio, INPUT_BOUND.limits[f"{severity}_ratio"], _where(worst)),),
        severity=_severity(selection, severity),
        confidence=confidence,
        explanation=explanation,
        advice=result.bottleneck.advice if result.bottleneck else None,
        devices=(worst.device,) if worst.device else (),
        cost=cost,
    )


def _input_evidence(worst: InputHost, bound: Finding) -> Evidence:
    """That input costs time at all, by waiting or in another way as well; the rules on stages share the limit."""
    has_other_cost = any(item.metric == "input_cost_ratio" for item in bound.evidence)
    metric = "input_cost_ratio" if has_other_cost else "input_ratio"
    limit = NO_PREFETCH.limits["input_ratio"]
    return Evidence(metric, bound.cost_ratio or 0.0, limit, _where(worst))


def _slow_stage(
    stage: Bottleneck,
    costly: Evidence,
    selection: Selection,
    python: PythonShare | None,
) -> Finding:
    limit = SLOW_INPUT_STAGE.limits["share_ratio"]
    return SLOW_INPUT_STAGE.finding(
        f"input stage {stage.kind} does {numbers.share(stage.share_ratio)} of the pipeline's work",
        (
            Evidence("share_ratio", stage.share_ratio, limit, f"{stage.host}, {stage.name}"),
            costly,
            *([python.evidence] if python else []),
        ),
        confidence=_confidence(selection),
        explanation=(
            f"{stage.name} does most of the work for a batch. {WORK_OF_STAGES}{_python_of_input(python)}"
        ),
        advice=stage.advice,
    )


def _python_of_input(python: PythonShare | None) -> str:
    if python is None:
        return ""
    return (
        f" Threads other than that of the steps ran Python: {numbers.share(python.ratio)} of their samples were in "
        f"{python.line}."
    )


def _no_prefetch(worst: InputHost, costly: Evidence, selection: Selection) -> Finding:
    return NO_PREFETCH.finding(
        NO_PREFETCH.example,
        (Evidence("missing", "prefetch", None, worst.host), costly),
        confidence=_confidence(selection),
    )


def _is_starved(row: InputReplica) -> bool:
    limit = REPLICA_STARVED.limits["late_step_ratio"]
    return row.late_step_count > 0 and row.late_step_count >= limit * row.step_count


def _starved(row: InputReplica, selection: Selection) -> Finding:
    step_ps = selection.median_step_ps or 0
    limits = REPLICA_STARVED.limits
    name = row.device or f"replica {row.shard}"
    where = f"{row.host}, shard {row.shard}"
    advice = REPLICA_STARVED.advice
    if len(selection.windows) > 1:
        advice += (
            " With several workers: files of equal size, or tf.data.Options().experimental_distribute"
            ".auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA."
        )
    return REPLICA_STARVED.finding(
        f"{name} gets its shard of the batch {numbers.time(row.late_per_step_ps)} late in {row.late_step_count} of "
        f"{numbers.plural(row.step_count, 'step')}",
        (
            Evidence(
                "late_step_ratio",
                row.late_step_count / row.step_count,
                limits["late_step_ratio"],
                where,
            ),
            Evidence(
                "late_per_step_ps", row.late_per_step_ps, int(limits["late_ratio"] * step_ps), where
            ),
        ),
        severity=_severity(selection, "warning"),
        confidence=_confidence(selection),
        explanation=(
            f"Shard {row.shard} is ready later than the earliest shard; the other replicas then wait for {name} in the "
            "next collective."
        ),
        advice=advice,
        devices=(row.device,) if row.device else (),
        cost=selection.cost(
            "mean",
            row.late_per_step_ps
            if row.mean_late_per_step_ps is None
            else row.mean_late_per_step_ps,
        ),
    )
