"""Idle time: what each device waited for."""

from __future__ import annotations

from typing import Final

from traceview.analysis.context import Analysis
from traceview.analysis.facts.idle_report import Idle, compute
from traceview.analysis.idle.findings import diagnose, diagnose_without_devices
from traceview.analysis.idle.rules import RULES
from traceview.analysis.idle.section import TITLE, gaps_section, idle_section

__all__ = ["ANALYSIS", "Idle"]


ANALYSIS: Final = Analysis[Idle](
    "idle",
    compute=compute,
    rules=RULES,
    diagnose=diagnose,
    if_absent=diagnose_without_devices,
    sections=(idle_section, gaps_section),
    title_if_absent=TITLE,
)
