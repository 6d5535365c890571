"""Numbers the longest gaps of a report, as its table and its timeline show them."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from traceview.analysis.context import View
from traceview.analysis.facts.idle_report import Gap, Idle, IdleRow
from traceview.document import model as doc
from traceview.ledger.states import State

MOST_GAPS: Final = 100
"""Gaps of all devices together that have a row, the longest ones."""

_NO_WORK: Final = State.NO_WORK.key


class NumberedGap(Struct, frozen=True):
    """A gap of a document: its number, from 1 on by length, and where it lies."""

    number: int
    gap: Gap
    span: doc.Span


def numbered_gaps(view: View) -> tuple[NumberedGap, ...]:
    """The longest gaps of the devices that were used, numbered as documents number them."""
    result = view.record("idle", Idle)
    starts = view.window_start_ps
    longest = sorted(
        (
            (gap, row)
            for row in (result.devices if result else ())
            if not is_without_work(row) and row.host in starts
            for gap in row.gaps
        ),
        key=lambda pair: -pair[0].duration_ps,
    )[:MOST_GAPS]
    return tuple(
        NumberedGap(number, gap, _span(row.device, gap, starts[row.host]))
        for number, (gap, row) in enumerate(longest, start=1)
    )


def _span(device: str, gap: Gap, window_ps: int) -> doc.Span:
    begin = gap.start_ps - window_ps
    return doc.Span(device, begin, begin + gap.duration_ps)


def is_without_work(row: IdleRow) -> bool:
    """Whether it was idle for no other reason than that nobody gave it work."""
    return list(row.states) == [_NO_WORK]
