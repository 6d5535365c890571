"""Capture: how far the recording can be trusted."""

from __future__ import annotations

from typing import Final

from traceview.analysis.machine.capture import findings
from traceview.analysis.machine.capture.result import Capture, compute
from traceview.analysis.machine.capture.section import capture_section, hosts_section
from traceview.analysis.measures.context import Analysis

__all__ = ["ANALYSIS", "Capture"]


ANALYSIS: Final = Analysis[Capture](
    "capture",
    compute=lambda context: compute(context.trace),
    rules=findings.RULES,
    diagnose=lambda context, result: findings.diagnose(context.trace, result),
    sections=(hosts_section, capture_section),
)
