"""Makes the document of a report: the first screen, the findings, and the sections of the topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import asdict, replace

from traceview.analysis.gpu_time import device_time, steps
from traceview.analysis.gpu_time.device_states import anatomy_rows
from traceview.analysis.gpu_time.steps.findings import FEW_STEPS, NO_STEP_MARKER
from traceview.analysis.gpu_time.steps.section import found_steps, step_times
from traceview.analysis.machine import capture
from traceview.analysis.machine.environment import job_facts
from traceview.analysis.measures.context import View
from traceview.analysis.measures.idle_report import NumberedGap, numbered_gaps
from traceview.analysis.measures.outlier_devices import named_devices, outlier_devices
from traceview.analysis.measures.step_report import StepRow, median_step, worst_step
from traceview.analysis.registry import RULES, TOPICS
from traceview.analysis.rules.finding import Finding as FindingRecord
from traceview.analysis.rules.sentences import shown_finding
from traceview.base.text import first_of, shell_command
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.phrase import Sentence, device, names, phrase
from traceview.document.vocabulary import (
    DEVICE_KINDS,
    QUALITIES,
    SEVERITIES,
    STATES,
    TERMS,
    VERDICT_STATUSES,
    WINDOWS,
    look_of,
)
from traceview.report.model import Report
from traceview.report.verdict import phrases_of_verdict

_LINKED_DEVICES: Final = 8
_LINKED_GAPS: Final = 3

_LEAST_GAP: Final = 0.1
"""Of the cost of a finding: a shorter gap shows nothing of it, and its step is shown instead."""
_OPENED_DEVICES: Final = 8
"""Devices of a finding that are opened on the timeline."""
_CAPTURE_CODES: Final = frozenset(
    rule.code for rule in (*capture.ANALYSIS.rules, FEW_STEPS, NO_STEP_MARKER)
)


def findings_section(report: Report, view: View, findings: tuple[doc.Finding, ...]) -> doc.Section:
    """The section of all findings, with how many there are of each severity."""
    left_out = list(dict.fromkeys(report.left_out_findings))
    counts = [
        numbers.plural(count, severity) if severity == "warning" else f"{count} {severity}"
        for severity in SEVERITIES
        if (count := sum(finding.severity == severity for finding in report.findings))
    ]
    order = ", what costs most of the GPU time first" if len(report.findings) > 1 else ""
    lead = f"{', '.join(counts)}{order}." if counts else "No problem found."
    shown = findings[: view.most_rows]
    return doc.Section(
        "findings",
        "Findings",
        (
            *((doc.Findings(shown, len(findings) - len(shown)),) if shown else ()),
            *doc.facts(f"left out on request: {', '.join(left_out)}" if left_out else None),
        ),
        lead=lead,
    )


def findings_by_gap(gaps: Mapping[int, list[NumberedGap]]) -> dict[int, tuple[int, ...]]:
    """By the number of a gap the numbers of the findings about it."""
    findings: dict[int, tuple[int, ...]] = {}
    for number, of_finding in gaps.items():
        for numbered in of_finding:
            findings[numbered.number] = (*findings.get(numbered.number, ()), number)
    return findings


def shown_findings(
    report: Report, view: View, gaps: Mapping[int, list[NumberedGap]]
) -> Iterator[doc.Finding]:
    """Each finding as it is shown. `gaps`: by its number the gaps that it is about."""
    for number, finding in enumerate(report.findings, start=1):
        yield replace(
            shown_finding(number, finding, RULES.get(finding.code), view.commands),
            links=tuple(_links(finding, gaps[number])),
            span=_span(finding, view, gaps[number]),
            is_about_capture=finding.code in _CAPTURE_CODES and finding.severity != "critical",
        )


def gaps_of(finding: FindingRecord, gaps: tuple[NumberedGap, ...]) -> list[NumberedGap]:
    """The longest of the gaps that a finding is about."""
    states = finding.loss.states if finding.loss else ()
    return [
        numbered
        for numbered in gaps
        if numbered.gap.state in states
        and (not finding.devices or numbered.span.device in finding.devices)
        and (not finding.steps or numbered.gap.step in finding.steps)
    ][:_LINKED_GAPS]


def _links(finding: FindingRecord, gaps: list[NumberedGap]) -> Iterator[doc.Link]:
    shown, hidden_count = first_of(finding.devices, _LINKED_DEVICES)
    for key in shown:
        yield doc.Link(key, doc.device_anchor(key))
    if hidden_count:
        yield doc.Link(numbers.plural(hidden_count, "more device"), "devices")
    for numbered in gaps:
        length = numbers.time(numbered.gap.duration_ps)
        yield doc.Link(f"gap {numbered.number} ({length})", doc.gap_anchor(numbered.number))


def _span(finding: FindingRecord, view: View, gaps: list[NumberedGap]) -> doc.Span | None:
    """What to look at: a gap that shows its cost, else its worst step, else the median step, else the window.

    The first device that it names is framed, and others that it is about or that work beside it are opened; None without
    a device.
    """
    times = view.result(device_time.ANALYSIS)
    rows = [row for row in (times.devices if times else ()) if row.host in view.window_start_ps]
    named = [row for row in rows if row.device in finding.devices]
    row = min(named, key=lambda row: finding.devices.index(row.device), default=None)
    row = row or next((row for row in rows if finding.steps or finding.loss), None)
    if row is None or (finding.devices and not named):
        return None
    # Who waits for a device is concerned as well.
    in_use = [each for each in rows if each.is_in_use and each.host == row.host]
    concerned = [each.device for each in (*named, *in_use) if each.host == row.host]
    others = [device for device in dict.fromkeys(concerned) if device != row.device]
    opened = tuple(others[: _OPENED_DEVICES - 1])
    least_ps = _LEAST_GAP * (finding.loss.ps_per_step if finding.loss else 0)
    for numbered in gaps:
        if numbered.span.device == row.device and numbered.gap.duration_ps >= least_ps:
            return replace(numbered.span, devices=opened)
    step = _shown_step(finding, view, row.host)
    if step is not None:
        begin_ps = step.start_ps - view.window_start_ps[row.host]
        return doc.Span(row.device, begin_ps, begin_ps + step.duration_ps, opened)
    return doc.Span(row.device, 0, row.window_ps, opened) if row.window_ps else None


def _shown_step(finding: FindingRecord, view: View, host: str) -> StepRow | None:
    """The worst of the steps of a finding; of one about all steps the median step."""
    result = view.result(steps.ANALYSIS)
    of_host = [row for row in (result.steps if result else ()) if row.host == host]
    if finding.steps:
        return worst_step(of_host, finding.steps)
    return median_step(of_host) if finding.loss else None


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


def document_of(report: Report, *, most_rows: int = 64, is_brief: bool = False) -> doc.Document:
    """The whole document. `most_rows`: of one table. `is_brief`: for a terminal, where nobody scrolls far."""
    view = view_of(report, most_rows=most_rows, is_brief=is_brief)
    gaps = {
        number: gaps_of(finding, numbered_gaps(view))
        for number, finding in enumerate(report.findings, start=1)
    }
    findings = tuple(shown_findings(report, view, gaps))
    view = replace(view, findings_of_gaps=findings_by_gap(gaps))
    return doc.Document(
        traceview_version=report.traceview_version,
        summary=summary_of(report, view, findings),
        sections=tuple(_sections(report, view, findings)),
        definitions=(
            ("", TERMS),
            (
                "States of a device",
                tuple((look.words, look.meaning) for look in STATES.values()),
            ),
        ),
    )


def view_of(report: Report, *, most_rows: int = 64, is_brief: bool = False) -> View:
    """The report as the section of a topic sees it."""
    devices = report.results.device_time.devices if report.results.device_time else ()
    outliers = outlier_devices(devices, named_devices(report.findings))
    return View(
        results={
            **{
                name: result
                for name, result in asdict(report.results).items()
                if result is not None
            },
            "capture": report.capture,
        },
        skipped=report.skipped,
        findings=report.findings,
        window_start_ps={window.host: window.start_ps for window in report.windows},
        outliers=outliers.shown,
        others=outliers.others,
        most_rows=most_rows,
        is_brief=is_brief,
        logdir=report.source.logdir,
        run=report.source.run,
        other_runs=report.source.other_runs,
    )


def _sections(
    report: Report, view: View, findings: tuple[doc.Finding, ...]
) -> Iterator[doc.Section]:
    """The timeline first, then the findings, then what an expert checks them with."""
    sections = list(_topic_sections(view))
    yield from (section for section in sections if section.id == "timeline")
    yield findings_section(report, view, findings)
    yield from (section for section in sections if section.id != "timeline")
    if not view.is_brief:
        yield from _files_section(report, view)


def _files_section(report: Report, view: View) -> Iterator[doc.Section]:
    """The files of the run with their checksums."""
    files = report.source.files[: view.most_rows]
    if files:
        columns = (
            doc.names("file", [file.name for file in files]),
            doc.sizes("size", [file.bytes for file in files]),
            doc.counts("events", [file.event_count for file in files]),
            doc.names("SHA-256", [file.sha256 for file in files]),
            doc.names("same as", [file.duplicate_of for file in files]),
        )
        row_count = len(report.source.files)
        blocks = doc.table("Files", columns, row_count=row_count, rest="the JSON report")
        yield doc.Section("files", "Files", blocks)


def _topic_sections(view: View) -> Iterator[doc.Section]:
    for topic in (*TOPICS[1:], TOPICS[0]):  # how far to trust the capture comes last
        result = view.result(topic)
        if result is None:
            if topic.title_if_absent:
                reason = view.reason(topic)
                yield doc.Section(
                    topic.name, topic.title_if_absent, (), lead=numbers.sentence(reason)
                )
            continue
        for section_of in topic.sections:
            section = section_of(view, result)
            if section is not None:
                yield section
