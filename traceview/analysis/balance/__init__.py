"""Balance: how evenly the devices worked, and what an even share would gain."""

from __future__ import annotations

from typing import Final

from traceview.analysis import device_time, nvml, placement, scaling
from traceview.analysis.balance import findings
from traceview.analysis.balance.result import Balance, BalanceInput, compute
from traceview.analysis.base import Skipped
from traceview.analysis.context import Analysis, Context

__all__ = ["ANALYSIS", "Balance"]


def _compute(context: Context) -> Balance | Skipped:
    times = context.result(device_time.ANALYSIS)
    if isinstance(times, Skipped):
        return times
    known = BalanceInput(
        times,
        context.input_idle,
        context.idle.gaps,
        context.collectives,
        context.result(nvml.ANALYSIS),
        context.result(placement.ANALYSIS),
    )
    return compute(context.trace, context.selection, context.activities, known)


ANALYSIS: Final = Analysis[Balance](
    "balance",
    compute=_compute,
    diagnose=lambda context, result: findings.diagnose(result, context.selection),
    conclude=lambda context, result, made: findings.diagnose_scaling(
        result,
        context.selection,
        made,
        has_baseline=context.record(scaling.ANALYSIS) is not None,
    ),
)
