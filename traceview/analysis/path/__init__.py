"""Analyses what made each step as long as it was: its critical path."""

from typing import Final

from traceview.analysis.context import Analysis
from traceview.analysis.path.findings import UNEXPLAINED_IDLE, diagnose
from traceview.analysis.path.result import CriticalPath, compute
from traceview.analysis.path.section import section

ANALYSIS: Final = Analysis[CriticalPath](
    "path",
    compute=compute,
    rules=(UNEXPLAINED_IDLE,),
    diagnose=lambda context, result: diagnose(
        result, context.selection, is_sampled=bool(context.idle.python)
    ),
    sections=(section,),
)

__all__ = ["ANALYSIS", "CriticalPath"]
