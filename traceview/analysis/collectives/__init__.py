"""Collectives: what they cost, and which devices wait for which."""

from __future__ import annotations

from typing import Final

from traceview.analysis import device_time, steps
from traceview.analysis.base import Finding, Skipped
from traceview.analysis.collectives import findings
from traceview.analysis.collectives.result import CollectiveResult, compute
from traceview.analysis.collectives.section import collectives_section
from traceview.analysis.context import Analysis, Context

__all__ = ["ANALYSIS", "CollectiveResult"]


def _diagnose(context: Context, result: CollectiveResult | Skipped) -> list[Finding]:
    times = context.record(device_time.ANALYSIS)
    if times is None or isinstance(result, Skipped):
        return []
    return findings.diagnose(result, times, context.result(steps.ANALYSIS), context.selection)


ANALYSIS: Final = Analysis[CollectiveResult](
    "collectives",
    compute=compute,
    rules=(findings.EXPOSED, findings.WAIT, findings.OFF_GPU),
    diagnose=_diagnose,
    sections=(collectives_section,),
)
