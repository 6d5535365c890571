"""Collectives: what they cost, and which devices wait for which."""

from __future__ import annotations

from typing import Final

from traceview.analysis import device_time, steps
from traceview.analysis.base import Finding
from traceview.analysis.collectives import findings, of_layers
from traceview.analysis.collectives.bandwidth import agreed, sidecars
from traceview.analysis.collectives.result import CollectiveResult, compute
from traceview.analysis.collectives.section import collectives_section
from traceview.analysis.context import Analysis, Context

__all__ = ["ANALYSIS", "CollectiveResult"]


def _diagnose(context: Context, result: CollectiveResult) -> list[Finding]:
    times = context.record(device_time.ANALYSIS)
    if times is None:
        return []
    trace = context.trace
    bytes_per_pack = agreed(
        sidecar.environment.strategy.bytes_per_pack
        for sidecar in sidecars(trace, range(len(trace.hosts)))
    )
    return [
        *findings.diagnose(
            result, times, context.record(steps.ANALYSIS), context.selection, bytes_per_pack
        ),
        *of_layers.diagnose(context),
    ]


ANALYSIS: Final = Analysis[CollectiveResult](
    "collectives",
    compute=compute,
    rules=(findings.EXPOSED, findings.WAIT, findings.OFF_GPU, of_layers.OF_LAYERS),
    diagnose=_diagnose,
    sections=(collectives_section,),
)
