"""Scaling: how much faster the run is than a baseline on one device, and where the rest of the speed goes."""

from __future__ import annotations

from typing import Final

from traceview.analysis.context import Analysis
from traceview.analysis.scaling import findings
from traceview.analysis.scaling.result import Scaling, ScalingParts, ScalingRun, compute
from traceview.analysis.scaling.section import scaling_section

__all__ = ["ANALYSIS", "Scaling", "ScalingParts", "ScalingRun"]


ANALYSIS: Final = Analysis[Scaling](
    "scaling",
    compute=compute,
    rules=(findings.POOR_SCALING,),
    conclude=findings.conclude,
    sections=(scaling_section,),
)
