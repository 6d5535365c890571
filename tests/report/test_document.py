"""Tests what the document of a report says first: the answer, its numbers, and where findings lead."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.charts import HOST, MS
from tests.reports import bare_report, device, finding, full_report, loss, step
from traceview.analysis.measures.device_report import DeviceTime
from traceview.analysis.measures.step_report import median_step
from traceview.analysis.rules.finding import Evidence
from traceview.analysis.rules.rule import Rule
from traceview.analysis.rules.sentences import evidence_phrase
from traceview.document.model import Document, Findings, Link, Span, Table, Value
from traceview.document.model import Finding as ShownFinding
from traceview.document.phrase import Token, plain
from traceview.report.document import document_of
from traceview.report.model import Report, ReportWindow
from traceview.report.summary import MOST_FINDINGS


def shown_findings(report: Report) -> tuple[ShownFinding, ...]:
    block = document_of(report).block(Findings)
    return block.findings if block else ()


def with_input_finding(start_ps: int = 0) -> Report:
    """The window starts at `start_ps`; finding 1 is about the gaps of GPU:1 that are due to input."""
    bound = finding(code="input-bound", devices=("GPU:1",), loss=loss(0.5, "input"))
    window = ReportWindow(HOST, "steps", start_ps, start_ps + 100 * MS)
    return replace(full_report(), findings=(bound,), windows=(window,))


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


@pytest.mark.parametrize(("count", "words"), [(1, "1 × CPU"), (2, "2 × replica")])
def test_replicas_on_the_host_are_counted_in_words(count: int, words: str) -> None:
    report = full_report()
    rows = tuple(device(number, kind="replica", model=None) for number in range(count))
    results = replace(report.results, device_time=DeviceTime(rows))
    summary = document_of(replace(report, results=results)).summary
    assert words in map(plain, summary.captured)
    assert words in map(plain, summary.about)


def test_hosts_with_different_windows_are_told_apart() -> None:
    windows = (
        ReportWindow("a", "steps", 0, 90 * MS),
        ReportWindow("b", "trace", 0, 1000 * MS),
    )
    about = document_of(replace(full_report(), windows=windows)).summary.about
    assert "windows: a 90.0 ms (steps), b 1.00 s (trace)" in map(plain, about)


# Evidence and links


RULE = Rule(
    code="slow",
    title="T",
    meaning="M.",
    action="A.",
    starts_at="always",
    example="X",
    metrics={"memory_held_bytes": "memory held", "status": "status"},
    values={"empty": "no event"},
)


def evidence_text(*evidence: Evidence) -> str:
    return plain(evidence_phrase(evidence, RULE))


def test_equal_evidence_stands_together_in_the_words_of_its_rule() -> None:
    rows = (
        *(Evidence("status", "empty", None, f"GPU:{n}") for n in (2, 3)),
        Evidence("memory_held_bytes", 536_870_912, 256_000_000, "GPU:2"),
    )
    assert evidence_text(*rows) == (
        "status: no event (GPU:2 and GPU:3); memory held: 537 MB (GPU:2), limit 256 MB"
    )
    assert evidence_text(Evidence("explains", "host-bound", None, "")) == "explains: host-bound"
    many = tuple(Evidence(f"value{n}", n, None, "") for n in range(8))
    assert evidence_text(*many).endswith("value5: 5; and 2 more")


def test_a_recorded_value_is_a_name() -> None:
    evidence = Evidence("error", "`<b>`", None, "")
    assert Token("`<b>`", "name") in evidence_phrase([evidence], RULE)


def gap_links(document: Document) -> dict[Value, Value]:
    """By device the links of its longest gap."""
    (section,) = (part for part in document.sections if part.id == "gaps")
    (block,) = (block for block in section.blocks if isinstance(block, Table))
    columns = {column.heading: column.values for column in block.columns}
    findings = columns.get("findings", ((), ()))
    return dict(zip(columns["device"], findings, strict=True))


def test_findings_and_gaps_lead_to_each_other() -> None:
    report = with_input_finding(start_ps=10 * MS)
    (shown,) = shown_findings(report)
    assert shown.links == (Link("GPU:1", "device GPU:1"), Link("gap 2 (9.00 ms)", "gap 2"))
    assert shown.span == Span("GPU:1", 20 * MS, 29 * MS, ("GPU:0",))
    assert gap_links(document_of(report)) == {
        "GPU:0": (),
        "GPU:1": (Link("finding 1", "finding 1"),),
    }


def test_the_first_device_of_a_finding_is_shown_first() -> None:
    report = with_input_finding()
    both = replace(report.findings[0], devices=("GPU:1", "GPU:0"))
    (shown,) = shown_findings(replace(report, findings=(both,)))
    assert shown.span == Span("GPU:1", 30 * MS, 39 * MS, ("GPU:0",))


def test_a_gap_that_shows_little_of_the_cost_is_not_shown() -> None:
    report = with_input_finding()
    tenfold = replace(report.findings[0], devices=("GPU:1",), loss=loss(0.5, "input", ps=90 * MS))
    (shown,) = shown_findings(replace(report, findings=(tenfold,)))
    assert shown.span == Span("GPU:1", 30 * MS, 39 * MS, ("GPU:0",))
    more = replace(tenfold, loss=loss(0.5, "input", ps=91 * MS))
    (shown,) = shown_findings(replace(report, findings=(more,)))
    assert report.results.steps is not None
    assert shown.span is not None
    median = median_step(report.results.steps.steps)
    assert median is not None
    assert shown.span.end_ps - shown.span.start_ps == median.duration_ps


def test_a_straggler_leads_to_its_work_and_not_to_what_it_waits_for() -> None:
    report = full_report()
    assert report.results.idle is not None
    assert report.results.steps is not None
    waiting = tuple(
        replace(row, gaps=tuple(replace(gap, state="device_wait") for gap in row.gaps))
        for row in report.results.idle.devices
    )
    results = replace(report.results, idle=replace(report.results.idle, devices=waiting))
    late = finding(code="straggler-gpu", devices=("GPU:1",), loss=loss(0.1, "compute"))
    (shown,) = shown_findings(replace(report, results=results, findings=(late,)))
    median = median_step(report.results.steps.steps)
    assert median is not None
    assert shown.span is not None
    assert shown.span.device == "GPU:1"
    assert shown.span.end_ps - shown.span.start_ps == median.duration_ps
    assert shown.links == (Link("GPU:1", "device GPU:1"),)


OTHERS = ("GPU:1",)
"""The other device in use."""


@pytest.mark.parametrize(
    ("devices", "steps", "span"),
    [
        ((), (2,), Span("GPU:0", 52 * MS, 75 * MS, OTHERS)),
        (("GPU:4",), (), Span("GPU:4", 52 * MS, 75 * MS, ("GPU:0", "GPU:1"))),
        ((), (), Span("GPU:0", 52 * MS, 75 * MS, OTHERS)),
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


def test_of_many_devices_some_have_a_link() -> None:
    many = finding(devices=tuple(f"GPU:{number}" for number in range(20)))
    (shown,) = shown_findings(replace(full_report(), findings=(many,)))
    assert len(shown.links) == 9
    assert shown.links[-1] == Link("12 more devices", "devices")
