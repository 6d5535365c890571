"""Defines a report: plain records, named as in its JSON Schema; documents get nothing else."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from traceview.analysis.base import Finding
from traceview.analysis.capture.result import Capture
from traceview.analysis.registry import Results
from traceview.record import (
    Count,
    FileName,
    Hostname,
    Integer,
    PathName,
    Picoseconds,
    Ratio,
    Record,
    RunName,
    Share,
    VersionText,
    one_of,
)
from traceview.trace.cause import PATH_KEYS

SCHEMA_VERSION: Final = 1


class ReportFile(Record, frozen=True):
    """One file of the run.

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
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None
    event_count: Count
    duplicate_of: FileName | None


class Source(Record, frozen=True):
    """Where the numbers come from.

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
    """The span that times and counts of a host refer to.

    Attributes:
        host: Name of the host.
        kind: steps: first step start to last step end; devices: first to last device event; trace: the whole profile.
        start_ps: Start, picoseconds since the origin of the run.
        end_ps: End, picoseconds since the origin of the run.
    """

    host: Hostname
    kind: Literal["steps", "devices", "trace"]
    start_ps: Integer
    end_ps: Integer


class VerdictNumber(Record, frozen=True):
    """A number to remember.

    Attributes:
        key: Its name in the results, with the unit at the end.
        label: What it is, in words.
        value: The number; null if it was not measured.
    """

    key: str
    label: str
    value: int | float | None


class Verdict(Record, frozen=True):
    """The answer in one sentence, and the numbers to remember.

    Attributes:
        headline: What costs most, or that no problem was found, in one sentence.
        numbers: The numbers to remember.
        largest_cost: Title of the finding that costs most, of warnings and critical ones; null if there is none.
        finding: Code of the finding about what costs most; null where nothing costs as much as 3% of the step, and
            where no finding is about it.
        cause: What it is on the critical path: a class of activity or a cause of idle time; null where it is not on
            the path.
        cost_ps_per_step: What it costs each step, picoseconds; null where that is not known.
        cost_ratio: The same as a share of the step, of its mean where the cost is a mean and else of its median; without
            steps a share of the window.
        unexplained_ratio: Share of the critical path without a recorded cause; null without a path.
        devices: Which devices worked, in one sentence; null in reports of earlier versions, whose headline it is.
    """

    headline: str
    numbers: tuple[VerdictNumber, ...]
    largest_cost: str | None = None
    finding: str | None = None
    cause: Annotated[str, one_of(*PATH_KEYS)] | None = None
    cost_ps_per_step: Picoseconds | None = None
    cost_ratio: Ratio | None = None
    unexplained_ratio: Share | None = None
    devices: str | None = None


class Report(Record, frozen=True):
    """Everything traceview says about one run.

    Times are picoseconds since the origin of the run, the earliest profile start of its hosts, unless said otherwise. A
    number that the trace does not hold is null.

    Attributes:
        schema_version: Version of this schema; it changes only when a key changes its meaning or goes.
        traceview_version: Version of traceview that wrote the report.
        source: Where the numbers come from.
        capture: How far the capture can be trusted.
        windows: The span of each host that all times and counts refer to.
        verdict: The answer in one sentence, and the numbers to remember.
        results: Results by topic; null where there is none, with the reason in skipped.
        skipped: Name of a topic to the reason why it has no result.
        findings: What is wrong, by severity, and of one severity by cost.
        left_out_findings: Codes of findings that were made and not asked for.
        command: The command line that makes this report again, argument by argument; empty where none does.
        reduced: Keys of what was left out to make the report small enough for a baseline; empty in a whole report.
    """

    schema_version: Literal[1]
    traceview_version: VersionText
    source: Source
    capture: Capture
    windows: tuple[ReportWindow, ...]
    verdict: Verdict
    results: Results
    skipped: dict[str, str]
    findings: tuple[Finding, ...]
    left_out_findings: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    reduced: tuple[str, ...] = ()
