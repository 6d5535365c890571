"""Launches: how the host starts the kernels of each GPU."""

from __future__ import annotations

from typing import Final

from traceview.analysis.context import Analysis
from traceview.analysis.launches.result import Launches, compute, diagnose

__all__ = ["ANALYSIS", "Launches"]


ANALYSIS: Final = Analysis[Launches](
    "launches",
    compute=lambda context: compute(context.trace, context.selection, context.activities),
    diagnose=lambda _, result: diagnose(result),
)
