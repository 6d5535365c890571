"""Writes a gate for GitHub Actions: an annotation per condition that does not hold, and a summary of the job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from traceview.document.markdown import render_section
from traceview.document.sanitize import encodable, sanitize
from traceview.gate.result import GateResult, JudgedRow, Judgement
from traceview.gate.section import MOST_ROWS, gate_section, headline, measured_words

MOST_ANNOTATIONS: Final = 10
"""GitHub shows ten errors of a step; the summary has all."""

_LEVELS: Final = {"fails": "error", "unknown": "warning", "holds": "warning"}
_DATA: Final = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
_PROPERTY: Final = (*_DATA, (":", "%3A"), (",", "%2C"))


def annotation_lines(result: GateResult) -> Iterator[str]:
    """The lines that make GitHub mark the run: errors fail, warnings cannot be judged or are past their limit within noise."""
    shown = [row for row in result.judgements if row.outcome != "holds" or row.is_let_pass]
    for judgement in shown[:MOST_ANNOTATIONS]:
        title = _escaped(f"traceview gate: {judgement.condition}", _PROPERTY)
        yield f"::{_LEVELS[judgement.outcome]} title={title}::{_escaped(message(judgement), _DATA)}"
    hidden = len(shown) - MOST_ANNOTATIONS
    if hidden > 0:
        yield f"::notice title=traceview gate::{hidden} more in the summary of the job"
    if result.outcome == "passed":
        yield f"::notice title=traceview gate::{_escaped(headline(result), _DATA)}"


def message(judgement: Judgement) -> str:
    """What was measured, row by row, and why a row has no value."""
    rows = [_row(row) for row in judgement.rows if row.outcome != "holds" or row.is_let_pass]
    hidden = len(rows) - MOST_ROWS
    return "; ".join([*rows[:MOST_ROWS], *([f"{hidden} more"] if hidden > 0 else [])])


def _row(row: JudgedRow) -> str:
    where = f"{row.where}: " if row.where else ""
    if row.outcome == "unknown":
        return f"{where}cannot be judged: {row.reason}"
    margin = f", {row.margin}" if row.margin else ""
    grace = f", {row.reason}" if row.is_let_pass and row.reason else ""
    return f"{where}{measured_words(row)}, allowed {row.allowed}{margin}{grace}"


def _escaped(text: str, replacements: tuple[tuple[str, str], ...]) -> str:
    """As the runner of GitHub reads it back; control characters are made visible before that."""
    text = encodable(sanitize(text))
    for character, escape in replacements:
        text = text.replace(character, escape)
    return text


def summary(result: GateResult) -> str:
    """The section of the gate as Markdown, for `$GITHUB_STEP_SUMMARY` and for a comment."""
    return render_section(gate_section(result))
