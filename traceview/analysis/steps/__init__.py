"""Steps: how long each took, and how they were found."""

from __future__ import annotations

from typing import Final

from traceview.analysis.context import Analysis
from traceview.analysis.steps.findings import RULES, diagnose, diagnose_absent, diagnose_unsteady
from traceview.analysis.steps.result import Steps, compute
from traceview.analysis.steps.section import TITLE, steps_section

__all__ = ["ANALYSIS", "Steps"]

ANALYSIS: Final = Analysis[Steps](
    "steps",
    compute=lambda context: compute(
        context.trace, context.selection, context.activities, context.python_of_steps
    ),
    rules=RULES,
    diagnose=lambda _, result: diagnose(result),
    if_absent=lambda _: [diagnose_absent()],
    conclude=lambda context, result, findings: diagnose_unsteady(
        result,
        findings,
        on_cpu=all(device.kind == "replica" for device in context.trace.device_list),
    ),
    sections=(steps_section,),
    title_if_absent=TITLE,
)
