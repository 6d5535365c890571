"""Defines what topics conclude: rules, the findings they lead to, the evidence, and why a result may be absent."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Struct, field

from traceview.analysis.rules.words import Argument
from traceview.base.record import (
    DeviceKey,
    Hostname,
    Integer,
    Key,
    Picoseconds,
    Record,
    Sentence,
    Share,
    TextKind,
    Words,
    kind_in,
    one_of,
)
from traceview.ledger.states import KEYS as STATE_KEYS
from traceview.ledger.states import State

Severity: TypeAlias = Literal["critical", "warning", "info"]
Confidence: TypeAlias = Literal["high", "medium", "low"]
SEVERITIES: Final[tuple[Severity, ...]] = ("critical", "warning", "info")
OF_THE_RUN: Final = frozenset(("absent", "peers", "started"))
"""Keys of sentences about processes that belong to the run."""

OF_A_DISTURBANCE: Final = 0.5
"""How much of what others take counts where findings are ordered, for no change of the script saves it. A choice of ours."""

DISTURBED_RATIO: Final = 0.10
"""Of the GPU time, lost to processes that the script has not started; a choice of ours."""
EXPLAINS: Final = "explains"
"""The metric of evidence whose value is the code of an explained finding."""


class Skipped(Struct, frozen=True):
    """A result that could not be computed, and why. `recorded`: what the file says of that."""

    reason: str
    recorded: str = ""


class OfDevice(Record, frozen=True):
    """What a record about one device begins with; `Trace.identity` gives it.

    Attributes:
        host: Name of the host.
        device: Key of the device.
        ordinal: Number in the name of the device.
    """

    host: Hostname
    device: DeviceKey
    ordinal: Integer


class Evidence(Record, frozen=True):
    """One measured value and the threshold that it passed.

    Attributes:
        metric: Name of the value; its ending gives the unit.
        value: What was measured.
        threshold: Where the finding starts; null where mere presence counts.
        where: Name of the device, or of the host, thread or line of Python, that it was measured on.
        detail: Which part of that: a step, a process; or how it was measured.
        value_is: What a value that is text names: words for one of ours; null for a number.
        where_is: What the place names; device for a host, too.
    """

    metric: Key
    value: int | float | Annotated[str, kind_in("value_is")]
    threshold: int | float | None
    where: Annotated[str, kind_in("where_is")]
    detail: Words = ""
    value_is: TextKind | None = None
    where_is: TextKind = "device"


class FindingLoss(Record, frozen=True):
    """How much of the GPU time the rows of the ledger are that a finding is about.

    Attributes:
        ps_per_step: Mean per step over the devices that the finding names, rounded down, picoseconds; in a run without
            steps the mean in the window.
        step_ps: Mean length of the steps of these devices, or of their windows, rounded down, picoseconds.
        ratio: The exact share of the first of the second.
        gpu_time_ratio: Share of the GPU time: of all used steps of all visible devices.
        gpu_time_ps: The sum of the rows over all visible devices and used steps, picoseconds.
        gain_ps_per_step: About how much shorter the mean step would be without them: their part of the
            critical path, picoseconds; null where that is not known, as where other processes take cores.
        states: Keys of the states of the rows.
        has_steps: Whether these are times per step; false where they are of the window.
        then_input: Whether more cannot be gained because the steps would then wait for the input pipeline.
    """

    ps_per_step: Picoseconds
    step_ps: Picoseconds
    ratio: Share
    gpu_time_ratio: Share
    gpu_time_ps: Picoseconds
    gain_ps_per_step: Picoseconds | None
    states: tuple[Annotated[str, one_of(*STATE_KEYS)], ...]
    has_steps: bool = True
    then_input: bool = False

    @property
    def gain(self) -> float:
        """Its share of the GPU time; where the steps then wait for input no more than the part of a step that would be saved.

        Of waits for a late device that part, where it is more: the late device is at work meanwhile, and yet that time is
        lost as well.
        """
        saved = (self.gain_ps_per_step or 0) / self.step_ps if self.step_ps else 0.0
        if self.then_input:
            return min(self.gpu_time_ratio, saved)
        is_wait = set(self.states) == {State.DEVICE_WAIT.key}
        return max(self.gpu_time_ratio, saved) if is_wait else self.gpu_time_ratio

    @property
    def saved(self) -> float:
        """The gain, but no more than the part of a step that would be saved, where that is known."""
        if self.gain_ps_per_step is None or not self.step_ps:
            return self.gain
        return min(self.gain, self.gain_ps_per_step / self.step_ps)


class Finding(Record, frozen=True):
    """A conclusion: one cause, what it costs, what to change, and the evidence for it.

    Attributes:
        code: Stable name; `traceview explain CODE` describes it.
        severity: critical, warning or info.
        title: Who, what, how much of what, and where in the code, in one sentence.
        explanation: What it means here.
        action: The one thing to do first.
        loss: How much of the GPU time it is about; null where it is about no time.
        arguments: What its sentences are made of, by name; the titles of the rule say what each is.
        sentences: Which of the sentences of its rule it has: keys of title, action and reason, then of notes.
        advice: What to change, with the call; LOGDIR in a command is source.logdir.
        confidence: How sure the conclusion is.
        confidence_reason: Why it is as sure as that.
        evidence: Measured values past their thresholds.
        devices: Keys of the devices that it is about; empty where it is about the run or a host.
        steps: Numbers of the steps that it is about; empty for all.
    """

    code: Key
    severity: Severity
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    title: Sentence = ""
    explanation: Sentence = ""
    action: Sentence = ""
    advice: Sentence = ""
    confidence_reason: Sentence = ""
    loss: FindingLoss | None = None
    arguments: dict[Key, Argument] = field(default_factory=dict)
    sentences: tuple[Key, ...] = ()
    devices: tuple[DeviceKey, ...] = ()
    steps: tuple[Integer, ...] = ()

    @property
    def is_disturbance(self) -> bool:
        """Whether processes that the script has not started cost so much that longer steps are no proof of anything else."""
        is_theirs = self.code == "other-processes" and not OF_THE_RUN & {*self.sentences}
        return is_theirs and self.loss is not None and self.loss.gpu_time_ratio >= DISTURBED_RATIO
