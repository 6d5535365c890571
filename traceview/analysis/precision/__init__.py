"""Precision: in which precision each GPU computes, and how much of it runs on tensor cores."""

from __future__ import annotations

from typing import Final

from traceview.analysis.context import Analysis
from traceview.analysis.precision.findings import LOW_PRECISION_UNUSED, diagnose
from traceview.analysis.precision.result import Precision, compute, of_devices
from traceview.analysis.precision.section import section

__all__ = ["ANALYSIS", "Precision"]


ANALYSIS: Final = Analysis[Precision](
    "precision",
    compute=lambda context: compute(context.trace, context.selection, context.activities),
    join=lambda hosts: of_devices(hosts.rows(lambda result: result.devices)),
    rules=(LOW_PRECISION_UNUSED,),
    diagnose=lambda context, result: diagnose(context.trace, result),
    sections=(section,),
)
