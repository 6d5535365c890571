"""Brings what makes reports of hangs to a process that nobody else brings it to: one below a launcher, or a child."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final

from traceview.capture.hang.watch import HangSettings, WrittenHang

_REPORTS: Final = "traceview.analysis.hang.section"


def hang_settings(after_s: float | None, say: Callable[[str], None]) -> HangSettings | None:
    """What makes reports of hangs, imported now, because a script that hangs in an import must not stop the report.

    None without a time, or where the analysis cannot be imported, which `say` reports.
    """
    if after_s is None:
        return None
    try:
        # By name: a capture does without the analysis, and here is nobody else to bring it.
        write_up = import_module(_REPORTS).write_up
    except ImportError as error:
        say(f"note: --on-hang is off in this process: {error}")
        return None
    return HangSettings(after_s, lambda facts: WrittenHang(*write_up(facts)))
