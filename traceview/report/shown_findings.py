"""Makes findings ready to be shown: their cost and evidence in words, and where on the timeline they are seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from traceview.analysis import capture, device_time, steps
from traceview.analysis.base import Evidence
from traceview.analysis.base import Finding as FindingRecord
from traceview.analysis.context import View
from traceview.analysis.cost import cost_words
from traceview.analysis.explained_findings import EXPLAINS, EXPLAINS_PART
from traceview.analysis.idle.section import NumberedGap
from traceview.analysis.registry import RULES
from traceview.analysis.shown_steps import median_step, worst_step
from traceview.analysis.steps.findings import FEW_STEPS, NO_STEP_MARKER
from traceview.analysis.steps.result import StepRow
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.evidence import metric_words, threshold_words, value_words
from traceview.document.vocabulary import (
    SEVERITIES,
    look_of,
)
from traceview.enumeration import first_of
from traceview.report.model import Report

_LINKED_DEVICES: Final = 8
_LINKED_GAPS: Final = 3
_SHOWN_EVIDENCE: Final = 6
_OF_ALL: Final = "steps"
"""Evidence about all steps names no place."""

_LEAST_GAP: Final = 0.1
"""Of the cost of a finding: a shorter gap shows nothing of it, and its step is shown instead."""
_OPENED_DEVICES: Final = 8
"""Devices of a finding that are opened on the timeline."""
_CAPTURE_CODES: Final = frozenset(
    rule.code for rule in (*capture.ANALYSIS.rules, FEW_STEPS, NO_STEP_MARKER)
)
_EXPLAINS: Final = {EXPLAINS: "explains", EXPLAINS_PART: "explains part of"}


def findings_section(report: Report, view: View, findings: tuple[doc.Finding, ...]) -> doc.Section:
    """The section of all findings, with how many there are of each severity."""
    left_out = list(dict.fromkeys(report.left_out_findings))
    counts = [
        numbers.plural(count, severity) if severity == "warning" else f"{count} {severity}"
        for severity in SEVERITIES
        if (count := sum(finding.severity == severity for finding in report.findings))
    ]
    order = ", by severity and then by what they cost" if len(report.findings) > 1 else ""
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
    # Reports of earlier versions do not say; their costs were shares of the median step.
    without_statistic = "the median step" if report.results.steps else "the window"
    for number, finding in enumerate(report.findings, start=1):
        yield doc.Finding(
            number=number,
            code=finding.code,
            severity=look_of(SEVERITIES, finding.severity),
            title=finding.title,
            cost=_cost(finding, without_statistic),
            is_cost_in_title=_is_cost_in_title(finding),
            explanation=finding.explanation,
            evidence=evidence_words(finding.evidence),
            confidence=finding.confidence,
            confidence_reason=finding.confidence_reason,
            advice=view.commands.filled(finding.advice),
            links=tuple(_links(finding, gaps[number])),
            span=_span(finding, view, gaps[number]),
            is_about_capture=finding.code in _CAPTURE_CODES and finding.severity != "critical",
        )


def _is_cost_in_title(finding: FindingRecord) -> bool:
    """Whether the title has the time, the share and the step that it is a share of."""
    ps, ratio, statistic = finding.cost_ps_per_step, finding.cost_ratio, finding.cost_statistic
    if ps is None or not ratio or statistic is None:
        return False
    of_step = f"of the {statistic} {numbers.time(ps / ratio)} step"
    stated = (numbers.time(ps), numbers.share(ratio), of_step)
    return all(words in finding.title for words in stated)


def _cost(finding: FindingRecord, without_statistic: str) -> str:
    """`16.0 ms of the mean 24.0 ms step (66.7%)`; empty if the cost is not known."""
    share = "" if finding.cost_ratio is None else numbers.share(finding.cost_ratio)
    words = cost_words(finding.cost_ps_per_step, finding.cost_ratio, finding.cost_statistic)
    if not words:
        return share and f"{share} of {without_statistic}"
    if finding.cost_statistic is None and share:
        return f"{words}, {share} of {without_statistic}"
    return f"{words} ({share})" if share else words


def evidence_words(evidence: tuple[Evidence, ...]) -> str:
    """`On GPU:0: status: no event; memory held: 537 MB, reported from 256 MB`: values of one metric together.

    A place that all values share is named once.
    """
    places: dict[tuple[str, str], dict[str, list[str]]] = {}
    stated = [item for item in evidence if item.metric not in _EXPLAINS]
    shared = {item.where for item in stated if _has_place(item)}
    is_shared = len(shared) == 1 and all(map(_has_place, stated))
    for item in evidence:
        value = value_words(item.metric, numbers.measured(item.metric, item.value))
        limit = (
            ""
            if item.threshold is None
            else threshold_words(item.metric, numbers.measured(item.metric, item.threshold))
        )
        explains = _EXPLAINS.get(item.metric)
        metric = f"{explains} {item.where}" if explains else metric_words(item.metric)
        where = item.where if _has_place(item) and not is_shared else ""
        places.setdefault((metric, limit), {}).setdefault(value, []).append(where)
    sentences = []
    for (metric, limit), values in places.items():
        shown = [
            f"{value} ({_places(wheres)})" if any(wheres) else value
            for value, wheres in values.items()
        ]
        threshold = f", {limit}" if limit else ""
        sentences.append(f"{metric}: {numbers.listed(shown)}{threshold}")
    hidden_count = len(sentences) - _SHOWN_EVIDENCE
    more = f"; and {hidden_count} more" if hidden_count > 0 else ""
    before = f"{shared.pop()}: " if is_shared else ""
    return before + "; ".join(sentences[:_SHOWN_EVIDENCE]) + more


def _has_place(item: Evidence) -> bool:
    return item.metric not in _EXPLAINS and item.where not in ("", _OF_ALL)


def _places(wheres: list[str]) -> str:
    names = [place for place in dict.fromkeys(wheres) if place]
    return "; ".join(names) if any("," in name for name in names) else numbers.listed(names)


def gaps_of(finding: FindingRecord, gaps: tuple[NumberedGap, ...]) -> list[NumberedGap]:
    """The longest of the gaps that a finding is about."""
    rule = RULES.get(finding.code)
    causes = rule.idle_causes if rule else ()
    return [
        numbered
        for numbered in gaps
        if numbered.gap.cause in causes
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
    row = row or next((row for row in rows if finding.steps or finding.cost_ps_per_step), None)
    if row is None or (finding.devices and not named):
        return None
    # Who waits for a device is concerned as well.
    in_use = [each for each in rows if each.is_in_use and each.host == row.host]
    concerned = [each.device for each in (*named, *in_use) if each.host == row.host]
    others = [device for device in dict.fromkeys(concerned) if device != row.device]
    opened = tuple(others[: _OPENED_DEVICES - 1])
    least_ps = _LEAST_GAP * (finding.cost_ps_per_step or 0)
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
    return median_step(of_host) if finding.cost_ps_per_step else None
