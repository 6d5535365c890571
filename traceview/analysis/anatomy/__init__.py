"""Analyses what the mean step of each device consists of."""

from typing import Final

from traceview.analysis.anatomy.result import Anatomy, compute
from traceview.analysis.context import Analysis

ANALYSIS: Final = Analysis[Anatomy]("anatomy", compute=compute)

__all__ = ["ANALYSIS", "Anatomy"]
