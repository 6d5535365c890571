"""Judges the window that a training has just recorded, for `keras_callback`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from traceview.document import numbers
from traceview.gate.budget import asked_budget, baseline_of, gate
from traceview.gate.ci import message
from traceview.gate.result import FAILED, HOLDS
from traceview.gate.section import headline
from traceview.report.given import report_at


def verdict(
    trace: Path, file: Path | None, texts: Sequence[str]
) -> tuple[Literal["holds", "fails", "unknown"], str]:
    """Whether the window meets its budget, and a sentence on it.

    Raises what reading the budget, its baseline and the trace raises.
    """
    asked = asked_budget(texts, file, None)
    before = baseline_of(asked.baseline, None) if asked.baseline else None
    result = gate(str(trace), report_at(trace), asked, before)
    shown = [
        f"{judgement.condition} ({message(judgement)})"
        for judgement in result.judgements
        if judgement.outcome != "holds"
    ]
    text = f"{headline(result)} {numbers.listed(shown)}".strip()
    if result.exit_code == HOLDS:
        return "holds", text
    return "fails" if result.exit_code == FAILED else "unknown", text
