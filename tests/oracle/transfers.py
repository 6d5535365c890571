"""Recomputes the directions of `results.transfers` (docs/method.md, "Transfers")."""

from __future__ import annotations

from fractions import Fraction

from tests.oracle.classes import COPY_CLASSES
from tests.oracle.intervals import Interval, clip, length, overlaps, subtract
from tests.oracle.model import Device, HostAnswer, Row, device_name

SMALL_BYTES = 65_536
BEFORE = {
    "h2d": ("compute", "collective"),
    "d2h": ("compute", "collective", "h2d"),
    "d2d": ("compute", "collective", "h2d", "d2h"),
}


def transfer_rows(answers: list[HostAnswer], several: bool) -> list[Row]:
    """One row per GPU of hosts that recorded a device event, by host and ordinal."""
    return [
        {
            **device_name(device, several),
            **{cls: _direction(answer, device, cls) for cls in COPY_CLASSES},
        }
        for answer in answers
        if any(device.activities for device in answer.devices)
        for device in answer.devices
        if device.kind in ("gpu", "tpu")
    ]


def _exposed(device: Device, cls: str, window: Interval) -> int:
    own = [a.span for a in device.of_class(cls)]
    return length(clip(subtract(own, [a.span for a in device.of_class(*BEFORE[cls])]), window))


def _direction(answer: HostAnswer, device: Device, cls: str) -> Row:
    copies = [a for a in device.of_class(cls) if overlaps(a.span, answer.window)]
    sizes = [a.bytes for a in copies if a.bytes is not None]
    is_known = bool(sizes) or not copies
    busy_ps = length(clip([a.span for a in copies], answer.window))
    exposed_ps = _exposed(device, cls, answer.window)
    steps = [(step.start, step.end) for step in answer.steps if step.used]
    per_step = [_exposed(device, cls, step) for step in steps]
    window_ps = answer.window[1] - answer.window[0]
    whole_ps = sum(b - a for a, b in steps)
    parts = (sum(per_step), whole_ps) if whole_ps else (exposed_ps, window_ps)
    ratio = Fraction(*parts) if parts[1] else None
    small = [a for a in copies if a.bytes is not None and a.bytes < SMALL_BYTES]
    return {
        "bytes": sum(sizes) if is_known else None,
        "count": len(copies),
        "busy_ps": busy_ps,
        "exposed_ps": exposed_ps,
        "exposed_ps_per_step": sum(per_step) // len(per_step) if per_step else None,
        "exposed_ratio": None if ratio is None else float(ratio),
        "bytes_per_second": (
            sum(sizes) * 10**12 // busy_ps
            if busy_ps and sum(sizes) and len(sizes) == len(copies)
            else None
        ),
        "small_count": len(small) if is_known else None,
    }
