"""Capture: how far the recording can be trusted."""

from __future__ import annotations

from typing import Final

from traceview.analysis.base import Finding, Skipped
from traceview.analysis.capture.result import Capture, compute, diagnose
from traceview.analysis.context import Analysis, Context


def _diagnose(context: Context, result: Capture | Skipped) -> list[Finding]:
    return [] if isinstance(result, Skipped) else diagnose(context.trace, result)


ANALYSIS: Final = Analysis[Capture](
    "capture", compute=lambda context: compute(context.trace), diagnose=_diagnose
)
