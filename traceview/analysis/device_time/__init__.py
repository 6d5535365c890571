"""Device time: how busy each device was, and with what."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from traceview.analysis.base import Finding, Skipped
from traceview.analysis.context import Analysis, Context
from traceview.analysis.device_time import findings
from traceview.analysis.device_time.result import DeviceTime, compute
from traceview.analysis.device_time.section import TITLE, devices_section

__all__ = ["ANALYSIS", "DeviceTime"]


def _diagnose(context: Context, result: DeviceTime | Skipped) -> Iterable[Finding]:
    if isinstance(result, Skipped):
        return ()
    return findings.diagnose(context.trace, result, context.selection, context.activities)


ANALYSIS: Final = Analysis[DeviceTime](
    "device_time",
    compute=lambda context: compute(context.trace, context.selection, context.activities),
    rules=findings.RULES,
    diagnose=_diagnose,
    sections=(devices_section,),
    title_if_absent=TITLE,
)
