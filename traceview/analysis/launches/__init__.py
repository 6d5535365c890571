"""Launches: how the host launches the kernels of each GPU."""

from __future__ import annotations

from typing import Final

from traceview.analysis.context import Analysis
from traceview.analysis.launches.findings import OPAQUE_CUDA_GRAPH, diagnose
from traceview.analysis.launches.result import Launches, compute
from traceview.analysis.launches.section import section

__all__ = ["ANALYSIS", "Launches"]


ANALYSIS: Final = Analysis[Launches](
    "launches",
    compute=lambda context: compute(context.trace, context.selection, context.activities),
    join=lambda hosts: Launches(hosts.rows(lambda result: result.devices)),
    rules=(OPAQUE_CUDA_GRAPH,),
    diagnose=lambda _, result: diagnose(result),
    sections=(section,),
)
