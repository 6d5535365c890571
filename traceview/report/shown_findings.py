"""Makes findings ready to be shown: their cost and evidence in words, and where on the timeline they are seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from traceview.analysis import capture, device_time, steps
from traceview.analysis.base import Finding as FindingRecord
from traceview.analysis.context import View
from traceview.analysis.facts.numbered_gaps import NumberedGap
from traceview.analysis.facts.step_report import StepRow, median_step, worst_step
from traceview.analysis.registry import RULES
from traceview.analysis.sentences import shown_finding
from traceview.analysis.steps.findings import FEW_STEPS, NO_STEP_MARKER
from traceview.base.text import first_of
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.vocabulary import SEVERITIES
from traceview.report.model import Report

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
    for device in shown:
        yield doc.Link(device, doc.device_anchor(device))
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
