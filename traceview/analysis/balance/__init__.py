"""Balance: how evenly the devices work, and what an even share would save."""

from __future__ import annotations

from typing import Final

from traceview.analysis.balance import findings, rules
from traceview.analysis.balance.result import Balance, compute
from traceview.analysis.balance.section import balance_section
from traceview.analysis.context import Analysis

__all__ = ["ANALYSIS", "Balance"]


ANALYSIS: Final = Analysis[Balance](
    "balance",
    compute=compute,
    rules=(rules.STRAGGLER, rules.MIXED, rules.SERIAL, rules.SINGLE),
    diagnose=lambda context, result: findings.diagnose(result, context.selection),
    sections=(balance_section,),
)
