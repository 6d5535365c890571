"""Transfers: what copies between host and GPUs cost, and who issues them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from traceview.analysis import device_time
from traceview.analysis.base import Finding
from traceview.analysis.context import Analysis, Context
from traceview.analysis.transfers import findings
from traceview.analysis.transfers.result import SIZE_BOUNDS_BYTES, Transfers, compute
from traceview.analysis.transfers.rules import (
    H2D_EXPOSED,
    H2D_PAGEABLE,
    H2D_SLOW_LINK,
    H2D_SMALL_COPIES,
)
from traceview.analysis.transfers.section import section

__all__ = ["ANALYSIS", "Transfers"]


def _diagnose(context: Context, result: Transfers) -> Iterable[Finding]:
    times = context.record(device_time.ANALYSIS)
    return findings.diagnose(result, times, context.selection) if times else ()


ANALYSIS: Final = Analysis[Transfers](
    "transfers",
    compute=lambda context: compute(context.trace, context.selection, context.activities),
    join=lambda hosts: Transfers(SIZE_BOUNDS_BYTES, hosts.rows(lambda result: result.devices)),
    rules=(H2D_EXPOSED, H2D_PAGEABLE, H2D_SMALL_COPIES, H2D_SLOW_LINK),
    diagnose=_diagnose,
    sections=(section,),
)
