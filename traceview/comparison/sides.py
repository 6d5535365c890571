"""Reads the captures of a side: log directories, runs, single traces and saved reports."""

from __future__ import annotations

from collections.abc import Sequence

from traceview.location import Location
from traceview.report.build import analyze
from traceview.report.given import SAVED
from traceview.report.model import Report
from traceview.report.saved import load_report
from traceview.trace.load import load
from traceview.trace.model import Trace

Source = Trace | Report | str | Location
"""What a report is made of, or is."""


def reports_of(sources: Sequence[Source], *, lanes: bool = False) -> list[Report]:
    """A report of each source; the trace of one is let go before the next is read.

    `lanes`: with what a timeline draws, where there is a trace. Raises what `load` and `load_report` raise.
    """
    return [_report_of(source, lanes=lanes) for source in sources]


def _report_of(source: Source, *, lanes: bool) -> Report:
    if isinstance(source, Report):
        return source
    if not isinstance(source, Trace) and str(source).lower().endswith(SAVED):
        return load_report(source)
    return analyze(source if isinstance(source, Trace) else load(source), lanes=lanes)
