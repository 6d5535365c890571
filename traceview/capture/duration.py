"""Reads a time that a user gives, such as `500ms` or `10m`."""

from __future__ import annotations

import re
from typing import Final

from traceview.base.errors import UsageError

MAX_DURATION_MS: Final = 3_600_000
"""An hour; the tracer's buffers overflow long before."""
_SECOND_MS: Final = 1000
_UNITS_MS: Final = {"ms": 1, "s": _SECOND_MS, "m": 60 * _SECOND_MS}
_DURATION: Final = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m)\s*", re.ASCII)


def parse_duration(option: str, text: str) -> int:
    """Read `2s`, `500ms`, `1.5s` or `1m` as milliseconds; raises a `UsageError` that names the option."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{option} {text}: not a duration", hint="for example 500ms, 2s, 1.5s or 1m"
        )
    milliseconds = round(float(match[1]) * _UNITS_MS[match[2]])
    if not 0 < milliseconds <= MAX_DURATION_MS:
        raise UsageError(
            f"{option} {text}: must be between 1 ms and {MAX_DURATION_MS // 60_000} minutes"
        )
    return milliseconds
