"""Defines what a gate says, and shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

from traceview.base.record import Count, PathName, Record, RunName, VersionText, one_of
from traceview.comparison.model import Comparison
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import QUALITIES, Look, look_of

GATE_SCHEMA_VERSION: Final = 1

HOLDS: Final = 0
FAILED: Final = 10
NOT_JUDGED: Final = 7
"""Exit codes of a gate."""

Outcome: TypeAlias = Literal["holds", "fails", "unknown"]
Plain: TypeAlias = int | float | str | bool


class JudgedRow(Record, frozen=True):
    """One value that a condition is about.

    Attributes:
        where: Device, step or row that it was measured on; empty for a value of the whole run.
        outcome: holds, fails, or unknown where there is no value.
        value: What was measured, in the smallest unit of its key: picoseconds, bytes, a ratio; null where there is none.
        limit: The limit in the same unit; null where there is none.
        measured: The value as people read it.
        allowed: The limit as people read it.
        margin: How far the value is from the limit, in words; empty where that has no meaning.
        margin_ratio: The same as a share of the limit; negative where the limit is passed; null without a limit that is
            not zero.
        baseline: The value of the baseline; null where the condition is not about a change.
        change_ratio: The change against the baseline as a share of it; null as the baseline is, and where that is zero.
        change_least_ratio: Lower end of the 95% interval of the change; null where its noise is not known.
        change_most_ratio: Upper end of that interval.
        reason: Why there is no value, why a change past the limit is let pass, that there is no finding to be limited, or the
            title of the finding that must be absent; null where there is nothing to say.
    """

    where: str
    outcome: Outcome
    value: Plain | None
    limit: Plain | None
    measured: str
    allowed: str
    margin: str
    margin_ratio: float | None = None
    baseline: int | float | None = None
    change_ratio: float | None = None
    change_least_ratio: float | None = None
    change_most_ratio: float | None = None
    reason: str | None = None

    @property
    def is_let_pass(self) -> bool:
        """Whether it is past its limit and holds all the same, for the change is within noise."""
        return self.outcome == "holds" and (self.margin_ratio or 0) < 0


class Judgement(Record, frozen=True):
    """One condition.

    Attributes:
        condition: The condition as it was written.
        outcome: holds; fails: some row is past its limit; unknown: it cannot be judged.
        row_count: Rows that it is about.
        rows: The rows that fail or have no value, else the one that is nearest to its limit.
    """

    condition: str
    outcome: Outcome
    row_count: Count
    rows: tuple[JudgedRow, ...]

    @property
    def is_let_pass(self) -> bool:
        """Whether it is past its limit and holds all the same, for the change is within noise."""
        return any(row.is_let_pass for row in self.rows)


class Side(Record, frozen=True):
    """A run that was judged, or compared with.

    Attributes:
        name: The path or the name of the baseline that was given.
        logdir: Log directory that it was read from.
        run: Name of the run.
    """

    name: PathName
    logdir: PathName
    run: RunName


class GateResult(Record, frozen=True):
    """What a gate says of a run.

    Attributes:
        schema_version: Version of this schema.
        traceview_version: Version of traceview that judged.
        outcome: passed: all conditions hold; failed: at least one does not; unknown: none fails, and at least one cannot be
            judged.
        exit_code: 0, 10 and 7, in the same order.
        subject: The run that was judged.
        baseline: The run that it was compared with; null without one.
        strict: Whether changes within noise and rows without a value were let pass (false) or not (true).
        headline: What costs most in the run, in one sentence.
        capture_quality: How far the capture can be trusted: ok, degraded or unusable.
        judgements: The conditions: those that fail first, then those that cannot be judged.
    """

    schema_version: Literal[1]
    traceview_version: VersionText
    outcome: Annotated[str, one_of("passed", "failed", "unknown")]
    exit_code: Count
    subject: Side
    baseline: Side | None
    strict: bool
    headline: str
    capture_quality: Annotated[str, one_of("ok", "degraded", "unusable")]
    judgements: tuple[Judgement, ...]

    def with_outcome(self, outcome: Outcome) -> tuple[Judgement, ...]:
        """The conditions with this outcome."""
        return tuple(row for row in self.judgements if row.outcome == outcome)


class JudgedComparison(Comparison, frozen=True):
    """What differs between two sides, and whether the conditions on it hold.

    Attributes:
        gate: What the conditions of --require say; null without any.
    """

    gate: GateResult | None = None


def judged_comparison(comparison: Comparison, gate: GateResult | None) -> JudgedComparison:
    """The comparison with the verdict on it."""
    fields = {name: getattr(comparison, name) for name in Comparison.__struct_fields__}
    return JudgedComparison(**fields, gate=gate)


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
