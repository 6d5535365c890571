"""Input: whether the model waits for data, and which stage of the pipeline is slow."""

from __future__ import annotations

from typing import Final

from traceview.analysis import capture, idle
from traceview.analysis.base import Finding, Skipped
from traceview.analysis.context import Analysis, Context
from traceview.analysis.input import findings
from traceview.analysis.input.result import Input, compute

__all__ = ["ANALYSIS", "Input"]


def _diagnose(context: Context, result: Input | Skipped) -> list[Finding]:
    # Where GPUs were lost they may have worked while the host waited.
    if any(
        finding.code == "no-gpu-plane" and finding.severity == "critical"
        for finding in context.findings(capture.ANALYSIS)
    ):
        return []
    is_bound = None
    if context.idle.gaps:
        codes = [finding.code for finding in context.findings(idle.ANALYSIS)]
        is_bound = "input-bound" in codes
    return findings.diagnose(result, context.selection, is_bound=is_bound)


ANALYSIS: Final = Analysis[Input](
    "input",
    compute=lambda context: compute(context.trace, context.selection, context.input_idle),
    diagnose=_diagnose,
)
