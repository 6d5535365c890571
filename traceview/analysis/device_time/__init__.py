"""Device time: how busy each device was, and with what."""

from __future__ import annotations

from typing import Final

from traceview.analysis.base import Finding, Skipped
from traceview.analysis.context import Analysis, Context
from traceview.analysis.device_time import findings
from traceview.analysis.device_time.result import DeviceTime, compute

__all__ = ["ANALYSIS", "DeviceTime"]


def _diagnose(context: Context, result: DeviceTime | Skipped) -> list[Finding]:
    if isinstance(result, Skipped):
        return []
    return findings.diagnose(context.trace, result, context.selection, context.activities)


ANALYSIS: Final = Analysis[DeviceTime](
    "device_time",
    compute=lambda context: compute(context.trace, context.selection, context.activities),
    diagnose=_diagnose,
    title_if_absent="Devices",
)
