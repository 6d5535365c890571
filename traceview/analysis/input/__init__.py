"""Input: whether the model waits for data, and which stage of the pipeline is slow."""

from __future__ import annotations

from typing import Final

from traceview.analysis.context import Analysis
from traceview.analysis.input.findings import INPUT_BOUND, diagnose
from traceview.analysis.input.result import Input, compute
from traceview.analysis.input.section import section

__all__ = ["ANALYSIS", "Input"]

ANALYSIS: Final = Analysis[Input](
    "input",
    compute=compute,
    rules=(INPUT_BOUND,),
    diagnose=diagnose,
    if_absent=lambda context: diagnose(context, None),
    sections=(section,),
)
