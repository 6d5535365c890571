"""Names the reasons why the driver lowered the clocks of a GPU, which NVML gives as bits."""

from __future__ import annotations

from typing import Final

IDLE_BIT: Final = 0x1
SETTING_BITS: Final = 0x2 | 0x100
"""Clocks that somebody set, for applications or for the display."""

REASONS: Final = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost with a slower GPU",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake from outside",
    0x200: "board limit",
    0x400: "reliability limit",
}
"""Clocks event reasons that hold a GPU back; nvml.h, nvmlClocksEventReason…."""

_NAMED_BITS: Final = sum(REASONS)
_EXPLAINED: Final = 0x8
"""NVML sets the bit of a hardware slowdown together with that of its reason, heat or power."""
_EXPLAINING: Final = 0x40 | 0x80


def throttle_names(bits: int) -> tuple[str, ...]:
    """Names of the reasons in `bits` that hold a GPU back; none if it is idle or runs at the clocks that were set."""
    if bits & _EXPLAINING:
        bits &= ~_EXPLAINED
    names = [name for bit, name in REASONS.items() if bits & bit]
    unknown = bits & ~(IDLE_BIT | SETTING_BITS | _NAMED_BITS)
    return (*names, *([f"reason {unknown:#x}"] if unknown else []))
