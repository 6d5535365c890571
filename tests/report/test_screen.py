"""The first screen: what makes numbers meaningless, then the largest share of the GPU time, what to do, and where it leads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import new_trace
from tests.charts import HOST, MS
from tests.reports import (
    bare_report,
    environment,
    finding,
    full_report,
    known,
    loss,
    step,
    with_results,
)
from traceview.analysis.facts.selection import ReportWindow
from traceview.analysis.gpu_time.host_wait_rules import D2H_SYNC
from traceview.analysis.machine.capture import Quality
from traceview.analysis.measures.device_report import Environment
from traceview.analysis.rules.finding import Finding, FindingLoss
from traceview.analysis.rules.sentences import shown_finding
from traceview.document import markdown, screen
from traceview.document.model import Finding as ShownFinding
from traceview.document.model import Findings, Span
from traceview.document.phrase import Token, pieces, plain
from traceview.document.terminal import SHORT_FINDINGS, WHOLE_FINDINGS
from traceview.report.build import analyze
from traceview.report.document import MOST_FINDINGS, document_of, screen_of
from traceview.report.model import (
    Report,
    Verdict,
    by_rank,
    verdict_of,
    without_recording,
)
from traceview.trace.model import StepRange, Trace
from traceview.trace.reading.load import load


def test_commands_are_about_the_same_steps(tmp_path: Path) -> None:
    SCENARIOS["waits_for_input"]().write(tmp_path)
    screen = screen_of(analyze(tmp_path, steps=StepRange(1, 3)))
    assert screen.next_command == f"traceview show input {tmp_path} --steps 1:3"
    assert screen.full_command == f"traceview analyze {tmp_path} --steps 1:3 --full"


def test_the_capture_is_judged_in_one_line() -> None:
    report = full_report()
    assert tuple(map(plain, screen_of(report).trust)) == (
        "Capture: degraded, the tracer dropped 15 events",
        "3 steps used of 4",
        "1 remark",
    )
    sound = replace(report, capture=replace(report.capture, quality="ok", problems=()))
    assert screen_of(sound).trust == ("Capture: ok", "3 steps used of 4")
    lost_ledger = replace(known(report.results.ledger), share_by_state={"between": 0.05})
    unseen = with_results(sound, ledger=lost_ledger, environment=None)
    assert plain(screen_of(unseen).trust[2]).startswith("no traceview.json beside it: ")
    recorded = Environment((environment(overhead={"ratio": 0.008}),), ())
    slow = with_results(sound, environment=recorded)
    assert screen_of(slow).trust[2] == "recording makes steps 0.8% longer"


@pytest.mark.parametrize("quality", ["ok", "degraded"])
@pytest.mark.parametrize(
    ("share", "sentences", "is_disturbed"),
    [
        (0.1, ("", "", ""), True),
        (0.099, ("", "", ""), False),
        (0.5, ("started", "started", ""), False),
        (0.5, ("peers", "peers", ""), False),
    ],
)
def test_other_processes_disturb_a_capture(
    share: float, sentences: tuple[str, ...], is_disturbed: bool, quality: Quality
) -> None:
    """Its longer steps are no proof against the profiler then."""
    report = healthy_capture(full_report(), overhead_ratio=1.5)
    recorded = Environment((environment(overhead={"ratio": 1.5}),), ())
    others = finding(code="other-processes", loss=loss(share, "no_core"), sentences=sentences)
    problems = full_report().capture.problems if quality == "degraded" else ()
    disturbed = replace(
        report,
        capture=replace(report.capture, quality=quality, problems=problems),
        results=replace(report.results, environment=recorded),
        findings=(others,),
    )
    lines = tuple(map(plain, map(pieces, screen_of(disturbed).trust)))
    assert ("disturbed by other processes" in " ".join(lines)) == is_disturbed
    assert ("Capture: slowed by the profiler" in lines) == (quality == "ok" and not is_disturbed)
    assert ("recording makes steps 150% longer" in lines) != is_disturbed


@pytest.mark.parametrize(("gain_ms", "is_explained"), [(44, False), (45, True)])
def test_a_gain_far_above_its_loss_is_explained(gain_ms: int, is_explained: bool) -> None:
    row = lost(0.4)
    row = replace(row, loss=replace(known(row.loss), gain_ps_per_step=gain_ms * MS))
    cost = shown_finding(1, row, D2H_SYNC).cost
    assert cost.endswith("shorter, including what waits for it" if is_explained else "shorter")


@pytest.mark.parametrize(
    ("states", "title", "devices", "reason"),
    [
        (("no_work",), "", (HOST,), "it depends on the work that the idle devices get"),
        (("compute",), "half", (HOST,), "it may be more than the loss"),
        (("input",), "", (), "no device was recorded"),
        (("input",), "", (HOST,), "other threads of the step wait for the same cores"),
    ],
)
def test_a_gain_that_is_not_known_has_its_reason(
    states: tuple[str, ...], title: str, devices: tuple[str, ...], reason: str
) -> None:
    row = lost(0.4)
    unknown = replace(known(row.loss), gain_ps_per_step=None, states=states)
    row = replace(row, loss=unknown, devices=devices, sentences=(title, "", ""))
    rule = replace(D2H_SYNC, titles={"half": "{who:loses/lose} {loss}"}, at_least=("half",))
    cost = shown_finding(1, row, rule).cost
    assert f"; gain per step unknown: {reason}" in cost


@pytest.mark.parametrize(
    ("part", "then_input", "said"),
    [
        (0.74, False, " a step."),
        (0.74, True, " a step, which then waits for input."),
        (0.76, True, ""),
        (0.0, False, ""),
    ],
)
def test_a_gain_below_the_loss_stands_beside_what_to_do(
    part: float, then_input: bool, said: str
) -> None:
    report = full_report()
    leading = known(report.leading)
    whole = known(leading.loss)
    gain_ps = int(whole.ps_per_step * part)
    cost = replace(whole, gain_ps_per_step=gain_ps, then_input=then_input)
    rows = (replace(row, loss=cost) if row is leading else row for row in report.findings)
    action = plain(screen_of(replace(report, findings=tuple(rows))).action)
    assert (" That gains about " in action) is bool(said)
    assert action.endswith(said)


# The headline


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    new_trace().write(tmp_path, "run1")
    return load(tmp_path)


def lost(share: float, state: str = "input", **changes: Any) -> Finding:
    """A finding that costs this share of the GPU time."""
    loss = FindingLoss(int(share * 100) * MS, 100 * MS, share, share, 1, None, (state,))
    changes = {"code": "input-bound", "severity": "warning", "loss": loss} | changes
    return finding(**{"title": f"the {changes['code']}"} | changes)


def verdict(trace: Trace, report: Report, *findings: Finding, **shares: float) -> Verdict:
    by_share = {"compute": 1 - sum(shares.values()), **shares}
    sums = replace(known(report.results.ledger), share_by_state=by_share)
    results = replace(report.results, ledger=sums)
    told = (without_recording(row, report.capture) for row in findings)
    return verdict_of(trace, report.capture, results, sorted(told, key=by_rank))


def healthy_capture(report: Report, overhead_ratio: float | None = None) -> Report:
    hosts = tuple(replace(host, overhead_ratio=overhead_ratio) for host in report.capture.hosts)
    return replace(report, capture=replace(report.capture, quality="ok", problems=(), hosts=hosts))


OTHERS: dict[str, Any] = {"code": "other-processes", "state": "no_core"}
GUESS: dict[str, Any] = {"code": "collective-exposed", "state": "communication"}
SMALL: dict[str, Any] = {"code": "host-bound", "state": "host_ops", "sentences": ("small", "small")}
BLOCKING = finding(code="no-gpu-plane", severity="critical", title="no GPU recorded", loss=None)
WITHOUT_COST = finding(code="few-steps", severity="warning", title="few steps", loss=None)
VERDICTS: dict[str, tuple[list[Finding], dict[str, float]]] = {
    "critical without a cost comes first": ([lost(0.4), BLOCKING], {"input": 0.4}),
    "critical with a smaller cost does not": (
        [lost(0.2, code="host-bound", severity="critical"), lost(0.4)],
        {"input": 0.6},
    ),
    "a warning without a cost": ([WITHOUT_COST], {"input": 0.02}),
    "information without a cost": ([replace(WITHOUT_COST, severity="info")], {"input": 0.02}),
    "healthy": ([], {"input": 0.02}),
    "healthy, with its loss": ([], {"communication": 0.2}),
    "other processes cost twice as much": ([lost(0.4, **OTHERS), lost(0.19)], {"no_core": 0.4}),
    "hardly twice as much": ([lost(0.4, **OTHERS), lost(0.21)], {"no_core": 0.4}),
    "below a tenth, which counts as it is": (
        [lost(0.09, **OTHERS), lost(0.08)],
        {"no_core": 0.09},
    ),
    "a guess by a third more": (
        [lost(0.4, **GUESS, confidence="low"), lost(0.26, confidence="high")],
        {"communication": 0.4},
    ),
    "a guess by less more": (
        [lost(0.4, **GUESS, confidence="low"), lost(0.27, confidence="high")],
        {"communication": 0.4},
    ),
    "a guess alone": ([lost(0.4, **GUESS, severity="info")], {"communication": 0.4}),
    "a small step costs twice as much": (
        [lost(0.4, **SMALL), lost(0.19, "compute", code="costly-ops")],
        {"host_ops": 0.4},
    ),
    "a small step costs less": (
        [lost(0.4, **SMALL), lost(0.21, "compute", code="costly-ops")],
        {"host_ops": 0.4},
    ),
    "unknown for less than half": ([], {"unknown": 0.4}),
    "unknown for more": ([], {"unknown": 0.6}),
    "unknown for more, with a loss": ([lost(0.06)], {"unknown": 0.6}),
}
CERTAIN = ("alike", "alike", "program")
PROFILED: dict[str, tuple[list[Finding], dict[str, float]]] = {
    "a large loss that may be the profiler's": ([lost(0.2, "launch")], {"launch": 0.2}),
    "a small one": ([lost(0.19, "launch")], {"launch": 0.19}),
    "one that is larger than that": ([lost(0.7, "launch")], {"launch": 0.7}),
    "one that the program shows": (
        [lost(0.2, "communication", sentences=CERTAIN)],
        {"communication": 0.2},
    ),
    "one that recording does not prolong": ([lost(0.2)], {"input": 0.2}),
    "dispatch, which has a rule of its own": ([lost(0.2, "host_ops")], {"host_ops": 0.2}),
}
"""In steps that the profiler makes 2.5 times as long."""


def test_which_finding_leads(trace: Trace, golden: Callable[[str, str], None]) -> None:
    lines = []
    for ratio, cases in ((None, VERDICTS), (1.5, PROFILED)):
        capture = healthy_capture(full_report(), ratio)
        for name, (findings, shares) in cases.items():
            made = verdict(trace, capture, *findings, **shares)
            lines.append(f"{name}: {made.status}, {made.finding}: {made.headline}\n")
    golden("verdicts.txt", "".join(lines))


# What the document says first


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
    document = document_of(report)
    summary = document.summary
    # The first one is the headline.
    assert [shown.number for shown in summary.findings] == [2, 3]
    assert summary.hidden_count == 7 - MOST_FINDINGS
    assert [shown.number for shown in shown_findings(report)] == list(range(1, 9))
    assert "\n2 more findings below.\n" in markdown.render(document)
    many = document_of(replace(report, findings=report.findings * 5))
    hidden_count = 40 - WHOLE_FINDINGS - SHORT_FINDINGS
    text = screen.render(many, width=80, color=False)
    assert f"\n{hidden_count} more findings: traceview show findings" in text


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
    of_report = known(report.results.steps)
    second = replace(step(2, 23 * MS, ("GPU:0",), None), start_ps=52 * MS)
    changed = with_results(report, steps=replace(of_report, steps=(of_report.steps[0], second)))
    unsteady = finding(code="unsteady-steps", devices=devices, steps=steps)
    (shown,) = shown_findings(replace(changed, findings=(unsteady,)))
    assert shown.span == span
