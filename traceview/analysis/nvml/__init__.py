"""NVML: what the driver measured of the GPUs while the trace was recorded."""

from __future__ import annotations

from typing import Final

from traceview.analysis.context import Analysis
from traceview.analysis.nvml import findings
from traceview.analysis.nvml.result import Nvml, compute
from traceview.analysis.nvml.section import nvml_section

__all__ = ["ANALYSIS", "Nvml"]


ANALYSIS: Final = Analysis[Nvml](
    "outside_view",
    compute=lambda context: compute(context.trace, context.activities),
    rules=findings.RULES,
    diagnose=lambda _, result: findings.diagnose(result),
    sections=(nvml_section,),
)
