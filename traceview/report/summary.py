"""Makes the first screen of a document: what was captured, what it says, and how far it can be trusted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from traceview.analysis.context import View
from traceview.analysis.device_states import anatomy_rows
from traceview.analysis.environment.section import job_facts
from traceview.analysis.steps.section import found_steps, step_times
from traceview.base.text import shell_command
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.phrase import Sentence, device, names, phrase
from traceview.document.vocabulary import (
    DEVICE_KINDS,
    QUALITIES,
    SEVERITIES,
    VERDICT_STATUSES,
    WINDOWS,
    look_of,
)
from traceview.report.model import Report
from traceview.report.verdict import phrases_of_verdict

FIRST_FINDINGS: Final = 5
"""Findings of the first screen; the section on findings has all of them."""

_SHOWN_RUNS: Final = 3
_LISTED_WINDOWS: Final = 3
"""Of more hosts the shortest and the longest window are shown."""


def summary_of(report: Report, view: View, findings: tuple[doc.Finding, ...]) -> doc.Summary:
    """The first screen. `findings`: all of them, of which it shows the first."""
    quality = report.capture.quality
    environment_record = report.results.environment
    headline, action = phrases_of_verdict(report)
    return doc.Summary(
        run=report.source.run,
        captured=tuple(_captured(report)),
        job=tuple(job_facts(environment_record)) if environment_record else (),
        answer=headline,
        label=look_of(SEVERITIES, report.verdict.severity)
        if report.verdict.severity
        else look_of(VERDICT_STATUSES, report.verdict.status),
        action=view.commands.filled(action),
        quality=None if quality == "ok" else look_of(QUALITIES, quality),
        findings=findings[:FIRST_FINDINGS],
        hidden_count=max(len(report.findings) - FIRST_FINDINGS, 0),
        command=shell_command(report.command),
        remarks=tuple(_remarks(report)),
        anatomy=anatomy_rows(report.results.ledger),
        step_times=step_times(view, report.results.steps) if report.results.steps else None,
        capture_lead=_capture_lead(quality, findings),
    )


def _remarks(report: Report) -> Iterator[Sentence]:
    others = report.source.other_runs
    if others:
        shown = names(others, _SHOWN_RUNS)
        yield phrase(f"One of {len(others) + 1} runs; `--run NAME` chooses another: ", shown)
    if report.reduced:
        yield f"A reduced report, as baselines are, without {', '.join(report.reduced)}"


def _capture_lead(quality: str, findings: tuple[doc.Finding, ...]) -> str:
    """How far the capture can be trusted, and how many remarks say why."""
    count = sum(finding.is_about_capture for finding in findings)
    if quality != "ok":
        return f"The capture is {look_of(QUALITIES, quality).words}."
    if not count:
        return "Yes: no event was lost, and nothing limits the numbers."
    return f"Yes, with {numbers.plural(count, 'remark')}."


def _captured(report: Report) -> Iterator[Sentence]:
    hosts, files = report.capture.hosts, report.source.files
    if len(hosts) == 1:
        yield phrase("host ", device(hosts[0].host))
    elif hosts:
        yield numbers.plural(len(hosts), "host")
    yield from devices_of(report)
    size = numbers.size(sum(file.bytes for file in files))
    events = numbers.plural(sum(file.event_count for file in files), "event")
    yield f"{numbers.plural(len(files), 'file')}, {size}, {events}"
    yield found_steps(report.results.steps) if report.results.steps else "no steps found"
    if report.windows:
        yield _window_words(report)
    starts = [host.profile_start_ns for host in hosts if host.profile_start_ns is not None]
    date = numbers.date(min(starts, default=None))
    yield f"profiled {date}" if date else "date not recorded"


def devices_of(report: Report) -> Iterator[Sentence]:
    """How many devices there are of each model."""
    rows = report.results.device_time.devices if report.results.device_time else ()
    if len(rows) == 1 and rows[0].kind == "replica":
        # One alone is no replica of anything.
        yield "1 × CPU"
        return
    models = Counter(row.model or look_of(DEVICE_KINDS, row.kind).words for row in rows)
    yield from (phrase(f"{count} × ", device(model)) for model, count in models.items())


def _window_words(report: Report) -> Sentence:
    """How long the windows are, and what they are."""
    lengths = sorted(window.end_ps - window.start_ps for window in report.windows)
    kinds = dict.fromkeys(window.kind for window in report.windows)
    if 1 < len(report.windows) <= _LISTED_WINDOWS and (lengths[0] < lengths[-1] or len(kinds) > 1):
        each = (
            (
                device(window.host),
                f" {numbers.time(window.end_ps - window.start_ps)} ({window.kind})",
                ", " if place < len(report.windows) else None,
            )
            for place, window in enumerate(report.windows, 1)
        )
        return phrase("windows: ", *(part for parts in each for part in parts))
    words = " or ".join(look_of(WINDOWS, kind).words for kind in kinds)
    return f"window {numbers.time_range(lengths)} ({words})"
