"""Input: whether the model waits for data, and which stage of the pipeline is slow."""

from __future__ import annotations

from typing import Final

from traceview.analysis import capture
from traceview.analysis.base import Finding
from traceview.analysis.context import Analysis, Context
from traceview.analysis.input import findings, waiting
from traceview.analysis.input.result import Input, compute, join
from traceview.analysis.input.rules import (
    INPUT_BOUND,
    NO_PREFETCH,
    REPLICA_STARVED,
    SLOW_INPUT_STAGE,
)
from traceview.analysis.input.section import section

__all__ = ["ANALYSIS", "Input"]


def _diagnose(context: Context, result: Input) -> list[Finding]:
    # Where the planes of GPUs were lost, the GPUs may have worked while the host waited.
    if any(
        finding.code in ("no-gpu-plane", "cupti-missing") and finding.severity == "critical"
        for finding in context.findings(capture.ANALYSIS)
    ):
        return []
    if not context.idle.gaps:
        return findings.diagnose(result, context.selection, python=context.python_of_input)
    bound = waiting.diagnose(context, result)
    return [*bound, *findings.diagnose(result, context.selection, bound, context.python_of_input)]


ANALYSIS: Final = Analysis[Input](
    "input",
    compute=lambda context: compute(context.trace, context.selection, context.input_idle),
    join=join,
    rules=(INPUT_BOUND, REPLICA_STARVED, SLOW_INPUT_STAGE, NO_PREFETCH),
    diagnose=_diagnose,
    if_absent=lambda context: waiting.diagnose(context, None),
    sections=(section,),
)
