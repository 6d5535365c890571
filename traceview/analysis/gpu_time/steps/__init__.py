"""Steps: how long each took, and how they were found."""

from __future__ import annotations

from typing import Final

from traceview.analysis.gpu_time.steps.findings import (
    RULES,
    diagnose,
    diagnose_absent,
    diagnose_unsteady,
)
from traceview.analysis.gpu_time.steps.section import TITLE, steps_section
from traceview.analysis.measures.context import Analysis
from traceview.analysis.measures.step_report import Steps, compute

__all__ = ["ANALYSIS", "Steps"]

ANALYSIS: Final = Analysis[Steps](
    "steps",
    compute=compute,
    rules=RULES,
    diagnose=diagnose,
    if_absent=lambda context: [diagnose_absent(context)],
    conclude=diagnose_unsteady,
    sections=(steps_section,),
    title_if_absent=TITLE,
)
