"""NVML: what the driver says of the GPUs while the trace was recorded."""

from __future__ import annotations

from typing import Final

from traceview.analysis.context import Analysis
from traceview.analysis.nvml import findings
from traceview.analysis.nvml.result import OutsideView, compute

__all__ = ["ANALYSIS", "OutsideView"]


ANALYSIS: Final = Analysis[OutsideView](
    "outside_view",
    compute=lambda context: compute(context.trace, context.activities),
    diagnose=lambda _, result: findings.diagnose(result),
)
