"""Of many devices those are chosen that a finding names and those that differ, with one typical device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.charts import MS
from tests.reports import device, empty_device, finding
from traceview.analysis.measures.device_report import (
    ALIKE_RATIO,
    FEW_DEVICES,
    MOST_ROWS,
    DeviceTimeRow,
    named_devices,
    usual_devices,
)


def shown(rows: Sequence[DeviceTimeRow], named: Sequence[str] = ()) -> list[str]:
    """The devices with a row of their own, and those that recorded nothing."""
    usual = usual_devices(rows, named)
    return [row.device for row in rows if row.device not in usual]


SLOW: dict[str, Any] = {"exposed_ps": {"compute": 65 * MS}, "idle_ps": 20 * MS}


def test_outliers_are_shown_with_one_typical_device() -> None:
    rows = [device(n, **SLOW if n in (9, 30) else {}) for n in range(40)]
    assert shown(rows) == ["GPU:0", "GPU:9", "GPU:30"]


@pytest.mark.parametrize(("difference_ps", "is_outlier"), [(1, True), (0, False)])
def test_an_outlier_differs_by_the_limit(difference_ps: int, is_outlier: bool) -> None:
    compute_ps = 60 * MS + round(ALIKE_RATIO * 100 * MS) + difference_ps
    other = device(30, {"compute": compute_ps}, idle_ps=85 * MS - compute_ps)
    rows = [other if n == 30 else device(n) for n in range(40)]
    assert ("GPU:30" in shown(rows)) == is_outlier


def test_a_device_of_another_status_is_an_outlier() -> None:
    rows = [device(n, status="marginal" if n == 17 else "active") for n in range(40)]
    assert shown(rows) == ["GPU:0", "GPU:17"]


def test_a_finding_about_few_devices_shows_them() -> None:
    about_two = finding(devices=("GPU:20", "GPU:21"))
    about_many = finding(devices=tuple(f"GPU:{n}" for n in range(5, 6 + FEW_DEVICES)))
    named = named_devices((about_many, about_two))
    assert named == ["GPU:20", "GPU:21"]
    rows = [device(n) for n in range(40)]
    assert shown(rows, named) == ["GPU:0", "GPU:20", "GPU:21"]


def test_there_are_never_more_rows_than_fit() -> None:
    rows = [device(n, **SLOW if n % 2 else {}) for n in range(200)]
    assert len(shown(rows)) == MOST_ROWS


def test_devices_that_recorded_nothing_are_not_counted() -> None:
    assert usual_devices([*map(device, range(16)), *map(empty_device, range(16, 64))]) == ()


def test_devices_without_known_times_are_alike() -> None:
    unknown = dict.fromkeys(("window_ps", "activity", "idle_ps"))
    assert shown([device(n, **unknown) for n in range(20)]) == ["GPU:0"]
