"""Every sentence of a report is checked against its numbers: a report in which one was changed is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from scripts.scenarios import SCENARIOS
from tests.reports import bare_report, finding, full_report
from traceview.analysis.base import Evidence
from traceview.report import claims
from traceview.report.build import analyze
from traceview.report.consistency import first_disagreement
from traceview.report.filtering import only_devices
from traceview.report.model import Report
from traceview.report.redaction import redacted
from traceview.report.saved import to_json

MS = 10**9
Change = Callable[[dict[str, Any]], object]


def first_of(report: dict[str, Any], code: str) -> dict[str, Any]:
    found: dict[str, Any] = next(row for row in report["findings"] if row["code"] == code)
    return found


def replaced(row: dict[str, Any], key: str, old: str, new: str) -> None:
    assert old in row[key]
    row[key] = row[key].replace(old, new)


def moved_to_copies(row: dict[str, Any], cause: str) -> None:
    row["idle"][cause] -= 2
    row["activity"]["d2h"] = 2


def with_ratio(report: dict[str, Any], ratio: float, shown: str) -> None:
    """Another ratio of the straggler, everywhere where it is stated."""
    balance = report["results"]["balance"]
    for row in (balance["straggler"], balance["devices"][1]):
        row.update(mean_longer_ratio=ratio)
    replaced(report["findings"][0], "title", "+33.3%", shown)


CHANGES: dict[str, tuple[str, Change]] = {
    "$.results.steps.used_count: is not the number": (
        "saves_checkpoints",
        lambda report: report["results"]["steps"].update(used_count=3),
    ),
    "$.results.steps.median_ps: is not the median": (
        "saves_checkpoints",
        lambda report: report["results"]["steps"].update(median_ps=60 * 10**9),
    ),
    "$.findings[0].title: states another cost than 11.9 ms": (
        "saves_checkpoints",
        lambda report: replaced(report["findings"][0], "title", "11.9 ms", "12.9 ms"),
    ),
    "$.findings[0].title: states another cost than 19.5%": (
        "saves_checkpoints",
        lambda report: replaced(report["findings"][0], "title", "19.5%", "19.6%"),
    ),
    "$.findings[0].cost_bound: is not what the explanation says": (
        "saves_checkpoints",
        lambda report: report["findings"][0].update(cost_bound="lower"),
    ),
    "$.findings[0].title: states another step than mean 61.0 ms": (
        "saves_checkpoints",
        lambda report: replaced(report["findings"][0], "title", "the mean 61.0", "the median 61.0"),
    ),
    "$.findings[0].title: states another cost than 12.0%": (
        "slower_gpu",
        lambda report: replaced(report["findings"][0], "title", "12.0% of the", "21.0% of the"),
    ),
    "$.findings[0].title: states another step than mean 50.0 ms": (
        "slower_gpu",
        lambda report: replaced(report["findings"][0], "title", "mean 50.0", "mean 60.0"),
    ),
    "$.findings[0].evidence[0].value: is not the cost": (
        "saves_checkpoints",
        lambda report: report["findings"][0]["evidence"][0].update(value=0.21),
    ),
    "$.findings[0].cost_ps_per_step: is not checkpoint of GPU:0 in results.idle": (
        "saves_checkpoints",
        lambda report: report["results"]["idle"]["devices"][0]["causes_per_step"].update(
            checkpoint=20 * 10**9
        ),
    ),
    "$.results.idle.devices: have another idle_ps of GPU:0": (
        "saves_checkpoints",
        lambda report: report["results"]["device_time"]["devices"][0].update(
            idle_ps=report["results"]["device_time"]["devices"][0]["idle_ps"] - 1,
            compute_ps=report["results"]["device_time"]["devices"][0]["compute_ps"] + 1,
        ),
    ),
    "$.results.anatomy.devices[0].idle: has other checkpoint": (
        "saves_checkpoints",
        lambda report: moved_to_copies(report["results"]["anatomy"]["devices"][0], "checkpoint"),
    ),
    "$.results.balance.what_if[0].mean_saved_ps: is not between": (
        "late_batch",
        lambda report: report["results"]["balance"]["what_if"][0].update(mean_saved_ps=40 * 10**9),
    ),
    "$.findings[0].title: states another ratio than (+33.3% vs. the others)": (
        "more_work",
        lambda report: replaced(report["findings"][0], "title", "+33.3%", "+31.3%"),
    ),
    "$.results.balance.devices: have another ratio of GPU:1": (
        "more_work",
        lambda report: report["results"]["balance"]["devices"][1].update(mean_longer_ratio=0.25),
    ),
    "$.results.balance.straggler.mean_longer_ratio: is not the ratio of the mean times": (
        "more_work",
        lambda report: with_ratio(report, 0.25, "+25.0%"),
    ),
    "$.results.anatomy.devices[1].activity: has other compute than results.balance": (
        "more_work",
        lambda report: report["results"]["balance"]["devices"][1].update(
            mean_compute_ps_per_step=1
        ),
    ),
    "$.verdict.headline: is not about checkpoint-stall": (
        "saves_checkpoints",
        lambda report: report["verdict"].update(headline="GPU:0 waits for its input."),
    ),
    "$.verdict.headline: finds no problem": (
        "saves_checkpoints",
        lambda report: report["verdict"].update(
            headline="No problem found: 1 GPU.", finding=None, cause=None, cost_ratio=None
        ),
    ),
    "$.verdict.cost_ratio: is not that of checkpoint-stall": (
        "saves_checkpoints",
        lambda report: report["verdict"].update(cost_ratio=0.25),
    ),
    "$.verdict.numbers: have another median step": (
        "saves_checkpoints",
        lambda report: report["verdict"]["numbers"][0].update(value=1),
    ),
    "$.verdict.cost_ratio: is not what dependency costs": (
        "queued_on_another_stream",
        lambda report: report["verdict"].update(cost_ratio=0.5),
    ),
    "cost_ps_per_step: is not that of results.path": (
        "plain",
        lambda report: first_of(report, "unexplained-idle").update(
            cost_ps_per_step=first_of(report, "unexplained-idle")["cost_ps_per_step"] + 1
        ),
    ),
}


@pytest.mark.parametrize("problem", CHANGES)
def test_a_sentence_that_says_something_else_is_refused(problem: str, tmp_path: Path) -> None:
    name, change = CHANGES[problem]
    SCENARIOS[name]().write(tmp_path)
    data = json.loads(to_json(analyze(tmp_path)))
    change(data)
    disagreement = first_disagreement(msgspec.convert(data, Report))
    assert disagreement is not None
    assert problem in f"{disagreement.place}: {disagreement.problem}"


@pytest.mark.parametrize(
    "name", ["collectives_of_two_hosts", "late_batch", "callbacks_between_steps"]
)
def test_a_part_of_a_report_fits_as_well(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = analyze(tmp_path)
    assert report.results.device_time is not None
    first = report.results.device_time.devices[0].device
    code = report.findings[0].code
    parts: list[Report] = [
        only_devices(report, [first]),
        redacted(report),
        analyze(tmp_path, ignore_codes=[code]),
        analyze(tmp_path, select_codes=[code]),
        analyze(tmp_path, window="devices"),
        analyze(tmp_path, window="trace"),
    ]
    for part in parts:
        assert first_disagreement(part) is None


def test_reports_with_everything_and_with_nothing_fit() -> None:
    assert first_disagreement(full_report()) is None
    assert first_disagreement(bare_report()) is None


def with_finding(title: str, evidence: tuple[Evidence, ...], cost_ms: int = 5) -> Report:
    """A finding about GPU:0, which waits 3 ms for input and 3 ms for launches in a mean step; GPU:1 waits 5 ms for input."""
    cost = {"cost_ps_per_step": cost_ms * MS, "cost_ratio": cost_ms / 24, "cost_statistic": "mean"}
    return replace(full_report(), findings=(finding(title=title, evidence=evidence, **cost),))


@pytest.mark.parametrize(
    ("times_ms", "title", "expected"),
    [
        (
            (3, 2),
            "loses (20.8%): 3.00 ms waiting for input, 2.00 ms slower ops; 9.00 ms in step 3",
            "",
        ),
        ((3, 1), "loses (20.8%): 3.00 ms waiting for input, 1.00 ms slower ops", "does not add up"),
        ((2, 3), "loses (20.8%)", "has other input than results.idle"),
        (
            (3, 2),
            "loses (20.8%): 3.00 ms waiting for input, 2.10 ms slower ops",
            "names other parts",
        ),
        # Written by an earlier version.
        ((3, 2), "loses (20.8%)", ""),
    ],
)
def test_parts_of_a_cost_add_up_to_it(times_ms: tuple[int, int], title: str, expected: str) -> None:
    metrics = ("input_wait_ps", "slowed_ops_ps")
    evidence = tuple(
        Evidence(metric, time_ms * MS, None, "GPU:0")
        for metric, time_ms in zip(metrics, times_ms, strict=True)
    )
    problems = [row.problem for row in claims.parts(with_finding(title, evidence))]
    assert [expected in problem for problem in problems] == ([True] if expected else [])


@pytest.mark.parametrize(("stated", "is_right"), [("5.00 ms", True), ("4.00 ms", False)])
def test_the_longest_wait_of_other_devices_is_that_of_the_table(
    stated: str, is_right: bool
) -> None:
    title = f"GPU:0 waits 3.00 ms for input; up to {stated} on other devices"
    report = with_finding(title, (Evidence("idle_input_ratio", 0.125, None, "GPU:0"),), cost_ms=3)
    assert (not list(claims.longest(report))) == is_right


def test_the_spread_of_a_finding_is_that_of_the_steps() -> None:
    steps = full_report().results.steps
    assert steps is not None
    assert steps.iqr_ps is not None
    assert steps.median_ps is not None
    own = steps.iqr_ps / steps.median_ps
    for value, is_right in ((own, True), (own + 0.001, False)):
        report = with_finding("step times vary", (Evidence("spread_ratio", value, None, "steps"),))
        assert (not list(claims.spread(report))) == is_right


def test_a_finding_that_costs_nothing_states_no_cost() -> None:
    report = with_finding("step times vary", ())
    explained = "The cost is how much longer the mean step is."
    for cost_ratio, is_right in ((0.2, True), (None, False)):
        row = replace(report.findings[0], explanation=explained, cost_ratio=cost_ratio)
        assert (not list(claims.costless(replace(report, findings=(row,))))) == is_right
