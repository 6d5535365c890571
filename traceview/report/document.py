"""Makes the document of a report: its summary, the findings, and the sections of the topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, Final

from msgspec.structs import asdict, replace

from traceview.analysis.gpu_time import device_time, steps
from traceview.analysis.gpu_time.step_tables import step_times
from traceview.analysis.gpu_time.steps import FEW_STEPS, NO_STEP_MARKER
from traceview.analysis.machine import capture
from traceview.analysis.measures.context import Analysis, View
from traceview.analysis.measures.device_report import named_devices, outlier_devices, time_words
from traceview.analysis.measures.idle_report import NumberedGap, numbered_gaps
from traceview.analysis.measures.step_report import StepRow, median_step, worst_step
from traceview.analysis.registry import RULES, TOPICS
from traceview.analysis.rules.finding import Finding as FindingRecord
from traceview.analysis.rules.sentences import shown_finding
from traceview.base.text import first_of
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.columns import Shown, table
from traceview.document.vocabulary import SEVERITIES, STATES, TERMS
from traceview.report.command import FOLDER
from traceview.report.model import Report, reasons
from traceview.report.summary import Invocation, summary_of

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
    counts = [
        numbers.plural(count, severity) if severity == "warning" else f"{count} {severity}"
        for severity in SEVERITIES
        if (count := sum(finding.severity == severity for finding in report.findings))
    ]
    order = ", what costs most first" if len(report.findings) > 1 else ""
    lead = f"{', '.join(counts)}{order}." if counts else "No problem found."
    shown = findings[: view.most_rows]
    return doc.Section(
        "findings",
        "Findings",
        (doc.Findings(shown, len(findings) - len(shown)),) if shown else (),
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
    times = time_words(report.results.device_time)
    for number, finding in enumerate(report.findings, start=1):
        yield replace(
            shown_finding(number, finding, RULES[finding.code], view.commands, times),
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


BRIEF_ROWS: Final = 16
"""Rows of a table on a terminal, where nobody scrolls far."""


def document_of(
    report: Report,
    *,
    most_rows: int = 64,
    is_brief: bool = False,
    invocation: Invocation | None = None,
) -> doc.Document:
    """The whole document. `most_rows`: of one table. `is_brief`: for a terminal, with few rows and columns."""
    asked = invocation or Invocation()
    most_rows = min(most_rows, BRIEF_ROWS) if is_brief else most_rows
    view = view_of(report, asked, most_rows=most_rows, is_brief=is_brief)
    gaps = {
        number: gaps_of(finding, numbered_gaps(view))
        for number, finding in enumerate(report.findings, start=1)
    }
    findings = tuple(shown_findings(report, view, gaps))
    view = replace(view, findings_of_gaps=findings_by_gap(gaps))
    steps_of = report.results.steps
    summary = replace(
        summary_of(report, view, asked),
        step_times=step_times(view, steps_of) if steps_of else None,
    )
    return doc.Document(
        traceview_version=report.traceview_version,
        summary=summary,
        sections=(*_sections(report, view, findings), *_appendix(report, view, summary)),
    )


def screen_of(report: Report, invocation: Invocation | None = None) -> doc.Summary:
    """The first screen of a terminal."""
    asked = invocation or Invocation()
    return summary_of(report, view_of(report, asked, is_brief=True), asked)


def view_of(
    report: Report,
    invocation: Invocation | None = None,
    *,
    most_rows: int = 64,
    is_brief: bool = False,
) -> View:
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
        skipped=reasons(report),
        findings=report.findings,
        window_start_ps={window.host: window.start_ps for window in report.windows},
        outliers=outliers.shown,
        others=outliers.others,
        most_rows=most_rows,
        is_brief=is_brief,
        logdir=(invocation and invocation.logdir) or report.source.logdir,
        run=report.source.run,
        other_runs=report.source.other_runs,
    )


# Sections

_FIRST: Final = ("timeline", "findings", "devices")
"""On a terminal the findings come before the timeline. The others follow: those of topics with findings in the order of these, then the rest in that of the report."""

_OF_COMPUTE: Final = ("layers", "ops")
"""Topics that follow those with findings where devices compute for most of the time."""
_MOSTLY_RATIO: Final = 0.5

_TABLES: Final = {
    "findings": "findings",
    "devices": "devices",
    "idle": "gaps",
    "gaps": "gaps",
    "steps": "steps",
    "input": "input",
    "transfers": "copies",
    "collectives": "collectives",
    "balance": "balance",
    "efficiency": "efficiency",
    "layers": "layers",
    "memory": "memory",
    "ops": "ops",
}
"""By section the table of `traceview show` that has all of it; a folder of reports has every section."""


def _sections(
    report: Report, view: View, findings: tuple[doc.Finding, ...]
) -> Iterator[doc.Section]:
    """The timeline, the findings and the devices, then what an expert checks them with."""
    first_finding = {row.code: place for place, row in reversed(list(enumerate(findings)))}

    mostly_computes = (report.verdict.compute_ratio or 0.0) >= _MOSTLY_RATIO

    def rank(topic: Analysis[Any]) -> int:
        last = len(findings) + (topic.name not in _OF_COMPUTE or not mostly_computes)
        return min((first_finding.get(rule.code, last) for rule in topic.rules), default=last)

    ranked = sorted(_topic_sections(view), key=lambda pair: rank(pair[0]))
    every = [findings_section(report, view, findings), *(section for _, section in ranked)]
    ids = ("findings", "timeline", "devices") if view.is_brief else _FIRST
    first = [section for id_ in ids for section in every if section.id == id_]
    rest = [section for section in every if section not in first]
    for section in (*first, *rest):
        shown = _TABLES.get(section.id)
        command = view.command(f"show {shown}" if shown else "report")
        yield replace(
            section,
            is_folded=section.id not in _FIRST,
            command=command if shown else f"{command} -o {FOLDER}",
        )


_FILES: Final = (
    Shown("file", "name"),
    Shown("size", "bytes"),
    Shown("events", "event_count"),
    Shown("SHA-256", "sha256"),
    Shown("same as", "duplicate_of"),
)
_MEANINGS: Final = (Shown("term", itemgetter(0)), Shown("meaning", itemgetter(1)))


def _appendix(report: Report, view: View, summary: doc.Summary) -> Iterator[doc.Section]:
    """What was recorded, its files with their checksums, and what words mean."""
    yield doc.Section("about", "About this run", doc.facts(*summary.about))
    if view.is_brief:
        return
    yield from _files_section(report, view)
    times = time_words(report.results.device_time)
    terms = [(times if term == "GPU time" else term, meaning) for term, meaning in TERMS]
    meanings = [*terms, *((look.words, look.meaning) for look in STATES.values())]
    yield doc.Section("definitions", "Definitions", table("Definitions", meanings, _MEANINGS))


def _files_section(report: Report, view: View) -> Iterator[doc.Section]:
    files, rest = report.source.files, "the JSON report"
    blocks = table("Files", files, _FILES, most_rows=view.most_rows, rest=rest)
    if blocks:
        yield doc.Section("files", "Files", blocks)


def _topic_sections(view: View) -> Iterator[tuple[Analysis[Any], doc.Section]]:
    for topic in (*TOPICS[1:], TOPICS[0]):  # how far to trust the capture comes last
        result = view.result(topic)
        if result is None:
            if topic.title_if_absent:
                reason = numbers.sentence(view.reason(topic))
                yield topic, doc.Section(topic.name, topic.title_if_absent, (), lead=reason)
            continue
        for section_of in topic.sections:
            section = section_of(view, result)
            if section is not None:
                yield topic, section
