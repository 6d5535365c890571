"""Defines a comparison: plain records, named as in its JSON Schema; documents get nothing else."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from traceview.analysis.op_steps import Shapes
from traceview.comparison.difference import Difference, Direction
from traceview.document.vocabulary import STEP_PARTS
from traceview.record import (
    Count,
    DeviceKey,
    Integer,
    KernelName,
    MetricName,
    OpName,
    PathName,
    Picoseconds,
    Record,
    RunName,
    SourceLine,
    StageName,
    VersionText,
    one_of,
)
from traceview.trace.cause import CLASS_KEYS, PATH_KEYS

SCHEMA_VERSION: Final = 1


class ComparedRun(Record, frozen=True):
    """One capture of a side.

    Attributes:
        logdir: Log directory that the capture was read from.
        run: Name of the run.
        traceview_version: Version of traceview that made its report.
        step_count: Used steps; steps of the same number on several hosts count once.
        step_ps: Their mean length, rounded down, picoseconds.
    """

    logdir: PathName
    run: RunName
    traceview_version: VersionText
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


class StepDifference(Record, frozen=True):
    """How much the mean step differs, and the typical one.

    Attributes:
        before_ps: Mean step before, mean over the captures, rounded down, picoseconds.
        after_ps: The same after.
        difference_ps: after_ps − before_ps.
        ratio: The difference as a share of the step before; negative where it became faster.
        low_ps: Lower end of the 95% interval of the difference, picoseconds; null with a single step on a side.
        high_ps: Upper end of it.
        low_ratio: Lower end of the 95% interval of the ratio; null where that of the step before holds zero.
        high_ratio: Upper end of it.
        least_shown_ratio: Smallest change that 90% of runs as noisy as these show, as a share of the step before.
        direction: slower or faster where that is shown, none where it is not, unknown without an interval. Where the
            typical step is known, the 95% interval of its ratio excludes zero, or the 99% interval of the mean does;
            elsewhere the 95% interval of the mean.
        is_over_runs: Whether the interval covers how much runs differ without a change; else it covers their steps.
        typical_ratio: By which share the typical step differs, estimated from ranks in which long steps hardly count;
            null where the interval is over runs, and with fewer than nine steps on a side.
        typical_low_ratio: Lower end of its 95% interval.
        typical_high_ratio: Upper end of it.
        needed_steps: Steps of each side with which runs as noisy as these show 8%; null where they do, or where it takes
            several captures.
        needed_captures: Captures of each side with which such runs show the difference, or 8% where it is smaller; null
            where these do, or the interval is not over runs.
    """

    before_ps: Picoseconds
    after_ps: Picoseconds
    difference_ps: Integer
    ratio: float | None
    low_ps: float | None
    high_ps: float | None
    low_ratio: float | None
    high_ratio: float | None
    least_shown_ratio: float | None
    direction: Direction
    is_over_runs: bool
    typical_ratio: float | None
    typical_low_ratio: float | None
    typical_high_ratio: float | None
    needed_steps: Count | None
    needed_captures: Count | None

    @property
    def is_mean_shown(self) -> bool:
        """Whether the interval of the mean excludes zero on the side of the direction, or nothing is known of noise."""
        if self.low_ps is None or self.high_ps is None:
            return True
        return self.low_ps > 0 if self.direction == "slower" else self.high_ps < 0


class PartDifference(Record, frozen=True):
    """How much a part of the critical path differs; all parts sum to the mean steps and to their difference.

    Attributes:
        cause: Class of activity or cause of idle time.
        before_ps: Mean per step before, picoseconds.
        after_ps: Mean per step after.
        difference_ps: after_ps − before_ps.
        low_ps: Lower end of the 95% interval of the difference, picoseconds; null with a single step on a side.
        high_ps: Upper end of it.
        direction: slower, faster, none or unknown, as of the step.
        python: Line of the user's Python that ran in the longest of these parts, on the side where they take longer;
            null where no stack was sampled, or no Python was waited for.
    """

    cause: Annotated[str, one_of(*PATH_KEYS)]
    before_ps: Picoseconds
    after_ps: Picoseconds
    difference_ps: Integer
    low_ps: float | None
    high_ps: float | None
    direction: Direction
    python: SourceLine | None


class DevicePart(Record, frozen=True):
    """How much a part of the mean step of a device differs.

    Attributes:
        part: Class of activity, cause of idle time, or collective_wait.
        before_ps: Mean per step before, picoseconds.
        after_ps: Mean per step after.
        difference_ps: after_ps − before_ps.
    """

    part: Annotated[str, one_of(*STEP_PARTS)]
    before_ps: Picoseconds
    after_ps: Picoseconds
    difference_ps: Integer


class DeviceDifference(Record, frozen=True):
    """What a device did and waited for in the mean step of each side; the parts sum to the steps.

    Attributes:
        device: Key of the device: after, or before where it is gone.
        status: both, gone (in use before alone) or new (in use after alone).
        before_ps: Mean step of its host before, picoseconds; 0 where it is new.
        after_ps: The same after; 0 where it is gone.
        parts: The parts of both sides.
    """

    device: DeviceKey
    status: Literal["both", "gone", "new"]
    before_ps: Picoseconds
    after_ps: Picoseconds
    parts: tuple[DevicePart, ...]


class OpDifference(Record, frozen=True):
    """How much an op with a kernel differs; times are means per step and device on which it runs.

    Attributes:
        class_: Class of activity.
        op: Name of the op without its replica part; null where not recorded.
        kernel: Name of its kernel without arguments and types, after, or before where it is gone; null for host ops.
        before_kernel: Kernel that ran the op before, where another runs it after; else null.
        status: slower or faster where that is shown among all ops, new, gone, reshaped where its inputs have other
            shapes, so that its times are of other work, or same. What a side does not list is new or gone beyond the noise of
            the side that lists it.
        before_ps: Time before, picoseconds.
        after_ps: Time after.
        before_calls: Events per step before.
        after_calls: Events per step after.
        difference_ps: after_ps − before_ps.
        low_ps: Lower end of the 95% interval of the difference; null with a single step on a side, and for what is new
            or gone.
        high_ps: Upper end of it.
        left_out_ps: Of what is new or gone: the longest time per step of an op that the other side does not list, so it may
            have run there as long; 0 where that side lists all its ops.
        path_ps: How much more of the critical path it takes, mean per step, picoseconds.
        share_ratio: path_ps as a share of the difference of the mean steps; null where these are not shown
            to differ.
        before_shapes: Shapes of its inputs before; empty where not recorded.
        after_shapes: The same after.
    """

    class_: Annotated[str, one_of(*CLASS_KEYS)]
    op: OpName | None
    kernel: KernelName | None
    before_kernel: KernelName | None
    status: Literal["slower", "faster", "new", "gone", "reshaped", "same"]
    before_ps: Picoseconds
    after_ps: Picoseconds
    before_calls: float
    after_calls: float
    difference_ps: Integer
    low_ps: float | None
    high_ps: float | None
    left_out_ps: Picoseconds
    path_ps: Integer
    share_ratio: float | None
    before_shapes: tuple[Shapes, ...] = ()
    after_shapes: tuple[Shapes, ...] = ()


class FindingDifference(Record, frozen=True):
    """A finding that came, went, or costs another time.

    Attributes:
        code: Its code.
        status: came, went or changed.
        title: Its title after, or before where it went.
        before_ps: What it cost each step before, picoseconds; null where that is not known or there was none.
        after_ps: The same after.
        is_within_noise: Whether its part of the critical path changed, but not beyond noise; only warnings are listed then.
    """

    code: str
    status: Literal["came", "went", "changed"]
    title: str
    before_ps: Picoseconds | None
    after_ps: Picoseconds | None
    is_within_noise: bool = False


class ValueDifference(Record, frozen=True):
    """A number of a topic that differs by a tenth or more; a time by more than what would have been shown of the step, too.

    Attributes:
        topic: The topic: input, transfers, collectives or memory.
        name: What it is.
        key: Its key in the results, with the unit at the end.
        device: Device that it is of; null for all.
        stage: Stage of the input pipeline that it is of; null for others.
        before: Before; null where it does not occur.
        after: After; null where it does not occur.
    """

    topic: Literal["input", "transfers", "collectives", "memory"]
    name: str
    key: MetricName
    device: DeviceKey | None
    stage: StageName | None
    before: int | float | None
    after: int | float | None


class Comparison(Record, frozen=True):
    """What differs between two sides, by how much, how sure that is, and why.

    Attributes:
        schema_version: Version of this schema; it changes only when a key changes its meaning or goes.
        traceview_version: Version of traceview that compared.
        verdict: The answer in one sentence.
        step: The difference of the mean steps.
        before: Captures of the side before.
        after: Captures of the side after.
        conditions: What else is not the same on both sides.
        limits: What limits the comparison, in sentences.
        parts: The difference by part of the critical path, largest first; empty without a path on a side.
        devices: The difference by device.
        ops: The difference by op, the largest on the path first.
        findings: Findings that came, went or cost another time.
        values: Other numbers that differ.
    """

    schema_version: Literal[1]
    traceview_version: VersionText
    verdict: str
    step: StepDifference
    before: tuple[ComparedRun, ...]
    after: tuple[ComparedRun, ...]
    conditions: tuple[Condition, ...]
    limits: tuple[str, ...]
    parts: tuple[PartDifference, ...]
    devices: tuple[DeviceDifference, ...]
    ops: tuple[OpDifference, ...]
    findings: tuple[FindingDifference, ...]
    values: tuple[ValueDifference, ...]


def interval_ps(difference: Difference) -> tuple[float | None, float | None]:
    """The interval of a difference of times, whole picoseconds."""
    low, high = difference.low, difference.high
    return (None if low is None else round(low)), (None if high is None else round(high))
