"""Tests what the document of a report says first: the answer, its numbers, and where findings lead."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.charts import HOST, MS
from tests.reports import bare_report, device, finding, full_report, step
from traceview.analysis.balance.what_if import WhatIf
from traceview.analysis.base import Evidence
from traceview.analysis.device_time.result import DeviceTime
from traceview.analysis.shown_steps import median_step
from traceview.document.model import Document, Findings, Link, Span, Table, Tile, Value
from traceview.document.model import Finding as ShownFinding
from traceview.report.document import document_of
from traceview.report.model import Report, ReportWindow
from traceview.report.recoverable import Recoverable, recoverable
from traceview.report.shown_findings import evidence_words
from traceview.report.summary import FIRST_FINDINGS


def shown_findings(report: Report) -> tuple[ShownFinding, ...]:
    block = document_of(report).block(Findings)
    return block.findings if block else ()


def with_bounds(report: Report, *bounds: WhatIf) -> Report:
    assert report.results.balance is not None
    balance = replace(report.results.balance, what_if=bounds)
    return replace(report, results=replace(report.results, balance=balance))


def with_input_finding(start_ps: int = 0) -> Report:
    """The window starts at `start_ps`; finding 1 is about the gaps of GPU:1 that are due to input."""
    bound = finding(code="input-bound", devices=("GPU:1",), steps=())
    window = ReportWindow(HOST, "steps", start_ps, start_ps + 100 * MS)
    return replace(full_report(), findings=(bound,), windows=(window,))


# The answer


def test_without_a_known_cost_the_headline_is_the_answer() -> None:
    for report in (full_report(), bare_report()):
        summary = document_of(report).summary
        assert (summary.answer, summary.headline) == (report.verdict.headline, "")


def test_the_answer_is_the_verdict_and_the_devices_stand_below() -> None:
    title = "GPU:1 waits 16.0 ms of the median 24.0 ms step for input (66.7%)"
    report = full_report()
    verdict = replace(report.verdict, headline=f"{title}.", devices="1 of 2 GPUs ran kernels.")
    report = replace(
        report,
        verdict=verdict,
        findings=(finding(code="input-bound", title=title, cost_statistic="median"),),
    )
    summary = document_of(report).summary
    assert (summary.answer, summary.headline) == (f"{title}.", "1 of 2 GPUs ran kernels.")
    assert summary.findings[0].is_cost_in_title
    assert not document_of(full_report()).summary.findings[0].is_cost_in_title


def test_that_all_devices_worked_is_not_said() -> None:
    report = full_report()
    verdict = replace(report.verdict, headline="An answer.", devices="2 of 2 GPUs ran kernels.")
    results = replace(report.results, device_time=DeviceTime((device(0), device(1)), ()))
    report = replace(report, verdict=verdict, results=results)
    assert document_of(report).summary.headline == ""
    missing = "2 of 2 GPUs ran kernels; worker 2 was not recorded."
    report = replace(report, verdict=replace(verdict, devices=missing))
    assert document_of(report).summary.headline == missing


@pytest.mark.parametrize(
    ("title", "answer"),
    [
        ("collectives take 8.0% of the step", "Collectives take 8.0% of the step."),
        ("host-a waits", "host-a waits."),
        ("replica:1 waits", "replica:1 waits."),
    ],
)
def test_the_answer_of_an_earlier_version_is_the_largest_cost(title: str, answer: str) -> None:
    report = full_report()
    report = replace(report, verdict=replace(report.verdict, largest_cost=title))
    assert document_of(report).summary.answer == answer


def test_only_the_first_findings_are_on_the_first_screen() -> None:
    report = replace(full_report(), findings=(finding(),) * 8)
    summary = document_of(report).summary
    assert len(summary.findings) == FIRST_FINDINGS
    assert summary.hidden_count == 8 - FIRST_FINDINGS
    assert [shown.number for shown in shown_findings(report)] == list(range(1, 9))


def test_findings_that_were_left_out_are_named() -> None:
    report = replace(full_report(), left_out_findings=("few-steps", "unused-gpu", "few-steps"))
    (section,) = (part for part in document_of(report).sections if part.id == "findings")
    assert section.lead == "1 critical, 1 warning, 1 info, by severity and then by what they cost."
    assert "left out on request: few-steps, unused-gpu" in str(section.blocks)


# The numbers


def test_what_is_recoverable_names_its_source() -> None:
    report = with_bounds(full_report(), WhatIf("no_input_wait", 4 * MS, 20 * MS, "a bound"))
    for changed, source, whole in (
        (
            replace(report, findings=()),
            Link("recorded waits for input removed", "balance"),
            "the median step",
        ),
        (with_bounds(report), Link("unused-gpu", "finding 1"), "the step"),
    ):
        *_, tile = document_of(changed).summary.tiles
        assert tile.source == source
        assert tile.label == "Recoverable by one change at most"
        assert tile.note.endswith(f"% of {whole}")


def test_recoverable_is_the_largest_cost_or_bound() -> None:
    report = full_report()
    assert recoverable(report) == Recoverable(
        16 * MS, 2 / 3, "unused-gpu", report.findings[0].cost_statistic
    )
    costly = finding(code="launch-bound", severity="info", cost_ps_per_step=20 * MS, cost_ratio=0.9)
    assert recoverable(replace(report, findings=(costly, *report.findings))) == Recoverable(
        20 * MS, 0.9, "launch-bound", costly.cost_statistic
    )
    wide = with_bounds(report, WhatIf("no_input_wait", 4 * MS, 20 * MS, "a bound"))
    assert recoverable(wide) == Recoverable(20 * MS, 20 / 24, "no_input_wait", "median")
    waiting = replace(report, findings=())
    assert recoverable(waiting) == Recoverable(2 * MS, 2 / 24, "peer", "mean", "GPU:0", (2 * MS, 0))
    bounded = replace(waiting, results=replace(waiting.results, anatomy=None))
    assert recoverable(bounded) == Recoverable(MS, MS / (24 * MS), "balanced_devices", "median")
    nothing = replace(bounded, results=replace(bounded.results, balance=None))
    assert recoverable(nothing) is None
    assert document_of(nothing).summary.tiles[-1] == Tile(
        "Recoverable", "–", "no finding has a cost"
    )


def test_what_is_seen_in_part_only_may_be_the_whole_step() -> None:
    """Ops that are always slowed do not show, so the cost of slowed ones bounds nothing."""
    slowed = finding(
        code="input-bound",
        cost_ps_per_step=9 * MS,
        cost_ratio=9 / 24,
        cost_statistic="mean",
        evidence=(Evidence("slowed_ops_ps", 2 * MS, None, "replica:0"),),
    )
    report = replace(full_report(), findings=(slowed,))
    most = recoverable(report)
    assert most is not None
    assert (most.ratio, most.source) == (1.0, "input-bound")
    (tile,) = [t for t in document_of(report).summary.tiles if t.label.startswith("Recoverable")]
    assert (tile.label, tile.value, tile.note) == (
        "Recoverable if input cost nothing, about",
        "9.00 ms",
        "37.5% of the mean step",
    )
    assert "more where its pipeline slows ops all the time" in tile.rest


def test_of_a_lower_bound_no_upper_one_is_made() -> None:
    bounded = finding(
        code="host-bound",
        cost_ps_per_step=9 * MS,
        cost_ratio=9 / 24,
        cost_statistic="mean",
        cost_bound="lower",
    )
    report = replace(full_report(), findings=(bounded,))
    (tile,) = [t for t in document_of(report).summary.tiles if t.label.startswith("Recoverable")]
    assert (tile.label, tile.value) == ("Recoverable by one change, at least", "9.00 ms")
    assert tile.note == "37.5% of the mean step"


@pytest.mark.parametrize(("count", "words"), [(1, "1 × CPU"), (2, "2 × replica")])
def test_replicas_on_the_host_are_counted_in_words(count: int, words: str) -> None:
    report = full_report()
    rows = tuple(device(number, kind="replica", model=None) for number in range(count))
    results = replace(report.results, device_time=DeviceTime(rows, ()))
    assert words in document_of(replace(report, results=results)).summary.captured


def test_hosts_with_different_windows_are_told_apart() -> None:
    windows = (
        ReportWindow("a", "steps", 0, 90 * MS),
        ReportWindow("b", "trace", 0, 1000 * MS),
    )
    captured = document_of(replace(full_report(), windows=windows)).summary.captured
    assert "windows: a 90.0 ms (steps), b 1.00 s (trace)" in captured


# Evidence and links


def test_equal_evidence_stands_together() -> None:
    evidence = (
        *(Evidence("status", "empty", None, f"GPU:{n}") for n in (2, 3)),
        Evidence("memory_held_bytes", 536_870_912, 256_000_000, "GPU:2"),
    )
    assert evidence_words(evidence) == (
        "status: no event (GPU:2 and GPU:3); memory held: 537 MB (GPU:2), reported from 256 MB"
    )
    longest = (
        Evidence("spread_ratio", 0.2, None, "steps"),
        Evidence("longest_step_ps", MS, None, "step 3"),
    )
    assert evidence_words(longest) == (
        "spread of the step times (IQR), share of the median step: 20.0%; longest step: 1.00 ms (step 3)"
    )
    delay = Evidence("spread_ps", 2 * MS, 3 * MS, "GPU:1")
    assert evidence_words((delay,)).endswith("2.00 ms, must be at most 3.00 ms")
    low = Evidence("in_use_efficiency_ratio", 0.052, 0.5, "")
    assert evidence_words((low,)).endswith("5.2%, reported below 50.0%")
    dropped = Evidence("dropped_event_count", 15, 0, "")
    assert evidence_words((dropped,)).endswith("15, reported above 0")
    part = Evidence("explains_part", "the host is busy", None, "host-bound")
    assert evidence_words((part,)) == "explains part of host-bound: the host is busy"
    many = tuple(Evidence(f"value{n}", n, None, "") for n in range(8))
    assert evidence_words(many).endswith("value5: 5; and 2 more")


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
    tenfold = replace(report.findings[0], devices=("GPU:1",), cost_ps_per_step=90 * MS)
    (shown,) = shown_findings(replace(report, findings=(tenfold,)))
    assert shown.span == Span("GPU:1", 30 * MS, 39 * MS, ("GPU:0",))
    more = replace(tenfold, cost_ps_per_step=90 * MS + 1)
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
        replace(row, gaps=tuple(replace(gap, cause="peer") for gap in row.gaps))
        for row in report.results.idle.devices
    )
    results = replace(report.results, idle=replace(report.results.idle, devices=waiting))
    late = finding(code="straggler-gpu", devices=("GPU:1",), steps=(), cost_ps_per_step=MS)
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
