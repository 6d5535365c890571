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
_SECOND_MS: Final = 1000
_UNITS_MS: Final = {"ms": 1, "s": _SECOND_MS, "m": 60 * _SECOND_MS, "h": 3600 * _SECOND_MS}
_DURATION: Final = lazy_pattern(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|h)\s*", re.ASCII)


def parse_duration(option: str, text: str) -> int:
    """Read `500ms`, `90s`, `1.5m` or `2h` as milliseconds; raises a `UsageError` that names the option."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise UsageError(f"{option} {text}: not a duration", hint="for example 90s, 10m or 2h")
    milliseconds = round(float(match[1]) * _UNITS_MS[match[2]])
    if not 0 < milliseconds <= MAX_DURATION_MS:
        raise UsageError(
            f"{option} {text}: must be between 1 ms and {MAX_DURATION_MS // 3_600_000} hours"
        )
    return milliseconds
