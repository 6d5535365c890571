"""Makes the document of a report: the first screen, the findings, and the sections of the topics."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import asdict, replace

from traceview.analysis.context import View
from traceview.analysis.facts.numbered_gaps import numbered_gaps
from traceview.analysis.outlier_devices import named_devices, outlier_devices
from traceview.analysis.registry import TOPICS
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import (
    STATES,
    TERMS,
)
from traceview.report.model import Report
from traceview.report.shown_findings import (
    findings_by_gap,
    findings_section,
    gaps_of,
    shown_findings,
)
from traceview.report.summary import summary_of


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
