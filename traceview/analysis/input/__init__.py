"""Input: whether the model waits for data, and which stage of the pipeline is slow."""

from __future__ import annotations

from typing import Final

from traceview.analysis import capture, idle
from traceview.analysis.base import Finding
from traceview.analysis.context import Analysis, Context
from traceview.analysis.idle.rules import INPUT_BOUND
from traceview.analysis.input import findings
from traceview.analysis.input.result import Input, compute
from traceview.analysis.input.rules import NO_PREFETCH, REPLICA_STARVED, SLOW_INPUT_STAGE
from traceview.analysis.input.section import section

__all__ = ["ANALYSIS", "Input"]


def _diagnose(context: Context, result: Input) -> list[Finding]:
    # Where the planes of GPUs were lost, the GPUs may have worked while the host waited.
    if any(
        finding.code == "no-gpu-plane" and finding.severity == "critical"
        for finding in context.findings(capture.ANALYSIS)
    ):
        return []
    codes = [finding.code for finding in context.findings(idle.ANALYSIS)]
    is_bound = INPUT_BOUND.code in codes if context.idle.gaps else None
    return findings.diagnose(
        result, context.selection, is_bound=is_bound, python=context.python_of_input
    )


ANALYSIS: Final = Analysis[Input](
    "input",
    compute=lambda context: compute(context.trace, context.selection, context.input_idle),
    rules=(REPLICA_STARVED, SLOW_INPUT_STAGE, NO_PREFETCH),
    diagnose=_diagnose,
    sections=(section,),
)
