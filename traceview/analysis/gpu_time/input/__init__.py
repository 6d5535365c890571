"""Input: whether the model waits for data, and which stage of the pipeline is slow."""

from __future__ import annotations

from typing import Final

from traceview.analysis.gpu_time.input.findings import INPUT_BOUND, diagnose
from traceview.analysis.gpu_time.input.result import Input, compute
from traceview.analysis.gpu_time.input.section import section
from traceview.analysis.measures.context import Analysis

__all__ = ["ANALYSIS", "Input"]

ANALYSIS: Final = Analysis[Input](
    "input",
    compute=compute,
    rules=(INPUT_BOUND,),
    diagnose=diagnose,
    if_absent=lambda context: diagnose(context, None),
    sections=(section,),
)
