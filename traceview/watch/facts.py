"""Keeps of a report what is compared from run to run, and says it in one line."""

from __future__ import annotations

from msgspec import Struct

from traceview.analysis.base import SEVERITIES, Severity
from traceview.document import numbers
from traceview.report.model import Report
from traceview.trace.model import Trace
from traceview.watch.change import StepChange


class FindingFacts(Struct, frozen=True):
    """A finding. `cost_ratio`: what it costs as a share of the step, None if that is not known."""

    code: str
    severity: Severity
    title: str
    cost_ratio: float | None


class DeviceFacts(Struct, frozen=True):
    """A device in use, and the share of the window in which it did anything."""

    key: str
    busy_ratio: float


class RunFacts(Struct, frozen=True):
    """One run. `step_ps`: the median of its `step_count` used steps, `step_iqr_ps` their interquartile range.

    `busy_ratio`: of the least busy device in use. `started_ns`: Unix nanoseconds. None: not recorded.
    """

    run: str
    started_ns: int | None
    step_ps: int | None
    step_iqr_ps: int | None
    step_count: int
    busy_ratio: float | None
    headline: str
    findings: tuple[FindingFacts, ...]
    devices: tuple[DeviceFacts, ...]


def facts_of(trace: Trace, report: Report) -> RunFacts:
    """What is kept of a run."""
    steps, times = report.results.steps, report.results.device_time
    known = {number.key: number.value for number in report.verdict.numbers}
    starts = [host.profile_start_ns for host in trace.hosts if host.profile_start_ns is not None]
    return RunFacts(
        run=trace.run,
        started_ns=min(starts, default=None),
        step_ps=None if steps is None else steps.median_ps,
        step_iqr_ps=None if steps is None else steps.iqr_ps,
        step_count=0 if steps is None else steps.used_count,
        busy_ratio=known.get("least_busy_ratio"),
        headline=report.verdict.headline,
        findings=_once_each(report),
        devices=tuple(
            DeviceFacts(row.device, row.busy_ratio)
            for row in (times.devices if times is not None else ())
            if row.is_in_use and row.busy_ratio is not None
        ),
    )


def _once_each(report: Report) -> tuple[FindingFacts, ...]:
    """The findings, of several with one code the worst."""
    worst: dict[str, FindingFacts] = {}
    for finding in report.findings:
        facts = FindingFacts(finding.code, finding.severity, finding.title, finding.cost_ratio)
        other = worst.setdefault(finding.code, facts)
        if SEVERITIES.index(facts.severity) < SEVERITIES.index(other.severity):
            worst[finding.code] = facts
    return tuple(worst.values())


def line_of(facts: RunFacts, change: StepChange | None, *, is_again: bool) -> str:
    """The run in one line. `is_again`: it has a line already, and files have come since."""
    parts = [f"{facts.run}, again" if is_again else facts.run]
    if facts.step_ps is not None:
        parts.append(f"median step {numbers.time(facts.step_ps)}")
    if facts.busy_ratio is not None:
        parts.append(f"busy {numbers.share(facts.busy_ratio)}")
    if change is not None:
        parts.append(change.text)
    parts.append(facts.headline)
    return " · ".join(parts)
