"""Shows what a gate says: a sentence, and a table of the conditions with what was measured and the limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import QUALITIES, Look, look_of
from traceview.gate.result import GateResult, JudgedRow, Judgement

OUTCOMES: Final = {
    "fails": Look("fails", "FAIL", "critical", "bold red"),
    "unknown": Look("unknown", "not judged", "warning", "yellow"),
    "holds": Look("holds", "ok", "ok", "green"),
}
_WITHIN_NOISE: Final = Look("noise", "ok, noise", "ok", "green")
"""Past its limit, and let pass."""
MOST_ROWS: Final = 8
"""Rows of one condition that are listed."""


def headline(result: GateResult) -> str:
    """The verdict in one sentence."""
    count = len(result.judgements)
    failed, unknown = len(result.with_outcome("fails")), len(result.with_outcome("unknown"))
    conditions = numbers.plural(count, "condition")
    if count == 1 and (failed or unknown):
        words = (
            "failed: the condition does not hold"
            if failed
            else "not judged: the condition cannot be judged"
        )
        return f"Gate {words}."
    parts = []
    if failed:
        parts.append(f"{failed} of {conditions} {'fails' if failed == 1 else 'fail'}")
    if unknown:
        parts.append(f"{unknown} of {conditions} cannot be judged")
    if failed and unknown:
        parts[1] = f"{unknown} cannot be judged"
    if parts:
        return f"Gate failed: {', '.join(parts)}." if failed else f"Gate not judged: {parts[0]}."
    return f"Gate passed: {'the condition holds' if count == 1 else f'all {conditions} hold'}."


def gate_section(result: GateResult) -> doc.Section:
    """The conditions as a table: those that fail first."""
    rows = list(_rows(result))
    return doc.Section(
        "gate",
        headline(result),
        (
            *doc.facts(
                f"run {result.subject.run}",
                f"baseline {result.baseline.name}" if result.baseline else None,
                "strict" if result.strict else None,
            ),
            *doc.table(
                "The conditions, what was measured, and the limits",
                (
                    doc.looks("", [_look(row) for _, row in rows]),
                    doc.names("condition", [text for text, _ in rows]),
                    doc.names("where", [row.where for _, row in rows], priority=1),
                    doc.words("measured", [row.measured for _, row in rows]),
                    doc.words("limit", [row.allowed for _, row in rows], priority=3),
                    doc.words("margin", [row.margin for _, row in rows], priority=2),
                ),
            ),
            *doc.notes(*_notes(result)),
        ),
        is_folded=False,
    )


def _look(row: JudgedRow) -> Look:
    is_let_pass = row.outcome == "holds" and (row.margin_ratio or 0) < 0
    return _WITHIN_NOISE if is_let_pass else OUTCOMES[row.outcome]


def _rows(result: GateResult) -> Iterator[tuple[str, JudgedRow]]:
    """A row for each value that fails or has none; of a condition that holds the row nearest to its limit."""
    for judgement in result.judgements:
        for place, row in enumerate(judgement.rows[:MOST_ROWS]):
            if judgement.outcome != "holds" or not place:
                yield judgement.condition if not place else "", row


def _notes(result: GateResult) -> Iterator[str]:
    for judgement in result.judgements:
        yield from notes_of(judgement)
    if result.capture_quality != "ok":
        yield f"Capture: {look_of(QUALITIES, result.capture_quality).words}."
    reasons = {row.reason for judgement in result.judgements for row in judgement.rows}
    if result.outcome == "failed" and result.headline.rstrip(".") not in reasons:
        yield f"What costs most: {result.headline}"


def notes_of(judgement: Judgement) -> Iterator[str]:
    """What the table has no room for: reasons, and rows that are not listed."""
    hidden = len(judgement.rows) - MOST_ROWS
    if hidden > 0 and judgement.outcome != "holds":
        yield f"{judgement.condition}: {numbers.plural(hidden, 'more row')} not listed."
    by_reason: dict[str, list[str]] = {}
    for row in judgement.rows:
        if row.reason:
            # What fails has its place in the table.
            by_reason.setdefault(row.reason, []).append("" if row.outcome == "fails" else row.where)
    for reason, places in by_reason.items():
        where = numbers.listed([place for place in places if place])
        yield f"{judgement.condition}: {f'{where}: ' if where else ''}{numbers.sentence(reason)}"
