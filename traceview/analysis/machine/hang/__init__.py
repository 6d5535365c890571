"""Hangs: times in which no training step ended, as `traceview capture --on-hang` reports them."""

from __future__ import annotations

from typing import Final

from traceview.analysis.machine.hang import findings
from traceview.analysis.machine.hang.section import hangs_section
from traceview.analysis.measures.context import Analysis, Context
from traceview.analysis.rules.finding import Skipped
from traceview.base.record import Record
from traceview.trace.sidecar.hang import Hang

__all__ = ["ANALYSIS", "Hangs"]


class Hangs(Record, frozen=True):
    """The hangs of a run.

    Attributes:
        hangs: One per report, in the order of their files.
    """

    hangs: tuple[Hang, ...]


def _compute(context: Context) -> Hangs | Skipped:
    hangs = context.trace.hangs
    return Hangs(hangs) if hangs else Skipped("no hang was reported (traceview capture --on-hang)")


ANALYSIS: Final = Analysis[Hangs](
    "hangs",
    _compute,
    rules=findings.RULES,
    diagnose=lambda _, result: [
        finding for hang in result.hangs for finding in findings.diagnose(hang)
    ],
    sections=(lambda _, result: hangs_section(result.hangs),),
)
