"""What does a report hold? Plain data, named as in its JSON schema; renderers get nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from traceview.analyses.balance import Balance
from traceview.analyses.between_steps import BetweenAllSteps
from traceview.analyses.capture import Capture
from traceview.analyses.collectives import CollectiveResult
from traceview.analyses.device_time import DeviceTime
from traceview.analyses.environment import Environment
from traceview.analyses.finding import Finding, Skipped
from traceview.analyses.idle import Idle
from traceview.analyses.input import Input
from traceview.analyses.lanes import Lanes
from traceview.analyses.launches import Launches
from traceview.analyses.ops import Ops
from traceview.analyses.outside_view import OutsideView
from traceview.analyses.placement import Placement
from traceview.analyses.precision import Precision
from traceview.analyses.scaling import Scaling
from traceview.analyses.steps import Steps
from traceview.analyses.timeline import Timeline
from traceview.analyses.transfers import Transfers
from traceview.forms import drawn

SCHEMA_VERSION: Final = 1


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
    """The answer in one sentence, and the numbers to remember.

    `largest_cost`: the title of the finding that costs most, of those that are more than information; None
    if there is none.
    """

    headline: str
    numbers: tuple[VerdictNumber, ...]
    largest_cost: str | None = None


@dataclass(frozen=True)
class Results:
    """Results by analysis; one that could not be made is None here and has its reason in `skipped`."""

    device_time: DeviceTime | None
    steps: Steps | None
    timeline: Timeline | None
    idle: Idle | None
    between_steps: BetweenAllSteps | None
    ops: Ops | None
    environment: Environment | None = None
    placement: Placement | None = None
    outside_view: OutsideView | None = None
    transfers: Transfers | None = None
    input: Input | None = None
    launches: Launches | None = None
    precision: Precision | None = None
    collectives: CollectiveResult | None = None
    balance: Balance | None = None
    scaling: Scaling | None = None
    lanes: Lanes | None = None


@dataclass(frozen=True, repr=False)
class Report:
    """Everything said about one run. Times are picoseconds since the origin of the run.

    `skipped`: analyses that were not made, and why. `left_out_findings`: codes of findings that were made
    and not asked for. `command`: the command line that makes this report again; empty where none does.
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
    command: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Report on run {self.source.run!r}: {self.verdict.headline}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the answer, the numbers, the findings and the devices, without scripts."""
        return drawn(self, "notebook")

    def to_json(self) -> str:
        """The report as `traceview report` writes it to report.json; `traceview.load_report` reads it again."""
        return drawn(self, "json")

    def to_markdown(self) -> str:
        """The report as a page for a ticket, in at most 60 kB."""
        return drawn(self, "markdown")

    def to_html(self) -> str:
        """The report as a page for a browser, complete in one file; with a timeline if there are `lanes`."""
        return drawn(self, "html")


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
