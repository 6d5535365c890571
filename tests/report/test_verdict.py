"""The verdict names what costs most: a finding, or a part of the critical path that no finding is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import marked_steps, new_trace
from tests.charts import MS
from tests.reports import anatomy_of, bare_report, finding, full_report
from traceview.analysis.anatomy.result import Anatomy
from traceview.analysis.base import Finding
from traceview.analysis.path.result import CriticalPath
from traceview.analysis.registry import Results
from traceview.document import numbers
from traceview.document.model import Link
from traceview.report.build import analyze
from traceview.report.consistency import first_disagreement
from traceview.report.document import document_of
from traceview.report.model import Report
from traceview.report.recoverable import recoverable, savings, typical_step_ps
from traceview.report.saved import load_report, to_json
from traceview.report.verdict import (
    LEAST_LOSS_RATIO,
    UNEXPLAINED_FACTOR,
    Loss,
    largest_loss,
    losses,
    verdict_of,
)
from traceview.trace.load import load

NAMED_FIRST = {
    "waits_for_input_in_the_graph": ("input-bound", "input"),
    "launches_back_to_back": ("launch-bound", "launch"),
    "exposed_collectives": ("collective-exposed", "collective"),
    "retracing": ("retracing", "compile"),
    "late_batch": ("straggler-gpu", "input"),
    "mixed_models": ("straggler-gpu", "compute"),
    "pageable_copies": ("h2d-exposed", "h2d"),
    "past_the_stop": ("callback-stall", "callback"),
    "serial_gpus": ("serial-gpus", "dependency"),
    "two_of_eight": ("unused-gpu", None),
}
"""What the verdict says of runs with a known fault: the finding, and what that is on the path."""


def path(**shares: float) -> CriticalPath:
    """A path of one step of 100 ms."""
    by_cause = {cause: round(share * 100 * MS) for cause, share in shares.items()}
    return CriticalPath(
        by_cause=by_cause,
        mean_by_cause=by_cause,
        share_by_cause=shares,
        unexplained_ratio=shares.get("unattributed", 0.0),
        ops=(),
        op_count=0,
        longest=(),
        unexplained=(),
        steps=(),
    )


def with_path(report: Report, **shares: float) -> Report:
    return replace(report, results=replace(report.results, path=path(**shares)))


@pytest.mark.parametrize(("name", "named"), NAMED_FIRST.items())
def test_a_known_fault_comes_first(
    name: str, named: tuple[str, str | None], tmp_path: Path
) -> None:
    SCENARIOS[name]().write(tmp_path)
    verdict = analyze(tmp_path).verdict
    assert (verdict.finding, verdict.cause) == named


@pytest.mark.parametrize("name", SCENARIOS)
def test_text_and_numbers_agree(name: str, tmp_path: Path) -> None:
    """The first sentence of a document holds the cost that the verdict names, and nothing costs more than a step."""
    SCENARIOS[name]().write(tmp_path)
    report = analyze(tmp_path)
    verdict, summary = report.verdict, document_of(report).summary
    assert summary.answer == verdict.headline
    assert first_disagreement(report) is None
    if verdict.cost_ratio:
        costs = (numbers.share(verdict.cost_ratio), numbers.time(verdict.cost_ps_per_step))
        assert any(cost in verdict.headline for cost in costs)
    most, step_ps = recoverable(report), typical_step_ps(report.results.steps)
    for saving in savings(report):
        assert most is not None
        assert (saving.ps_per_step or 0) <= (most.ps_per_step or 0)
        assert (saving.ratio or 0) <= (most.ratio or 0)
    if most and step_ps and most.ps_per_step:
        assert most.ps_per_step <= step_ps
    if most and most.ratio:
        assert (verdict.unexplained_ratio or 0) <= most.ratio <= 1


@pytest.mark.parametrize(("kernel_ms", "is_problem"), [(48.6, False), (48.4, True)])
def test_healthy_is_said_aloud(kernel_ms: float, is_problem: bool, tmp_path: Path) -> None:
    """Up to 3 % of the step no loss is a problem; here the marker ends with the step, and the rest is unexplained."""
    trace = new_trace()
    for step in marked_steps(trace, marker_ms=50):
        step.kernel(0, 0, kernel_ms, launch_ms=0)
    trace.write(tmp_path)
    verdict = analyze(tmp_path).verdict
    lost = 1 - kernel_ms / 50
    assert (lost >= LEAST_LOSS_RATIO) == is_problem
    sentence = f"1 GPU, {numbers.share(1 - lost)} busy; largest loss: no recorded cause, {numbers.share(lost)}."
    assert (
        verdict.headline == f"No {'clear problem' if is_problem else 'problem found'}: {sentence}"
    )
    assert (verdict.finding, verdict.cause) == (None, "unattributed")
    assert verdict.cost_ratio == pytest.approx(lost)


@pytest.mark.parametrize(
    ("problems", "besides"),
    [
        (
            [finding(severity="warning", cost_ratio=0.05)],
            "The listed problem, unused-gpu, costs 5.0%.",
        ),
        (
            [finding(severity="warning", cost_ratio=None)],
            "The listed problem, unused-gpu, is another one.",
        ),
        ([finding(severity="warning", cost_ratio=0.05)] * 2, "The listed problems are others."),
    ],
)
def test_problems_that_are_not_the_largest_loss_follow_it(
    problems: list[Finding], besides: str, tmp_path: Path
) -> None:
    """A tenth of the step is idle without a finding about it."""
    trace = new_trace()
    for step in marked_steps(trace, marker_ms=50):
        step.kernel(0, 0, 45, launch_ms=0)
    trace.write(tmp_path)
    report = analyze(tmp_path)
    told = verdict_of(load(tmp_path), report.capture, report.results, problems)
    assert told.headline == (
        f"1 GPU, 90.0% busy; largest loss: no recorded cause, 10.0%. {besides}"
    )
    assert told.finding is None


def loss(ratio: float, cause: str | None = "input") -> Loss:
    return Loss(None, cause, None, ratio)


def test_time_without_a_cause_is_named_first_if_there_is_much_of_it() -> None:
    known = loss(0.1)
    much = loss(0.1 * UNEXPLAINED_FACTOR, "unattributed")
    little = loss(0.1 * UNEXPLAINED_FACTOR - 0.01, "unattributed")
    assert largest_loss([known, much]) is much
    assert largest_loss([known, little]) is known
    assert largest_loss([little]) is little
    assert largest_loss([]) is None


def test_a_small_loss_with_a_cause_does_not_hide_a_larger_one_without() -> None:
    small = loss(LEAST_LOSS_RATIO - 0.01)
    larger = loss(LEAST_LOSS_RATIO + 0.01, "unattributed")
    assert largest_loss([small, larger]) is larger


def test_a_part_of_the_path_that_a_finding_is_about_is_no_loss_of_its_own() -> None:
    bound = finding(
        code="input-bound", cost_ps_per_step=5 * MS, cost_ratio=0.15, path_causes=("input",)
    )
    results = Results(path=path(compute=0.6, input=0.3, launch=0.1))
    assert [(row.cause, row.ratio) for row in losses(results, [bound])] == [
        ("input", 0.15),
        ("launch", 0.1),
    ]


def test_a_part_of_the_path_that_is_much_larger_than_its_finding_is_a_loss_as_well() -> None:
    bound = finding(
        code="input-bound", cost_ps_per_step=5 * MS, cost_ratio=0.14, path_causes=("input",)
    )
    results = Results(path=path(compute=0.7, input=0.3))
    assert [(row.finding, row.ratio) for row in losses(results, [bound])] == [
        (bound, 0.14),
        (None, 0.3),
    ]


def test_information_counts_only_if_it_is_about_the_path() -> None:
    rows = [
        finding(code="unsteady-steps", severity="info", cost_ps_per_step=MS, cost_ratio=0.1),
        finding(
            code="launch-bound",
            severity="info",
            cost_ps_per_step=MS,
            cost_ratio=0.2,
            path_causes=("launch",),
        ),
    ]
    assert [row.ratio for row in losses(Results(), rows)] == [0.2]


def test_what_is_critical_and_has_no_cost_comes_first(tmp_path: Path) -> None:
    SCENARIOS["gradients_on_one"]().write(tmp_path)
    verdict = analyze(tmp_path).verdict
    assert verdict.finding == "single-gpu-gradients"
    assert (verdict.cause, verdict.cost_ps_per_step, verdict.cost_ratio) == (None, None, None)
    assert verdict.headline == "Only GPU:0 computes gradients."


def test_reports_of_earlier_versions_are_read(tmp_path: Path) -> None:
    title = "GPU:1 waits 16.0 ms of each 24.0 ms step for input (67%)"
    report = full_report()
    report = replace(report, verdict=replace(report.verdict, largest_cost=title))
    new = ("finding", "cause", "cost_ps_per_step", "cost_ratio", "unexplained_ratio", "devices")
    assert [getattr(report.verdict, key) for key in new] == [None] * len(new)
    text = to_json(report)
    for key in new:
        text = text.replace(f',\n    "{key}": null', "", 1)
    assert '"unexplained_ratio"' not in text
    (tmp_path / "report.json").write_text(text, encoding="utf-8")
    summary = document_of(load_report(tmp_path / "report.json")).summary
    assert (summary.answer, summary.headline) == (f"{title}.", report.verdict.headline)


# What is recoverable


def test_unexplained_time_is_recoverable() -> None:
    most = recoverable(with_path(full_report(), compute=0.8, unattributed=0.2))
    assert most is not None
    # 16 ms of the finding and 20 ms without a cause are more than the step of 24 ms.
    assert (most.ps_per_step, most.ratio) == (
        typical_step_ps(full_report().results.steps),
        2 / 3 + 0.2,
    )
    assert (most.source, most.unexplained_ratio) == ("unused-gpu", 0.2)


def test_a_loss_on_the_path_is_recoverable() -> None:
    most = recoverable(with_path(replace(full_report(), findings=()), compute=0.8, launch=0.2))
    assert most is not None
    assert (most.ps_per_step, most.ratio, most.source) == (20 * MS, 0.2, "launch")
    *_, tile = document_of(
        with_path(replace(full_report(), findings=()), compute=0.8, launch=0.2)
    ).summary.tiles
    assert tile.source is not None
    assert (tile.source.text, tile.source.anchor) == ("kernel launches", "path")


@pytest.mark.parametrize(
    ("waits_ms", "most_ms"), [((0, 9), 9), ((0, 9, 4), 4), ((3, 3, 3), 3), ((5,), None)]
)
def test_one_faster_device_saves_the_wait_of_the_one_that_waits_least_of_the_others(
    waits_ms: tuple[int, ...], most_ms: int | None
) -> None:
    report = replace(full_report(), findings=())
    first = anatomy_of("GPU:0")
    rows = tuple(
        replace(
            first,
            device=f"GPU:{place}",
            activity={"collective_wait": wait * MS - 1},
            idle={"peer": 1},
        )
        for place, wait in enumerate(waits_ms)
        if wait or most_ms
    )
    results = replace(report.results, anatomy=Anatomy(rows), balance=None)
    found = {row.source: row.ps_per_step for row in savings(replace(report, results=results))}
    assert found.get("peer") == (most_ms and most_ms * MS)


def test_what_is_recoverable_says_what_is_in_it() -> None:
    """The cost of a finding and the time without a recorded cause, or both kinds of waiting for a device."""
    report = full_report()
    cost = finding(code="d2h-sync", cost_ps_per_step=6 * MS, cost_ratio=0.25, cost_statistic="mean")
    results = replace(report.results, balance=None, anatomy=None)
    report = with_path(
        replace(report, findings=(cost,), results=results), compute=0.95, unattributed=0.05
    )
    *_, tile = document_of(report).summary.tiles
    assert tile.value == "11.0 ms"
    assert tile.note == "30.0% of the mean step"
    assert tile.rest == " 6.00 ms, and 5.00 ms with no recorded cause if that belongs to it"
    first = anatomy_of("GPU:0")
    rows = tuple(
        replace(first, device=key, activity={"collective_wait": ms * MS}, idle={"peer": MS})
        for key, ms in (("GPU:0", 2), ("GPU:1", 3))
    )
    results = replace(report.results, balance=None, path=None, anatomy=Anatomy(rows))
    *_, tile = document_of(replace(report, findings=(), results=results)).summary.tiles
    assert tile.source == Link("GPU:1 waiting for other devices", "path")
    waits = ": 3.00 ms waiting in collectives, 1.00 ms another device still busy"
    assert tile.rest == waits
    unexplained = with_path(
        replace(report, findings=(), results=replace(results, path=report.results.path)),
        compute=0.95,
        unattributed=0.05,
    )
    *_, tile = document_of(unexplained).summary.tiles
    with_words = "; and 5.00 ms with no recorded cause if that belongs to it"
    assert tile.rest == f" 4.00 ms{waits}{with_words}"


def test_nothing_is_recoverable_of_nothing() -> None:
    assert recoverable(bare_report()) is None


def changed(report: Report, **verdict: Any) -> Report:
    return replace(report, verdict=replace(report.verdict, **verdict))


def test_a_verdict_that_is_not_the_costliest_is_a_disagreement(tmp_path: Path) -> None:
    SCENARIOS["waits_for_input_in_the_graph"]().write(tmp_path)
    report = analyze(tmp_path)
    for wrong, problem in (
        ({"finding": "launch-bound"}, "is no finding of the report"),
        ({"cost_ratio": 0.01}, "is more than that of the verdict"),
        ({"unexplained_ratio": 0.5}, "is not that of results.path"),
    ):
        disagreement = first_disagreement(changed(report, **wrong))
        assert disagreement is not None
        assert disagreement.problem == problem
