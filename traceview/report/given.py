"""Reads the report that a path leads to: a saved one, or one that is made from a trace.

Commands import it at their start, so it imports what reads when it reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from traceview.base.location import Location

if TYPE_CHECKING:
    from traceview.report.model import Report

SAVED: Final = (".json", ".json.gz")
"""Endings of saved reports."""


def is_saved_report(path: Location) -> bool:
    """Whether a path names a file of a saved report rather than a trace."""
    return path.name.lower().endswith(SAVED) and not path.is_dir()


def report_at(path: Location, *, run: str | None = None, salvage: bool = False) -> Report:
    """The report that is saved in a file, or that a log directory, a run or a trace leads to.

    Raises what `load_report` and `load` raise.
    """
    if is_saved_report(path):
        from traceview.report.saved import load_report

        return load_report(path)
    from traceview.report.build import analyze
    from traceview.trace.reading.load import load

    return analyze(load(path, run=run, salvage=salvage))
