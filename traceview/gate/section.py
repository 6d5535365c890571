"""Shows what a gate says: a sentence, and a table of the conditions with what was measured and the limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

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
_LONGEST_PLACE: Final = 20
"""Characters of a row that stands beside its condition, such as a device; a longer one stands below it."""
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
    let_pass = sum(judgement.is_let_pass for judgement in result.judgements)
    if let_pass:
        which = "the condition" if count == 1 else f"{let_pass} of {conditions}"
        return f"Gate passed: {which} {'is' if let_pass == 1 else 'are'} past the limit, but within noise."
    return f"Gate passed: {'the condition holds' if count == 1 else f'all {conditions} hold'}."


def gate_section(result: GateResult) -> doc.Section:
    """The conditions as a table: those that fail first."""
    lines = list(_lines(result))
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
                    doc.looks("", [line.look for line in lines]),
                    doc.names("condition", [line.text for line in lines]),
                    doc.names("where", [line.where for line in lines], priority=3),
                    doc.words("value", [line.row.measured if line.row else "" for line in lines]),
                    doc.words("limit", [line.row.allowed if line.row else "" for line in lines]),
                    doc.words(
                        "margin",
                        [line.row.margin if line.row else "" for line in lines],
                        priority=2,
                    ),
                    doc.words(
                        "change",
                        [_change_words(line.row) if line.row else "" for line in lines],
                        priority=1,
                    ),
                ),
            ),
            *doc.notes(*_notes(result)),
        ),
        is_folded=False,
    )


def _look(row: JudgedRow) -> Look:
    return _WITHIN_NOISE if row.is_let_pass else OUTCOMES[row.outcome]


class _Line(NamedTuple):
    """A line of the table. `text`: the condition, or below it one of its rows. `row`: None where they follow below."""

    look: Look
    text: str
    row: JudgedRow | None
    where: str = ""


def _lines(result: GateResult) -> Iterator[_Line]:
    """A line for each value that fails or has none, below its condition where there are several; of a condition that
    holds the row nearest to its limit.
    """
    for judgement in result.judgements:
        rows = judgement.rows[:MOST_ROWS]
        is_short = len(rows) == 1 and len(rows[0].where) <= _LONGEST_PLACE
        if judgement.outcome == "holds" or is_short:
            yield _Line(_look(rows[0]), judgement.condition, rows[0], rows[0].where)
            continue
        yield _Line(OUTCOMES[judgement.outcome], judgement.condition, None)
        yield from (_Line(_look(row), f"  {row.where}", row) for row in rows)


def _change_words(row: JudgedRow) -> str:
    """The change against the baseline: `+5.2%`; empty where there is none."""
    return "" if row.change_ratio is None else numbers.signed_share(row.change_ratio)


def measured_words(row: JudgedRow) -> str:
    """The value and its change: `41.2 ms (+5.2%)`."""
    change = _change_words(row)
    return f"{row.measured} ({change})" if change else row.measured


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
