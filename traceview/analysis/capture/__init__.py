"""Capture: how far the recording can be trusted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from traceview.analysis.base import Finding, Skipped
from traceview.analysis.capture import findings
from traceview.analysis.capture.result import Capture, compute
from traceview.analysis.capture.section import capture_section, hosts_section
from traceview.analysis.context import Analysis, Context

__all__ = ["ANALYSIS", "Capture"]


def _diagnose(context: Context, result: Capture | Skipped) -> Iterable[Finding]:
    return () if isinstance(result, Skipped) else findings.diagnose(context.trace, result)


ANALYSIS: Final = Analysis[Capture](
    "capture",
    compute=lambda context: compute(context.trace),
    rules=findings.RULES,
    diagnose=_diagnose,
    sections=(hosts_section, capture_section),
)
