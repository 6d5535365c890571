"""Lanes: what the timeline of a document draws; made only where it is asked for, when the findings are known."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from traceview.analysis.base import Skipped
from traceview.analysis.context import Analysis, Context
from traceview.analysis.facts.idle_report import Idle
from traceview.analysis.lanes.result import compute
from traceview.document.figures import Lanes


def _made_last(_: Context) -> Skipped:
    return Skipped("")


def lanes_of(
    context: Context, idle_time: Idle | Skipped, detailed: Collection[int]
) -> Lanes | Skipped:
    """The lanes; `idle_time`: whose longest gaps choose the threads, `detailed`: numbers of the steps to show in full detail."""
    return compute(
        context.trace, context.selection, context.idle, idle_time, context.ledger, detailed
    )


ANALYSIS: Final = Analysis[Lanes]("lanes", compute=_made_last)
