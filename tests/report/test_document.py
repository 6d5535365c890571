"""Tests what the document of a report says first: the answer, its numbers, and where findings lead."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.charts import HOST, MS
from tests.reports import bare_report, finding, full_report, loss, step
from traceview.analysis.facts.selection import ReportWindow
from traceview.document.model import Finding as ShownFinding
from traceview.document.model import Findings, Span
from traceview.document.phrase import Token, plain
from traceview.report.document import MOST_FINDINGS, document_of
from traceview.report.model import Report


def shown_findings(report: Report) -> tuple[ShownFinding, ...]:
    block = document_of(report).block(Findings)
    return block.findings if block else ()


# The answer


def test_the_answer_is_the_headline_in_tokens() -> None:
    for report in (full_report(), bare_report()):
        assert plain(document_of(report).summary.answer) == report.verdict.headline
    assert Token("4 of 6 GPUs", "number") in document_of(full_report()).summary.answer


def test_only_the_first_findings_are_on_the_first_screen() -> None:
    report = replace(full_report(), findings=tuple(finding() for _ in range(8)))
    summary = document_of(report).summary
    # The first one is the headline.
    assert [shown.number for shown in summary.findings] == [2, 3]
    assert summary.hidden_count == 7 - MOST_FINDINGS
    assert [shown.number for shown in shown_findings(report)] == list(range(1, 9))


# Evidence and links


def test_a_finding_leads_to_its_longest_gap() -> None:
    bound = finding(code="input-bound", devices=("GPU:1",), loss=loss(0.5, "input"))
    window = ReportWindow(HOST, "steps", 10 * MS, 110 * MS)
    (shown,) = shown_findings(replace(full_report(), findings=(bound,), windows=(window,)))
    assert shown.span == Span("GPU:1", 20 * MS, 29 * MS, ("GPU:0",))


@pytest.mark.parametrize(
    ("devices", "steps", "span"),
    [
        ((), (2,), Span("GPU:0", 52 * MS, 75 * MS, ("GPU:1",))),
        (("GPU:4",), (), Span("GPU:4", 52 * MS, 75 * MS, ("GPU:0", "GPU:1"))),
        ((), (), Span("GPU:0", 52 * MS, 75 * MS, ("GPU:1",))),
        (("GPU:9",), (), None),
    ],
)
def test_a_finding_without_gaps_leads_to_its_step_or_device(
    devices: tuple[str, ...], steps: tuple[int, ...], span: Span | None
) -> None:
    report = full_report()
    assert report.results.steps is not None
    second = replace(step(2, 23 * MS, ("GPU:0",), None), start_ps=52 * MS)
    rows = (report.results.steps.steps[0], second)
    results = replace(report.results, steps=replace(report.results.steps, steps=rows))
    unsteady = finding(code="unsteady-steps", devices=devices, steps=steps)
    (shown,) = shown_findings(replace(report, results=results, findings=(unsteady,)))
    assert shown.span == span
