"""Defines a comparison and the verdict of a gate: plain records, named as in their JSON Schemas; documents get nothing else."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from traceview.base.record import (
    Count,
    DeviceKey,
    Integer,
    KernelName,
    OpName,
    PathName,
    Picoseconds,
    Record,
    RunName,
    SourceLine,
    VersionText,
    one_of,
)
from traceview.comparison.noise import Basis, Direction, Measure
from traceview.document.sanitize import shortened
from traceview.document.vocabulary import CLASSES
from traceview.ledger.states import KEYS

SCHEMA_VERSION: Final = 7

LONGEST_VALUE: Final = 40
"""Characters of a name or a value in a sentence."""

StateKey = Annotated[str, one_of(*KEYS)]


class ComparedRun(Record, frozen=True):
    """One capture of a side.

    Attributes:
        logdir: Log directory that the capture was read from.
        run: Name of the run.
        step_count: Used steps; steps of the same number on several hosts count once.
        step_ps: Their mean, picoseconds.
    """

    logdir: PathName
    run: RunName
    step_count: Count
    step_ps: Picoseconds


class Condition(Record, frozen=True):
    """Something about the job that is not the same on both sides.

    Attributes:
        name: What it is.
        before: What it was before.
        after: What it is after.
        is_blocking: Whether step times say nothing of the change because of it.
    """

    name: str
    before: str
    after: str
    is_blocking: bool

    @property
    def words(self) -> str:
        """`batch 128 → 256`."""
        before, after = (shortened(value, LONGEST_VALUE) for value in (self.before, self.after))
        return f"{self.name} {before} → {after}"


class StepDifference(Record, frozen=True):
    """How much the mean step differs, and whether the typical one does.

    Attributes:
        before_ps: Mean step before, mean over the captures, picoseconds.
        after_ps: The same after.
        difference_ps: after_ps − before_ps.
        change_ratio: The difference as a share of the step before; negative where it became faster.
        typical_before_ps: Typical step before, the mean without the slowest third, picoseconds.
        typical_after_ps: The same after.
        measure: mean or typical: the step that the following are of.
        low_ratio: Lower end of the 95% interval of the change of this step; null with a single step on a side.
        high_ratio: Upper end of it.
        least_shown_ratio: Smallest change that 90% of runs as noisy as these show, as a share of the step before.
        direction: slower or faster where the interval excludes zero, none where it does not, unknown without an interval.
        is_probable: Whether it differs by a quarter or more, without the slowest step of each capture, too, and so between
            any two captures, though that is not shown.
        basis: What shows how much runs differ without a change: captures of these sides, earlier runs of the job, or an
            assumption for such devices; none without an interval.
    """

    before_ps: Picoseconds
    after_ps: Picoseconds
    difference_ps: Integer
    change_ratio: float | None
    typical_before_ps: Picoseconds
    typical_after_ps: Picoseconds
    measure: Measure
    low_ratio: float | None
    high_ratio: float | None
    least_shown_ratio: float | None
    direction: Direction
    is_probable: bool
    basis: Basis

    @property
    def is_change(self) -> bool:
        """Whether the mean step differs, beyond noise or probably."""
        return self.measure == "mean" and (
            self.direction in ("slower", "faster") or self.is_probable
        )

    @property
    def ratio(self) -> float:
        """The change that the interval is of."""
        if self.measure == "mean":
            return self.change_ratio or 0.0
        return self.typical_after_ps / max(self.typical_before_ps, 1) - 1


class DeviceState(Record, frozen=True):
    """How much the time of a device in one state differs.

    Attributes:
        state: The state.
        before_ps: Mean per step before, picoseconds.
        after_ps: Mean per step after.
        difference_ps: after_ps − before_ps.
    """

    state: StateKey
    before_ps: Picoseconds
    after_ps: Picoseconds
    difference_ps: Integer


class StateDifference(DeviceState, frozen=True):
    """The mean difference of a state over the devices; all states sum to the mean steps and to their difference.

    Attributes:
        direction: slower or faster beyond noise, none within it, unknown with a single step on a side.
        line: Line of Python that a finding on this state names, on the side where it takes longer; null where none does.
    """

    direction: Direction
    line: SourceLine | None


class DeviceDifference(Record, frozen=True):
    """The mean step of a device by state on each side.

    Attributes:
        device: Key of the device: after, or before where it is gone.
        status: both, gone (in use before alone) or new (in use after alone).
        states: The states of both sides, which sum to its mean steps, the largest difference first.
    """

    device: DeviceKey
    status: Literal["both", "gone", "new"]
    states: tuple[DeviceState, ...]


class WorkDifference(Record, frozen=True):
    """How much the compute of one layer differs that one function of Python made, whatever its lines are called by now.

    Times are means per step and device on which it runs.

    Attributes:
        status: slower or faster where that is shown among all that are compared, new, gone, or same. What a side does not
            list is new or gone if it is longer than all that this side leaves out.
        before_ps: Time before, picoseconds.
        after_ps: Time after.
        before_calls: Events per step before.
        after_calls: Events per step after.
        difference_ps: after_ps − before_ps.
        path_ps: How much more of the critical path it takes, mean per step, picoseconds.
        layer: The layer that made it, on the side where it takes longer; null where no name shows any, and of a function
            that makes a layer that others make, too: then all of the function is one part.
        source_line: The line of the function that takes longest, on the same side; null where none was recorded.
    """

    status: Literal["slower", "faster", "new", "gone", "same"]
    before_ps: Picoseconds
    after_ps: Picoseconds
    before_calls: float
    after_calls: float
    difference_ps: Integer
    path_ps: Integer
    layer: OpName | None
    source_line: SourceLine | None


class OpDifference(WorkDifference, frozen=True):
    """How much an op differs, as the compute of a layer does.

    Attributes:
        class_: Class of activity.
        op: Name of the op without its replica part, of an instruction of XLA without its number: those of one name that one
            function or layer made are one; null where not recorded.
        kernel: Name of its longest kernel without arguments and types, on the side where it takes longer; null for host
            ops.
    """

    class_: Annotated[str, one_of(*CLASSES)]
    op: OpName | None
    kernel: KernelName | None


class FindingDifference(Record, frozen=True):
    """A finding that came, went, or costs another time.

    Attributes:
        code: Its code.
        status: came, went or changed.
        title: Its title after, or before where it went.
        clause: The same of the difference, as a part of a sentence; empty where it is about no time.
        states: Keys of the states that it is about.
        before_ps: What it cost each step before, mean over the devices that it names, picoseconds; null where there was
            none, and where it is about no time.
        after_ps: The same after.
    """

    code: str
    status: Literal["came", "went", "changed"]
    title: str
    clause: str
    states: tuple[Annotated[str, one_of(*KEYS)], ...]
    before_ps: Picoseconds | None
    after_ps: Picoseconds | None

    @property
    def difference_ps(self) -> int:
        """How much more it costs each step."""
        return (self.after_ps or 0) - (self.before_ps or 0)


GATE_SCHEMA_VERSION: Final = 2

Outcome: TypeAlias = Literal["holds", "fails", "no_verdict", "unknown"]


class JudgedRow(Record, frozen=True):
    """One value that a condition is about.

    Attributes:
        where: Device that it was measured on; empty for a value of the whole run.
        outcome: holds, fails, no_verdict where the runs differ too much to tell, or unknown where there is no value.
        value: What was measured, in the smallest unit of its key: picoseconds, bytes, a ratio; of a finding that must be
            absent 1 or 0; null where there is none.
        limit: The limit in the same unit; null where there is none.
        measured: The value as people read it.
        allowed: The limit as people read it.
        baseline: The value of the baseline; null where the condition is not about a change.
        change_ratio: The change against the baseline as a share of it; null as the baseline is, and where that is zero.
        reason: Why there is no value or no verdict, or the title of the finding; null where there is nothing to say.
    """

    where: str
    outcome: Outcome
    value: float | None
    limit: float | None
    measured: str
    allowed: str
    baseline: float | None = None
    change_ratio: float | None = None
    reason: str | None = None


class Judgement(Record, frozen=True):
    """One condition.

    Attributes:
        condition: The condition as it was written.
        outcome: holds; fails: some row is past its limit; no_verdict: the runs differ too much to tell; unknown: it cannot
            be judged.
        rows: The rows that do not hold, else the one that is nearest to its limit.
    """

    condition: str
    outcome: Outcome
    rows: tuple[JudgedRow, ...]


class JudgedSide(Record, frozen=True):
    """A run that was judged, or compared with.

    Attributes:
        name: The path or the name of the baseline that was given.
        logdir: Log directory that it was read from.
        run: Name of the run, of several captures of the first.
        capture_count: Captures of the side.
    """

    name: PathName
    logdir: PathName
    run: RunName
    capture_count: Count = 1


class GateResult(Record, frozen=True):
    """The verdict of a gate on a run.

    Attributes:
        schema_version: Version of this schema.
        traceview_version: Version of traceview that judged.
        outcome: passed: all conditions hold; failed: at least one does not; unknown: none fails, and at least one cannot be
            judged; no_verdict: all can be judged, none fails, and of at least one the runs differ too much to tell.
        exit_code: 0, 10, 7 and 9, in the same order.
        subject: The run that was judged.
        baseline: The run that it was compared with; null without one.
        headline: What costs most in the run, in one sentence.
        capture_quality: How far the capture can be trusted: ok, degraded or unusable.
        judgements: The conditions: those that fail first, then those that cannot be judged, then those without a verdict.
    """

    schema_version: Literal[2]
    traceview_version: VersionText
    outcome: Annotated[str, one_of("passed", "failed", "unknown", "no_verdict")]
    exit_code: Count
    subject: JudgedSide
    baseline: JudgedSide | None
    headline: str
    capture_quality: Annotated[str, one_of("ok", "degraded", "unusable")]
    judgements: tuple[Judgement, ...]

    def with_outcome(self, *outcomes: Outcome) -> tuple[Judgement, ...]:
        """The conditions with one of these outcomes."""
        return tuple(row for row in self.judgements if row.outcome in outcomes)


class Comparison(Record, frozen=True):
    """The difference of two sides: how much, how sure, and why.

    Attributes:
        schema_version: Version of this schema; it changes only when a key changes its meaning or goes.
        traceview_version: Version of traceview that compared.
        verdict: The answer in one sentence.
        step: The difference of the mean steps.
        before: Captures of the side before.
        after: Captures of the side after.
        conditions: What else is not the same on both sides.
        limits: What limits the comparison, in sentences.
        states: The difference by state, largest first; empty without a ledger on a side.
        devices: The difference by device and state.
        parts: The difference of the compute by function and layer, the largest on the path first.
        ops: The difference by op, the largest on the path first.
        findings: Findings that came, went or cost another time.
    """

    schema_version: Literal[7]
    traceview_version: VersionText
    verdict: str
    step: StepDifference
    before: tuple[ComparedRun, ...]
    after: tuple[ComparedRun, ...]
    conditions: tuple[Condition, ...]
    limits: tuple[str, ...]
    states: tuple[StateDifference, ...]
    devices: tuple[DeviceDifference, ...]
    parts: tuple[WorkDifference, ...]
    ops: tuple[OpDifference, ...]
    findings: tuple[FindingDifference, ...]
