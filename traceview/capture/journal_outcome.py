"""Describes how the processes that wrote to a journal ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from traceview.base.errors import CaptureError
from traceview.capture.journal import Entry

_MOST_SHOWN: Final = 8
"""Processes, or reasons: where there are more, they mostly say the same."""


def why_no_trace(entries: Sequence[Entry]) -> CaptureError:
    """Why none of these processes left a trace."""
    ran = [entry for entry in entries if entry.state != "imported"] or entries
    reasons = dict.fromkeys(map(reason, ran))
    shown = "; ".join(list(reasons)[:_MOST_SHOWN])
    hint = next((entry.hint for entry in ran if entry.hint), None)
    return CaptureError(f"nothing was captured in {processes(len(ran))}: {shown}", hint=hint)


def missing_traces(entries: Sequence[Entry]) -> Iterator[str]:
    """A line for each process that ran TensorFlow and left no trace."""
    lacking = [entry for entry in entries if entry.run is None and entry.state != "imported"]
    for entry in lacking[:_MOST_SHOWN]:
        yield f"note: no trace of {entry.place}: {reason(entry)}"
    if len(lacking) > _MOST_SHOWN:
        yield f"note: no trace of {processes(len(lacking) - _MOST_SHOWN)} more"


def reason(entry: Entry) -> str:
    """Why a process left no trace."""
    if entry.problem is not None:
        return entry.problem.removeprefix("nothing was captured: ")
    return "it was killed, or still runs"


def processes(count: int) -> str:
    """A number of processes."""
    return "1 process" if count == 1 else f"{count} processes"
