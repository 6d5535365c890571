"""Defines what a gate says: of each condition whether it holds, what was measured, and how far that is from the limit."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from traceview.base.record import Count, PathName, Record, RunName, VersionText, one_of
from traceview.comparison.model import Comparison

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
