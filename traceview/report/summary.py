"""Makes the first screen of a document: what was captured, what it says, and how far it can be trusted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from traceview.analysis.anatomy.groups import anatomy_rows
from traceview.analysis.context import View
from traceview.analysis.environment.section import job_facts
from traceview.analysis.python_lock import lock_wait_sentence
from traceview.analysis.steps.chart import step_times
from traceview.analysis.steps.section import found_steps
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import (
    DEVICE_KINDS,
    QUALITIES,
    WINDOWS,
    look_of,
)
from traceview.report.model import Report
from traceview.report.tiles import tiles
from traceview.shell_quote import shell_command

FIRST_FINDINGS: Final = 5
"""Findings of the first screen; the section on findings has all of them."""

_SHOWN_RUNS: Final = 3
_LISTED_WINDOWS: Final = 3
"""Of more hosts the shortest and the longest window are shown."""


def summary_of(report: Report, view: View, findings: tuple[doc.Finding, ...]) -> doc.Summary:
    """The first screen. `findings`: all of them, of which it shows the first."""
    quality = report.capture.quality
    answer = answer_of(report)
    environment_record = report.results.environment
    return doc.Summary(
        run=report.source.run,
        captured=tuple(_captured(report)),
        job=tuple(job_facts(environment_record)) if environment_record else (),
        answer=answer,
        headline=devices_at_work(report, answer),
        quality=None if quality == "ok" else look_of(QUALITIES, quality),
        tiles=tuple(tiles(report)),
        findings=findings[:FIRST_FINDINGS],
        hidden_count=max(len(report.findings) - FIRST_FINDINGS, 0),
        command=shell_command(report.command),
        remarks=tuple(_remarks(report)),
        anatomy=anatomy_rows(report.results.anatomy) if report.results.anatomy else (),
        anatomy_remark=anatomy_remark(report),
        step_times=step_times(view, report.results.steps) if report.results.steps else None,
        capture_lead=_capture_lead(quality, findings),
    )


def _remarks(report: Report) -> Iterator[str]:
    others = report.source.other_runs
    if others:
        shown = numbers.beginning(others, _SHOWN_RUNS)
        yield f"One of {len(others) + 1} runs; --run NAME chooses another: {shown}"
    if report.reduced:
        yield f"A reduced report, as baselines are, without {', '.join(report.reduced)}"


def anatomy_remark(report: Report) -> str:
    """What is in the parts of the mean step under another name."""
    parts: Counter[str] = Counter()
    for row in report.results.anatomy.devices if report.results.anatomy else ():
        parts.update(row.idle)
    return lock_wait_sentence(report.findings, parts) or ""


def _capture_lead(quality: str, findings: tuple[doc.Finding, ...]) -> str:
    """How far the capture can be trusted, and how many remarks say why."""
    count = sum(finding.is_about_capture for finding in findings)
    if quality != "ok":
        return f"The capture is {look_of(QUALITIES, quality).words}."
    if not count:
        return "Yes: no event was lost, and nothing limits the numbers."
    return f"Yes, with {numbers.plural(count, 'remark')}."


def _captured(report: Report) -> Iterator[str]:
    hosts, files = report.capture.hosts, report.source.files
    if hosts:
        yield f"host {hosts[0].host}" if len(hosts) == 1 else numbers.plural(len(hosts), "host")
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


def devices_of(report: Report) -> Iterator[str]:
    """How many devices there are of each model."""
    rows = report.results.device_time.devices if report.results.device_time else ()
    if len(rows) == 1 and rows[0].kind == "replica":
        # One alone is no replica of anything.
        yield "1 × CPU"
        return
    models = Counter(row.model or look_of(DEVICE_KINDS, row.kind).words for row in rows)
    yield from (f"{count} × {model}" for model, count in models.items())


def _window_words(report: Report) -> str:
    """How long the windows are, and what they are."""
    lengths = sorted(window.end_ps - window.start_ps for window in report.windows)
    kinds = dict.fromkeys(window.kind for window in report.windows)
    if 1 < len(report.windows) <= _LISTED_WINDOWS and (lengths[0] < lengths[-1] or len(kinds) > 1):
        each = (
            f"{window.host} {numbers.time(window.end_ps - window.start_ps)} ({window.kind})"
            for window in report.windows
        )
        return f"windows: {', '.join(each)}"
    words = " or ".join(look_of(WINDOWS, kind).words for kind in kinds)
    return f"window {numbers.time_range(lengths)} ({words})"


def answer_of(report: Report) -> str:
    """What costs most, or that nothing does; of a report of an earlier version the title of the finding."""
    verdict = report.verdict
    if verdict.devices is None and verdict.largest_cost is not None:
        return numbers.sentence(verdict.largest_cost)
    return verdict.headline


def devices_at_work(report: Report, answer: str) -> str:
    """Which devices worked, where not all did; empty if the answer says it."""
    verdict, times = report.verdict, report.results.device_time
    sentence = verdict.headline if verdict.devices is None else verdict.devices
    statuses = {row.status for row in times.devices} if times else set()
    all_work = bool(statuses) and statuses <= {"active", "marginal"}
    is_known = verdict.devices is not None and all_work and ";" not in sentence
    return "" if sentence == answer or is_known else sentence
