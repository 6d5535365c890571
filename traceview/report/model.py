"""What does a report hold? Plain data, named as in its JSON schema; renderers get nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from traceview.analyses.capture import Capture
from traceview.analyses.device_time import DeviceTime
from traceview.analyses.finding import Finding, Skipped
from traceview.analyses.ops import Ops
from traceview.analyses.steps import Steps
from traceview.analyses.timeline import Timeline

SCHEMA_VERSION: Final = 1

UNEXAMINED: Final = "not examined by this version"
"""Why an analysis that the report's definitions name is in `skipped`, if it is not made at all yet."""


@dataclass(frozen=True)
class ReportFile:
    """One file of the run. `sha256` is None and `event_count` 0 where it could not be read at all."""

    name: str
    host: str
    bytes: int
    sha256: str | None
    event_count: int
    duplicate_of: str | None


@dataclass(frozen=True)
class Source:
    """Where the numbers come from; `other_runs` are those in the same place that were not read."""

    logdir: str
    run: str
    other_runs: tuple[str, ...]
    files: tuple[ReportFile, ...]


@dataclass(frozen=True)
class ReportWindow:
    """The span that times and counts of a host speak of; `kind` is steps, devices or trace."""

    host: str
    kind: str
    start_ps: int
    end_ps: int


@dataclass(frozen=True)
class VerdictNumber:
    """A number of the verdict: `key` as in the results, with its unit at the end; None if not measured."""

    key: str
    label: str
    value: int | float | None


@dataclass(frozen=True)
class Verdict:
    """The answer in one sentence, and the numbers to remember."""

    headline: str
    numbers: tuple[VerdictNumber, ...]


@dataclass(frozen=True)
class Results:
    """Results by analysis; one that could not be made is None here and has its reason in `skipped`."""

    device_time: DeviceTime | None
    steps: Steps | None
    timeline: Timeline | None
    ops: Ops | None


@dataclass(frozen=True, repr=False)
class Report:
    """Everything said about one run. Times are picoseconds since the origin of the run.

    `skipped`: analyses that were not made, and why. `left_out_findings`: codes of findings that were made
    and not asked for.
    """

    schema_version: int
    traceview_version: str
    source: Source
    capture: Capture
    windows: tuple[ReportWindow, ...]
    verdict: Verdict
    results: Results
    skipped: dict[str, str]
    findings: tuple[Finding, ...]
    left_out_findings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Report on run {self.source.run!r}: {self.verdict.headline}>"


__all__ = [
    "SCHEMA_VERSION",
    "Finding",
    "Report",
    "ReportFile",
    "ReportWindow",
    "Results",
    "Skipped",
    "Source",
    "Verdict",
    "VerdictNumber",
]
