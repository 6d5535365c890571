"""Concludes that the devices in use mostly idle, where no other finding says why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traceview.analysis import balance
from traceview.analysis.balance.findings import device_noun
from traceview.analysis.base import Evidence, Finding, Rule, Skipped
from traceview.analysis.context import Context
from traceview.analysis.scaling.result import Scaling
from traceview.document import numbers

POOR_SCALING: Final = Rule(
    code="poor-scaling",
    is_of_absence=True,
    starts_at=(
        "several devices in use that compute less than {efficiency_ratio} of the time on average, and no other finding says why"
    ),
    limits={"efficiency_ratio": 0.5},
    severities=("info",),
    meaning="The devices in use mostly wait, so fewer of them might train as fast.",
    evidence="in_use_efficiency_ratio and effective_gpus in results.balance",
    advice="Record a run on one device too, and pass its log directory to --baseline of traceview analyze.",
    example="8 GPUs compute 26.3% of the time on average",
)

_EXPLAINING: Final = ("marginal-gpu", "single-gpu-gradients", "unused-gpu")
"""Findings without a cost that explain why devices in use have little to do."""

_EXPLAINS_NOTHING: Final = "unexplained-idle"
"""A finding with a cost that says that no cause is known."""


def conclude(
    context: Context, result: Scaling | Skipped, findings: Sequence[Finding]
) -> list[Finding]:
    """Poor scaling, unless one of the findings explains it."""
    known = context.record(balance.ANALYSIS)
    if known is None or len(known.devices) < 2:
        return []
    ratio, limit = known.in_use_efficiency_ratio, POOR_SCALING.limits["efficiency_ratio"]
    is_explained = any(
        finding.severity != "info"
        and finding.code != _EXPLAINS_NOTHING
        and (finding.cost_ratio is not None or finding.code in _EXPLAINING)
        for finding in findings
    )
    if ratio >= limit or is_explained:
        return []
    partly = list(
        dict.fromkeys(
            finding.code
            for finding in findings
            if finding.cost_ratio is not None and finding.code != _EXPLAINS_NOTHING
        )
    )
    why = (
        f"Partly explained by: {numbers.listed(partly)}."
        if partly
        else "No other finding explains what they wait for."
    )
    compare = (
        POOR_SCALING.advice
        if isinstance(result, Skipped)
        else "The section Scaling shows which part of the step is longer than in the baseline."
    )
    return [
        POOR_SCALING.finding(
            f"{len(known.devices)} {device_noun(known.kind)} compute {numbers.share(ratio)} of the time on average",
            (Evidence("in_use_efficiency_ratio", ratio, limit, "devices in use"),),
            confidence=context.selection.few_steps
            or ("medium", "the low use is measured, the cause is only partly known"),
            explanation=(
                f"{POOR_SCALING.meaning} {why} The section on waiting devices has all idle time by cause."
            ),
            advice=(
                f"{compare} traceview gaps LOGDIR shows what the devices wait for. Try a larger batch per replica."
            ),
            devices=tuple(row.device for row in known.devices),
        )
    ]
