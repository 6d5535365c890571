"""Which tracer levels were in force, and does this TensorFlow take any?"""

from __future__ import annotations

import re
from typing import Any, Final

DEFAULT_OPTIONS: Final = {
    "host_tracer_level": 2,
    "device_tracer_level": 1,
    "python_tracer_level": 0,
}
"""What is asked for: TensorFlow's defaults, the only ones that 2.20 and 2.21 honour."""
OPTIONS_IGNORED: Final = ((2, 20), (2, 21))
"""Releases in which ProfilerOptions have no effect: the binding refuses every value (measured with 2.20.0 and 2.21.0)."""
_RECORDED_SINCE: Final = (2, 21)


def release(version: str) -> tuple[int, int] | None:
    """`2.21.0rc1` as (2, 21)."""
    match = re.match(r"(\d{1,4})\.(\d{1,4})", version)
    return (int(match[1]), int(match[2])) if match else None


def describe_options(version: str, recorded: dict[str, int] | None) -> dict[str, Any]:
    """The group `options`: levels asked for and in force, and whether this release ignores what is asked.

    `recorded` is what the trace says, None where it says nothing. Then nothing is claimed to be in force.
    """
    number = release(version)
    is_ignored = number in OPTIONS_IGNORED or (recorded is not None and recorded != DEFAULT_OPTIONS)
    group: dict[str, Any] = {
        "asked": DEFAULT_OPTIONS,
        "in_force": recorded,
        "is_ignored": is_ignored,
    }
    if recorded is None:
        group["missing"] = {"in_force": _why_unknown(number)}
    return group


def _why_unknown(number: tuple[int, int] | None) -> str:
    if number is None or number >= _RECORDED_SINCE:
        return "the trace does not say"
    name = f"TensorFlow {number[0]}.{number[1]}"
    if number in OPTIONS_IGNORED:
        return f"{name} ignores options, and records none in the trace"
    return f"{name} takes options, and records none in the trace"
