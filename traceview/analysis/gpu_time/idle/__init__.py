"""Idle time: what each device waited for."""

from __future__ import annotations

from typing import Final

from traceview.analysis.gpu_time.idle.findings import diagnose, diagnose_without_devices
from traceview.analysis.gpu_time.idle.rules import RULES
from traceview.analysis.gpu_time.idle.section import TITLE, gaps_section, idle_section
from traceview.analysis.measures.context import Analysis, has_time
from traceview.analysis.measures.idle_report import Idle, compute

__all__ = ["ANALYSIS", "Idle"]


ANALYSIS: Final = Analysis[Idle](
    "idle",
    compute=compute,
    rules=RULES,
    leads=has_time(*(state for rule in RULES for state in rule.states)),
    diagnose=diagnose,
    if_absent=diagnose_without_devices,
    sections=(idle_section, gaps_section),
    title_if_absent=TITLE,
)
