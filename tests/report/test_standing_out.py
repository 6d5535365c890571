"""Of many devices the report shows those a finding names and those that differ, with one like the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from traceview.render.numbers import shares
from traceview.render.terminal import render
from traceview.report.standing_out import standing_out

from tests.reports import MS, device, empty_device, finding, full_report
from traceview.analysis.base import Finding
from traceview.analysis.device_time.result import DeviceTime, DeviceTimeRow
from traceview.report.model import Report

SLOW: dict[str, Any] = {"compute_ps": 65 * MS, "compute_ratio": 0.65, "idle_ps": 20 * MS}


def of(rows: list[DeviceTimeRow], findings: tuple[Finding, ...] = ()) -> Report:
    report = full_report()
    results = replace(report.results, device_time=DeviceTime(tuple(rows), shared=()))
    return replace(report, results=results, findings=findings)


def test_few_devices_are_all_shown() -> None:
    chosen = standing_out(of([device(n) for n in range(16)]))
    assert chosen.shown == tuple(f"GPU:{n}" for n in range(16))
    assert chosen.others == ()


def test_what_differs_is_shown_with_one_that_does_not() -> None:
    rows = [device(n, **SLOW if n in (9, 30) else {}) for n in range(40)]
    chosen = standing_out(of(rows))
    assert chosen.shown == ("GPU:0", "GPU:9", "GPU:30")
    assert len(chosen.others) == 37
    assert "GPU:9" in chosen
    assert "GPU:10" not in chosen


def test_a_difference_of_less_than_two_points_is_none() -> None:
    rows = [device(n, compute_ps=60 * MS + n * MS // 25) for n in range(40)]
    assert standing_out(of(rows)).shown == ("GPU:0",)


def test_another_status_stands_out() -> None:
    rows = [device(n, **{"status": "marginal"} if n == 17 else {}) for n in range(40)]
    assert standing_out(of(rows)).shown == ("GPU:0", "GPU:17")


def test_a_finding_about_few_devices_shows_them() -> None:
    about_two = finding(devices=("GPU:20", "GPU:21"))
    about_many = finding(devices=tuple(f"GPU:{n}" for n in range(5, 10)))
    chosen = standing_out(of([device(n) for n in range(40)], (about_many, about_two)))
    assert chosen.shown == ("GPU:0", "GPU:20", "GPU:21")


def test_there_are_never_more_rows_than_asked_for() -> None:
    rows = [device(n, **SLOW if n % 2 else {}) for n in range(200)]
    chosen = standing_out(of(rows), most=8)
    assert len(chosen.shown) == 8
    assert len(chosen.others) == 192


def test_devices_that_recorded_nothing_are_neither_shown_nor_counted() -> None:
    rows = [*map(device, range(16)), *map(empty_device, range(16, 64))]
    chosen = standing_out(of(rows))
    assert chosen.others == ()
    assert chosen.shown == tuple(f"GPU:{n}" for n in range(16))


def test_nothing_known_of_any_device() -> None:
    unknown = dict.fromkeys(("window_ps", "compute_ps", "idle_ps"))
    assert standing_out(of([device(n, **unknown) for n in range(20)])).shown == ("GPU:0",)


def test_the_page_says_what_the_others_have_in_common() -> None:
    rows = [device(n, **SLOW if n == 9 else {}) for n in range(40)]
    page = render(of(rows), width=100, color=False, unicode=True, top=3)
    assert "38 others: busy 75.0%, compute 60.0%, comm 10.0%, copies 5.0%." in page
    assert "GPU:9 " in page
    assert "GPU:10 " not in page


@pytest.mark.parametrize(
    ("ratios", "told"),
    [
        ([0.5771, 0.5789, None, 0.578], "57.7–57.9%"),
        ([0.5, 0.5], "50.0%"),
        ([0.0, 1.0], "0–100%"),
        ([None], "–"),
        ([], "–"),
    ],
)
def test_a_range_of_shares(ratios: list[float | None], told: str) -> None:
    assert shares(ratios) == told
