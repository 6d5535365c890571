"""Keeps of a report what is compared from run to run, and says it in one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from traceview.analysis.rules.finding import SEVERITIES, Severity
from traceview.comparison.noise import ENOUGH_RUNS, TOO_NOISY, Level, RunSpread, step_change
from traceview.comparison.sides import capture_steps
from traceview.document import numbers
from traceview.ledger.states import State
from traceview.report.model import Report, VerdictStatus
from traceview.trace.model import Trace


class FindingFacts(Struct, frozen=True):
    """A finding. `gpu_time_ratio`: what it costs as a share of the GPU time, None if it is about no time."""

    code: str
    severity: Severity
    title: str
    gpu_time_ratio: float | None


class DeviceFacts(Struct, frozen=True):
    """A visible device, and the share of its steps in which it computed."""

    key: str
    compute_ratio: float


class RunFacts(Struct, frozen=True):
    """One run. `step_ps`: the median of its used steps, `step_level` what is compared with other runs.

    `compute_ratio`: share of the GPU time of all visible devices in which they compute; `states`: the share of each state.
    `started_ns`: Unix nanoseconds. None: not recorded.
    """

    run: str
    started_ns: int | None
    step_ps: int | None
    compute_ratio: float | None
    status: VerdictStatus
    headline: str
    findings: tuple[FindingFacts, ...]
    devices: tuple[DeviceFacts, ...]
    states: dict[str, float]
    step_level: Level | None = None


def facts_of(trace: Trace, report: Report) -> RunFacts:
    """What is kept of a run."""
    steps, ledger = report.results.steps, report.results.ledger
    used = capture_steps(report)
    starts = [host.profile_start_ns for host in trace.hosts if host.profile_start_ns is not None]
    return RunFacts(
        run=trace.run,
        started_ns=min(starts, default=None),
        step_ps=None if steps is None else steps.median_ps,
        compute_ratio=report.verdict.compute_ratio,
        status=report.verdict.status,
        headline=report.verdict.headline,
        findings=_once_each(report),
        devices=tuple(
            DeviceFacts(row.device, row.states.get(State.COMPUTE.key, 0) / row.step_ps)
            for row in (ledger.devices if ledger else ())
            if row.step_ps
        ),
        states=dict(ledger.share_by_state) if ledger else {},
        step_level=used.level if used else None,
    )


def _once_each(report: Report) -> tuple[FindingFacts, ...]:
    """The findings, of several with one code the worst."""
    worst: dict[str, FindingFacts] = {}
    for finding in report.findings:
        ratio = finding.loss.gpu_time_ratio if finding.loss else None
        facts = FindingFacts(finding.code, finding.severity, finding.title, ratio)
        other = worst.setdefault(finding.code, facts)
        if SEVERITIES.index(facts.severity) < SEVERITIES.index(other.severity):
            worst[finding.code] = facts
    return tuple(worst.values())


def line_of(facts: RunFacts, change: StepChange | None, *, is_again: bool) -> str:
    """The run in one line. `is_again`: it has a line already, and files have come since."""
    parts = [f"{facts.run}, again" if is_again else facts.run]
    if facts.step_ps is not None:
        parts.append(f"median step {numbers.time(facts.step_ps)}")
    if facts.compute_ratio is not None:
        parts.append(f"{numbers.percent(facts.compute_ratio)} computing")
    if change is not None:
        parts.append(change.text)
    parts.append(facts.headline)
    return " · ".join(parts)


LEAST_RATIO: Final = 0.02
"""Of the step: what differs by less is as before; a choice of ours."""


class StepChange(Struct, frozen=True):
    """The step time against that of `run_count` runs before: `ratio` more, of which `noise_ratio` says nothing."""

    ratio: float
    noise_ratio: float
    run_count: int
    is_beyond_noise: bool

    @property
    def text(self) -> str:
        """The change in words."""
        before = "the run before" if self.run_count == 1 else f"the last {self.run_count} runs"
        noise = numbers.share(self.noise_ratio)
        if self.is_beyond_noise:
            slower = "slower" if self.ratio > 0 else "faster"
            return f"{numbers.share(abs(self.ratio))} {slower} than {before}"
        if self.noise_ratio < TOO_NOISY:
            return f"as {before} (within {noise})"
        if self.run_count < ENOUGH_RUNS:
            return f"no verdict yet: it takes {ENOUGH_RUNS} runs before"
        return f"no verdict: {before} differ too much (within {noise})"


def change_since(
    run: Level | None, before: Sequence[Level | None], spread: RunSpread
) -> StepChange | None:
    """How the step of a run differs from that of the runs `before`; None without both, or where nothing shows the noise."""
    change = step_change(before, [run], spread)
    if change is None or change.noise is None:
        return None
    return StepChange(
        change.value,
        max(change.noise, LEAST_RATIO),
        sum(level is not None for level in before),
        change.direction in ("slower", "faster") and abs(change.value) > LEAST_RATIO,
    )
