"""What is the answer in one sentence?"""

from __future__ import annotations

from traceview.analyses.capture import Capture
from traceview.analyses.device_time import DeviceTime, DeviceTimeRow
from traceview.analyses.finding import listed
from traceview.analyses.steps import Steps
from traceview.report.model import Verdict, VerdictNumber
from traceview.trace.model import Trace

_STATUS_WORDS = {
    "marginal": "computed little",
    "copy_only": "only received copies",
    "memory_only": "held memory and ran nothing",
    "empty": "recorded nothing",
}


def verdict_of(
    trace: Trace, capture: Capture, device_time: DeviceTime, steps: Steps | None
) -> Verdict:
    """The headline and its numbers."""
    return Verdict(_headline(trace, capture, device_time), _numbers(device_time, steps))


def _headline(trace: Trace, capture: Capture, device_time: DeviceTime) -> str:
    rows = device_time.devices
    if not rows:
        return "No device was recorded: nothing can be said about GPUs."
    if capture.quality == "unusable":
        return f"{len(rows)} devices are visible and none recorded an event."
    noun = "replicas" if all(row.kind == "replica" for row in rows) else "GPUs"
    if any(row.kind not in ("gpu", "replica") for row in rows):
        noun = "devices"
    working = [row for row in rows if row.status in ("active", "marginal")]
    verb = "ran ops" if noun == "replicas" else "ran kernels"
    sentence = f"{len(working)} of {len(rows)} {noun} {verb}"
    if len(working) < len(rows):
        sentence += f" ({listed([row.device for row in working])})" if working else ""
    for status, words in _STATUS_WORDS.items():
        having = [row for row in rows if row.status == status]
        if having:
            sentence += f"; {_count(having)} {words}"
    return sentence + "."


def _count(rows: list[DeviceTimeRow]) -> str:
    return rows[0].device if len(rows) == 1 else str(len(rows))


def _numbers(device_time: DeviceTime, steps: Steps | None) -> tuple[VerdictNumber, ...]:
    working = [
        row
        for row in device_time.devices
        if row.status in ("active", "marginal") and row.busy_ratio is not None
    ]
    ratios = [row.busy_ratio or 0.0 for row in working]
    least = min(ratios, default=None)
    mean = sum(ratios) / len(ratios) if ratios else None
    return (
        VerdictNumber("median_step_ps", "step time (median)", steps.median_ps if steps else None),
        VerdictNumber("least_busy_ratio", "busy, least busy device in use", least),
        VerdictNumber("mean_busy_ratio", "busy, mean of devices in use", mean),
    )
