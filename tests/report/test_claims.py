"""Every sentence of a report is checked against its numbers: a report in which one was changed is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scripts.scenarios import SCENARIOS
from tests.reports import bare_report, full_report
from traceview.report.build import analyze
from traceview.report.consistency import first_disagreement
from traceview.report.filtering import only_devices
from traceview.report.model import Report
from traceview.report.redaction import redacted
from traceview.report.saved import to_json

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
