"""Defines what topics conclude: rules, the findings they lead to, the evidence, and why a result may be absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Struct

from traceview.analysis.cost import Bound, Cost, Statistic
from traceview.document import numbers
from traceview.record import (
    Count,
    DeviceKey,
    Hostname,
    Integer,
    MetricName,
    Ratio,
    Record,
    one_of,
)
from traceview.trace.cause import PATH_KEYS

Severity: TypeAlias = Literal["critical", "warning", "info"]
Confidence: TypeAlias = Literal["high", "medium", "low"]
Verdict: TypeAlias = Literal["high", "moderate", "none"]
SEVERITIES: Final[tuple[Severity, ...]] = ("critical", "warning", "info")
LEAST_SHOWN_RATIO: Final = 0.001
"""Of the window: what something takes on some device, to have a column of its own; less is printed as `<0.1%`."""
FEWEST_STEPS: Final = 2
"""Findings about speed from fewer used steps are information only."""


class Skipped(Struct, frozen=True):
    """A result that could not be computed, and why."""

    reason: str


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
        where: Device, host, file, step or time that it was measured on.
    """

    metric: MetricName
    value: int | float | str
    threshold: int | float | None
    where: str


class Finding(Record, frozen=True):
    """A conclusion: one cause, what it costs, what to change, and the evidence for it.

    Attributes:
        code: Stable name; `traceview explain CODE` describes it.
        severity: critical, warning or info.
        title: One sentence with the number in it.
        explanation: What it means here.
        advice: What to change, with the call; LOGDIR in a command is source.logdir.
        confidence: How sure the conclusion is.
        confidence_reason: Why it is as sure as that.
        evidence: Measured values past their thresholds.
        devices: Keys of the devices that it is about; empty where it is about the run or a host.
        steps: Numbers of the steps that it is about; empty for all.
        cost_ps_per_step: Picoseconds that it costs each step; a bound where the explanation says so; null where
            that is not known.
        cost_ratio: The same as a share of the step that cost_statistic names; without steps a share of the window.
        cost_statistic: mean: the cost is a mean over the used steps and cost_ratio its share of the mean step; median:
            the same with medians; null without steps, without a cost, and in reports of earlier versions.
        cost_bound: upper: what it costs is at most this; lower: at least this; null where the cost is what was measured,
            and in reports of earlier versions.
        path_causes: What it is about on the critical path: classes of activity and causes of idle time; empty where it
            is about none, and in reports of earlier versions.
    """

    code: str
    severity: Severity
    title: str
    explanation: str
    advice: str
    confidence: Confidence
    confidence_reason: str
    evidence: tuple[Evidence, ...]
    devices: tuple[DeviceKey, ...] = ()
    steps: tuple[Integer, ...] = ()
    cost_ps_per_step: Count | None = None
    cost_ratio: Ratio | None = None
    cost_statistic: Statistic | None = None
    path_causes: tuple[Annotated[str, one_of(*PATH_KEYS)], ...] = ()
    cost_bound: Bound | None = None


class Rule(Struct, frozen=True):
    """When a finding is made, what it means, and what to do about it.

    `starts_at`: when the finding is made, in one sentence, with the names of `limits` in braces. `conditions`: what else has
    to hold, a list below that sentence; `conditions_of`: says when, and which of them. `limits`: the thresholds; the ending of a name gives the unit. `severities`: those that it can have, the usual one first. `meaning`, `advice`: what a
    finding says unless it knows more. `jax_advice`: what it says instead of a trace that JAX wrote, if that is another
    advice; `advice_where`: by the case in which a finding says it, in words that follow "advice". `is_of_absence`: it
    concludes from what the trace lacks, which the lost part of a damaged file may have held. `evidence`: what shows it. `example`: a title. `explains`: codes of findings
    that are a consequence of this one, and are reported inside it. `idle_causes`: the causes of idle time that it is
    about; `path_causes`: the classes and causes on the critical path, where these are others and a finding does not
    know better.
    """

    code: str
    starts_at: str
    meaning: str
    evidence: str
    advice: str
    example: str
    severities: tuple[Severity, ...] = ("warning",)
    limits: Mapping[str, float] = {}
    explains: tuple[str, ...] = ()
    idle_causes: tuple[str, ...] = ()
    path_causes: tuple[str, ...] = ()
    jax_advice: str = ""
    conditions_of: str = ""
    conditions: tuple[str, ...] = ()
    advice_where: Mapping[str, str] = {}
    is_of_absence: bool = False

    @property
    def start(self) -> str:
        """When the finding is made, with the numbers."""
        return self._with_limits(self.starts_at)

    @property
    def start_conditions(self) -> tuple[str, ...]:
        """The conditions with the numbers."""
        return tuple(map(self._with_limits, self.conditions))

    def _with_limits(self, text: str) -> str:
        limits = {name: numbers.measured(name, limit) for name, limit in self.limits.items()}
        return text.format(**limits)

    def severity_of(self, ratio: float) -> Severity | None:
        """By the limits `warning_ratio` and `critical_ratio`: critical, warning, or None below both."""
        if ratio >= self.limits.get("critical_ratio", float("inf")):
            return "critical"
        return "warning" if ratio >= self.limits["warning_ratio"] else None

    def verdict_of(self, ratio: float) -> Verdict:
        """By the same limits: high, moderate or none."""
        severity = self.severity_of(ratio)
        return "none" if severity is None else "high" if severity == "critical" else "moderate"

    def finding(
        self,
        title: str,
        evidence: Sequence[Evidence],
        *,
        severity: Severity | None = None,
        confidence: tuple[Confidence, str],
        explanation: str | None = None,
        advice: str | None = None,
        devices: Sequence[str] = (),
        steps: Sequence[int] = (),
        cost: Cost | None = None,
        path_causes: Sequence[str] | None = None,
    ) -> Finding:
        """A finding by this rule; what is not given is what the rule says. `confidence`: with its reason."""
        return Finding(
            code=self.code,
            severity=severity or self.severities[0],
            title=title,
            explanation=self.meaning if explanation is None else explanation,
            advice=self.advice if advice is None else advice,
            confidence=confidence[0],
            confidence_reason=confidence[1],
            evidence=tuple(evidence),
            devices=tuple(devices),
            steps=tuple(steps),
            cost_ps_per_step=cost.ps_per_step if cost else None,
            cost_ratio=cost.ratio if cost else None,
            cost_statistic=cost.statistic if cost else None,
            cost_bound=cost.bound if cost else None,
            path_causes=tuple(
                (self.path_causes or self.idle_causes) if path_causes is None else path_causes
            ),
        )


def by_severity(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings by severity, those of one severity by what they cost, the largest cost first.

    What is critical and has no cost, such as GPUs that were not recorded, comes before what has one: costs mean little
    then. Of the others those without a cost come last.
    """

    def place(finding: Finding) -> tuple[int, int, float, str, tuple[str, ...]]:
        has_no_cost = not finding.cost_ratio
        group = -has_no_cost if finding.severity == "critical" else int(has_no_cost)
        severity = SEVERITIES.index(finding.severity)
        return severity, group, -(finding.cost_ratio or 0.0), finding.code, finding.devices

    return tuple(sorted(findings, key=place))
