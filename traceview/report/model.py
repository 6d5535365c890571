"""Defines a report: plain records, named as in its JSON Schema; documents get nothing else."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, field

from traceview.analysis.machine.capture import Capture
from traceview.analysis.registry import Results
from traceview.analysis.rules.finding import Finding
from traceview.base.record import (
    Count,
    FileName,
    Hostname,
    Integer,
    Key,
    Message,
    PathName,
    Record,
    RunName,
    Sentence,
    Share,
    VersionText,
    Words,
)
from traceview.trace.model import StepRange, WindowKind

SCHEMA_VERSION: Final = 2


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


VerdictStatus: TypeAlias = Literal["problem", "healthy", "unreliable", "unusable"]


class Verdict(Record, frozen=True):
    """The answer in one sentence.

    Attributes:
        headline: What costs most, or that no problem was found, in one sentence.
        status: problem: a finding leads; healthy: none is a problem; unreliable: the recording says too little about small
            losses; unusable: it holds no time of a device.
        finding: Code of the finding that leads, the first of this code; null without one.
        compute_ratio: Share of the GPU time of all visible devices in which they compute; null without any.
        unknown_ratio: Share of the GPU time without a known cause; null without any.
    """

    headline: Sentence
    status: VerdictStatus
    finding: Key | None = None
    compute_ratio: Share | None = None
    unknown_ratio: Share | None = None


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
        verdict: The answer in one sentence.
        results: Results by topic; null where there is none, with the reason in skipped.
        skipped: Name of a topic to the reason why it has no result.
        recorded_reasons: Name of a topic to what the capture says of that.
        findings: What is wrong, what costs most first.
        command: The command line that makes this report again, argument by argument; empty where none does.
    """

    schema_version: Literal[2]
    traceview_version: VersionText
    source: Source
    capture: Capture
    windows: tuple[ReportWindow, ...]
    verdict: Verdict
    results: Results
    skipped: dict[Words, Words]
    findings: tuple[Finding, ...]
    recorded_reasons: dict[Words, Message] = field(default_factory=dict)
    command: tuple[Words, ...] = ()

    @property
    def leading(self) -> Finding | None:
        """The finding that the verdict is about."""
        return next((row for row in self.findings if row.code == self.verdict.finding), None)


def started_ns(report: Report | None) -> int | None:
    """When the run was recorded, Unix nanoseconds; None where that is not known."""
    hosts = report.capture.hosts if report else ()
    starts = [host.profile_start_ns for host in hosts if host.profile_start_ns is not None]
    return min(starts, default=None)


def traces_of(report: Report) -> frozenset[str]:
    """The checksums of the traces of the run, which tell it from every other run; empty where one is not known."""
    sums = [file.sha256 for file in report.source.files]
    return frozenset(known for known in sums if known) if None not in sums else frozenset()


def devices_of(report: Report | None) -> str:
    """The devices in use: `4 × Tesla V100`; empty without any."""
    times = report.results.device_time if report else None
    rows = [row for row in times.devices if row.is_in_use] if times else []
    models = [row.model or row.kind for row in rows]
    return ", ".join(f"{models.count(model)} × {model}" for model in dict.fromkeys(models))


def reasons(report: Report) -> dict[str, str]:
    """By topic why it has no result, with what the capture says of that."""
    recorded = report.recorded_reasons
    return {
        name: f"{reason}: {recorded[name]}" if name in recorded else reason
        for name, reason in report.skipped.items()
    }


def why_absent(report: Report, topic: str) -> str:
    """The reason why the report has no result of this topic."""
    return report.skipped.get(topic, "not computed")


FOLDER: Final = "report"
"""The folder that the command writes to."""


def reproducing(
    logdir: str,
    run: str,
    *,
    window: WindowKind,
    steps: StepRange | None,
) -> tuple[str, ...]:
    """The arguments of `traceview report`, the program first, with every choice that is not the default one."""
    choices = [] if window == "auto" else ["--window", window]
    if steps is not None:
        bounds = ("" if bound is None else str(bound) for bound in (steps.first, steps.last))
        choices += ["--steps", ":".join(bounds)]
    name = run.rpartition("/")[2]
    return ("traceview", "report", logdir, "--run", name, *choices, "-o", FOLDER)
