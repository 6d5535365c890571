"""Units of time: the picoseconds in each, as integers, and how a user writes how long something may take."""

from __future__ import annotations

import re
from typing import Final

from traceview.base.errors import UsageError
from traceview.base.text import lazy_pattern

PS_PER_NS: Final = 1_000
PS_PER_US: Final = 1_000_000
PS_PER_MS: Final = 1_000_000_000
PS_PER_S: Final = 1_000_000_000_000
MAX_DURATION_MS: Final = 7 * 24 * 3_600_000
"""A week; what takes longer than that to go on does not."""
_UNITS: Final = {
    "ns": PS_PER_NS,
    "us": PS_PER_US,
    "µs": PS_PER_US,
    "μs": PS_PER_US,
    "ms": PS_PER_MS,
    "s": PS_PER_S,
    "m": 60 * PS_PER_S,
    "h": 3600 * PS_PER_S,
}
_LENGTH: Final = lazy_pattern(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*([mnuµμ]s|[smh])\s*", re.ASCII)


def picoseconds(option: str, text: str) -> int:
    """Read `50us`, `1.5ms` or `2h`; raises a `UsageError` that names the option."""
    from decimal import Decimal

    match = _LENGTH.fullmatch(text)
    if match is None:
        hint = "a number and ns, us, ms, s, m or h: 50us, 10m"
        raise UsageError(f"{option} {text}: not a length of time", hint=hint)
    return int(Decimal(match[1]) * _UNITS[match[2]])


def parse_duration(option: str, text: str) -> int:
    """Read how long something may take as milliseconds; raises a `UsageError` that names the option."""
    milliseconds = round(picoseconds(option, text) / PS_PER_MS)
    if not 0 < milliseconds <= MAX_DURATION_MS:
        raise UsageError(
            f"{option} {text}: must be between 1 ms and {MAX_DURATION_MS // 3_600_000} hours"
        )
    return milliseconds
