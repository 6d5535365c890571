"""Idle time: what each device waited for."""

from __future__ import annotations

from typing import Final

from traceview.analysis.context import Analysis
from traceview.analysis.idle import findings, outside_of_graphs
from traceview.analysis.idle.result import Idle, compute
from traceview.analysis.idle.rules import RULES
from traceview.analysis.idle.section import TITLE, gaps_section, idle_section

__all__ = ["ANALYSIS", "Idle"]


ANALYSIS: Final = Analysis[Idle](
    "idle",
    compute=lambda context: compute(context.trace, context.selection, context.idle),
    join=lambda hosts: Idle(hosts.rows(lambda result: result.devices)),
    rules=RULES,
    diagnose=lambda context, result: findings.diagnose(
        context.trace, result, context.idle, context.selection
    ),
    if_absent=lambda context: outside_of_graphs.diagnose_without_devices(
        context.trace, context.selection
    ),
    sections=(idle_section, gaps_section),
    title_if_absent=TITLE,
)
