"""Says why a result is not in a report."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from traceview.report.model import Report

NOT_SAVED: Final = "not in the saved report"
LEFT_OUT: Final = "left out of the reduced report"
_ON_REQUEST: Final = ("lanes",)
"""Results that only a page has."""


def why_absent(report: Report, topic: str) -> str:
    """The reason why the report has no result of this topic."""
    return report.skipped.get(topic, NOT_SAVED)


def absence(report: Report, topic: str) -> str:
    """The same reason as a sentence of its own."""
    reason = why_absent(report, topic)
    return f"results.{topic} is {reason}" if is_lost(report, topic) else reason


def is_lost(report: Report, topic: str) -> bool:
    """Whether the report lacks a result that the run may have had."""
    is_there = getattr(report.results, topic) is not None
    return not is_there and why_absent(report, topic) in (NOT_SAVED, LEFT_OUT)


def with_reasons(report: Report) -> Report:
    """A report that was read, with a reason for each result that it should have: an earlier version, or another program,
    did not write it.
    """
    results = report.results
    absent = [
        name
        for name in results.__struct_fields__
        if getattr(results, name) is None and name not in (*report.skipped, *_ON_REQUEST)
    ]
    return replace(report, skipped={**report.skipped, **dict.fromkeys(absent, NOT_SAVED)})
