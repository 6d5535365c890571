"""Device time: how busy each device was, and with what."""

from __future__ import annotations

from typing import Final

from traceview.analysis.context import Analysis
from traceview.analysis.device_time import findings
from traceview.analysis.device_time.result import DeviceTime, compute
from traceview.analysis.device_time.section import TITLE, devices_section

__all__ = ["ANALYSIS", "DeviceTime"]


ANALYSIS: Final = Analysis[DeviceTime](
    "device_time",
    compute=lambda context: compute(context.trace, context.selection, context.activities),
    rules=findings.RULES,
    diagnose=lambda context, result: findings.diagnose(
        context.trace, result, context.selection, context.activities
    ),
    sections=(devices_section,),
    title_if_absent=TITLE,
)
