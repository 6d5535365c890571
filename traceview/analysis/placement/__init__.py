"""Placement: which devices the step functions ask for, and which devices ran work."""

from __future__ import annotations

from typing import Final

from traceview.analysis import steps
from traceview.analysis.context import Analysis
from traceview.analysis.placement.comparison import compute
from traceview.analysis.placement.result import Placement
from traceview.analysis.placement.section import placement_section

__all__ = ["ANALYSIS", "Placement"]


ANALYSIS: Final = Analysis[Placement](
    "placement",
    compute=lambda context: compute(context.trace, context.result(steps.ANALYSIS)),
    sections=(placement_section,),
)
