"""Lanes: what the timeline of a document draws; made only where it is asked for, when the findings are known."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from traceview.analysis import idle
from traceview.analysis.base import Skipped
from traceview.analysis.context import Analysis, Context
from traceview.analysis.lanes.result import compute
from traceview.document.chart import Lanes


def _made_last(_: Context) -> Skipped:
    return Skipped("")


def lanes_of(context: Context, detailed: Collection[int]) -> Lanes | Skipped:
    """The lanes; `detailed`: numbers of the steps to show in full detail."""
    idle_time = context.result(idle.ANALYSIS)
    return compute(context.trace, context.selection, context.idle, idle_time, detailed)


ANALYSIS: Final = Analysis[Lanes]("lanes", compute=_made_last)
