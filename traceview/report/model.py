"""What does a report hold? Plain data, named as in its JSON schema; renderers get nothing else."""

from __future__ import annotations

from typing import Annotated, Final

from traceview.analysis.balance.compute import Balance
from traceview.analysis.base import Finding, Skipped
from traceview.analysis.between_steps import BetweenAllSteps
from traceview.analysis.capture.compute import Capture
from traceview.analysis.collectives.compute import CollectiveResult
from traceview.analysis.device_time.compute import DeviceTime
from traceview.analysis.environment import Environment
from traceview.analysis.idle.compute import Idle
from traceview.analysis.input.compute import Input
from traceview.analysis.lanes.compute import Lanes
from traceview.analysis.launches.compute import Launches
from traceview.analysis.nvml.compute import OutsideView
from traceview.analysis.ops import Ops
from traceview.analysis.placement import Placement
from traceview.analysis.precision import Precision
from traceview.analysis.scaling import Scaling
from traceview.analysis.steps.compute import Steps
from traceview.analysis.transfers.compute import Transfers
from traceview.analysis.utilization import Timeline
from traceview.forms import drawn
from traceview.record import (
    Count,
    FileName,
    Hostname,
    Integer,
    PathName,
    PublicText,
    Record,
    RunName,
    one_of,
)

SCHEMA_VERSION: Final = 1


class ReportFile(Record, frozen=True):
    """One file of the run. `sha256` is None and `event_count` 0 where it could not be read at all.

    Attributes:
        name: File name.
        host: Host that the file is named after.
        bytes: Size in bytes.
        sha256: SHA-256 of the bytes, hexadecimal; null where the file could not be read at all.
        event_count: Events in the file; 0 where it was not read or counted as a duplicate.
        duplicate_of: Name of the file with the same bytes that was counted instead; null if there is none.
    """

    name: FileName
    host: Hostname
    bytes: Count
    sha256: PublicText | None
    event_count: Count
    duplicate_of: FileName | None


class Source(Record, frozen=True):
    """Where the numbers come from; `other_runs` are those in the same place that were not read.

    Attributes:
        logdir: Log directory that was read.
        run: Name of the run.
        other_runs: Runs in the same place that were not read.
        files: The files of the run.
    """

    logdir: PathName
    run: RunName
    other_runs: tuple[RunName, ...]
    files: tuple[ReportFile, ...]


class ReportWindow(Record, frozen=True):
    """The span that times and counts of a host speak of; `kind` is steps, devices or trace.

    Attributes:
        host: Name of the host.
        kind: steps: first step start to last step end; devices: first to last device event; trace: profile
            start to stop.
        start_ps: Start, picoseconds since the origin of the run.
        end_ps: End, picoseconds since the origin of the run, exclusive.
    """

    host: Hostname
    kind: Annotated[str, one_of("steps", "devices", "trace")]
    start_ps: Integer
    end_ps: Integer


class VerdictNumber(Record, frozen=True):
    """A number of the verdict: `key` as in the results, with its unit at the end; None if not measured.

    Attributes:
        key: Name, with its unit at the end.
        label: What it is, in words.
        value: The value in the unit of `key`; null if not measured.
    """

    key: str
    label: str
    value: Integer | float | None


class Verdict(Record, frozen=True):
    """The answer in one sentence, and the numbers to remember.

    Attributes:
        headline: One sentence.
        numbers: The numbers to remember.
        largest_cost: Title of the finding that costs most, of those that are more than information; null
            without one.
    """

    headline: str
    numbers: tuple[VerdictNumber, ...]
    largest_cost: str | None = None


class Results(Record, frozen=True):
    """Results by analysis; one that could not be made is None here and has its reason in `skipped`.

    Attributes:
        device_time: How busy every device was, and with what.
        steps: How long each step was, and how its time was spent.
        timeline: The window of every device in equal slices.
        idle: Why each device was idle.
        between_steps: What hosts did between their step markers.
        ops: The ops and kernels that take the time.
        environment: What the job ran in, from the sidecars.
        placement: What was asked of which device, and which devices ran work.
        outside_view: The GPUs as their driver saw them.
        transfers: Copies between the host and GPUs: their cost, speed and sources.
        input: Whether the model waits for its input, and which stage is to blame.
        launches: How the host starts the kernels of each GPU.
        precision: With which kinds of numbers each GPU computes, and whether on tensor cores.
        collectives: Collectives: transfer, waiting, what is hidden, and how the devices reduce.
        balance: How evenly the devices work, which one is late, and what better balance would be worth.
        scaling: How much faster than a baseline run, and where the rest goes.
        lanes: What a timeline draws; null unless a document was made.
    """

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


class Report(Record, frozen=True):
    """Everything said about one run. Times are picoseconds since the origin of the run.

    Attributes:
        schema_version: Version of this schema; it changes only when a key changes its meaning or goes.
        traceview_version: Version of traceview that wrote the report.
        source: Where the numbers come from.
        capture: How far the capture can be trusted.
        windows: The span of each host that times and counts speak of.
        verdict: The answer in one sentence, and the numbers to remember.
        results: Results by analysis; null where the analysis could not be made, with the reason in `skipped`.
        skipped: Name of an analysis to the reason why it has no result.
        findings: What is wrong, most severe first, then by cost.
        left_out_findings: Codes of findings that were made and not asked for.
        command: The command line that makes this report again, argument by argument; empty where none does.
    """

    schema_version: Integer
    traceview_version: PublicText
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
