"""Environment: versions, strategy, batch size and settings of the job, as the capture recorded them."""

from __future__ import annotations

from typing import Final

from traceview.analysis.context import Analysis
from traceview.analysis.environment.section import environment_section
from traceview.analysis.facts.environment_report import Environment, compute

__all__ = ["ANALYSIS", "Environment"]


ANALYSIS: Final = Analysis[Environment](
    "environment", compute=lambda context: compute(context.trace), sections=(environment_section,)
)
