"""Steps: how long each took, and how they were found."""

from __future__ import annotations

from typing import Final

from traceview.analysis.base import Finding, Skipped
from traceview.analysis.context import Analysis, Context
from traceview.analysis.steps.result import Steps, compute, diagnose, diagnose_unsteady

__all__ = ["ANALYSIS", "Steps"]


def _diagnose(context: Context, result: Steps | Skipped) -> list[Finding]:
    return diagnose(result, context.selection)


ANALYSIS: Final = Analysis[Steps](
    "steps",
    compute=lambda context: compute(context.trace, context.selection, context.activities),
    diagnose=_diagnose,
    conclude=lambda _, result, findings: diagnose_unsteady(result, findings),
    title_if_absent="Steps",
)
