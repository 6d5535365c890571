"""Collectives: what they cost, and who waits for whom."""

from __future__ import annotations

from typing import Final

from traceview.analysis import device_time, steps
from traceview.analysis.base import Finding, Skipped
from traceview.analysis.collectives import findings
from traceview.analysis.collectives.result import CollectiveResult, compute
from traceview.analysis.context import Analysis, Context

__all__ = ["ANALYSIS", "CollectiveResult"]


def _compute(context: Context) -> CollectiveResult | Skipped:
    return compute(context.trace, context.selection, context.activities, context.collectives)


def _diagnose(context: Context, result: CollectiveResult | Skipped) -> list[Finding]:
    times = context.record(device_time.ANALYSIS)
    if times is None:
        return []
    return findings.diagnose(result, times, context.result(steps.ANALYSIS), context.selection)


ANALYSIS: Final = Analysis[CollectiveResult]("collectives", compute=_compute, diagnose=_diagnose)
