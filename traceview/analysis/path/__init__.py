"""Analyses what made each step as long as it was: its critical path."""

from typing import Final

from traceview.analysis.context import Analysis
from traceview.analysis.path.result import CriticalPath, compute

ANALYSIS: Final = Analysis[CriticalPath](
    "path",
    compute=compute,
)
