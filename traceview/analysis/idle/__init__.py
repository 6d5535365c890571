"""Idle time: what each device waited for."""

from __future__ import annotations

from typing import Final

from traceview.analysis.base import Finding, Skipped
from traceview.analysis.context import Analysis, Context
from traceview.analysis.idle import findings
from traceview.analysis.idle.compute import Idle, compute


def _diagnose(context: Context, result: Idle | Skipped) -> list[Finding]:
    return findings.diagnose(context.trace, result, context.idle, context.selection)


ANALYSIS: Final = Analysis[Idle](
    "idle",
    compute=lambda context: compute(context.trace, context.selection, context.idle),
    diagnose=_diagnose,
    title_if_absent="Why the devices waited",
)
