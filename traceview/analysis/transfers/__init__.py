"""Transfers: what copies between host and GPUs cost, and who issues them."""

from __future__ import annotations

from typing import Final

from traceview.analysis import device_time
from traceview.analysis.base import Finding, Skipped
from traceview.analysis.context import Analysis, Context
from traceview.analysis.transfers import findings
from traceview.analysis.transfers.result import Transfers, compute

__all__ = ["ANALYSIS", "Transfers"]


def _diagnose(context: Context, result: Transfers | Skipped) -> list[Finding]:
    times = context.record(device_time.ANALYSIS)
    return findings.diagnose(result, times, context.selection) if times else []


ANALYSIS: Final = Analysis[Transfers](
    "transfers",
    compute=lambda context: compute(context.trace, context.selection, context.activities),
    diagnose=_diagnose,
)
