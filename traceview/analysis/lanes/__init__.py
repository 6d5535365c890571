"""Lanes: what the timeline of a document draws; made only where it is asked for."""

from __future__ import annotations

from typing import Final

from traceview.analysis import idle
from traceview.analysis.base import Skipped
from traceview.analysis.context import Analysis, Context
from traceview.analysis.lanes.result import compute
from traceview.document.chart import Lanes


def _compute(context: Context) -> Lanes | Skipped:
    if not context.options.lanes:
        return Skipped("")
    return compute(context.trace, context.selection, context.idle, context.result(idle.ANALYSIS))


ANALYSIS: Final = Analysis[Lanes]("lanes", compute=_compute)
