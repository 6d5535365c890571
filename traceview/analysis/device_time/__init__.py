"""Device time: how busy each device was, and with what."""

from __future__ import annotations

from typing import Final

from traceview.analysis.context import Analysis
from traceview.analysis.device_time.compute import DeviceTime, compute
from traceview.analysis.device_time.findings import diagnose

ANALYSIS: Final = Analysis[DeviceTime](
    "device_time",
    compute=lambda context: compute(context.trace, context.selection, context.activities),
    diagnose=lambda context: diagnose(
        context.trace,
        compute(context.trace, context.selection, context.activities),
        context.selection,
        context.activities,
    ),
)
