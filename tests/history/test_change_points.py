"""Changes of a level are found where they are, and hardly ever where there are none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from traceview.history.change_points import FALSE_ALARM_RATIO, LEAST_CHANGE_RATIO, change_points
from traceview.robust import median

SERIES = 400
Noise = Callable[[np.random.Generator, int], np.ndarray]
NOISES: dict[str, Noise] = {
    "normal": lambda generator, size: generator.normal(size=size),
    "heavy tails": lambda generator, size: generator.standard_t(2, size=size),
    "skewed": lambda generator, size: generator.exponential(size=size),
}


@pytest.mark.parametrize("size", [8, 12, 30])
@pytest.mark.parametrize("noise", NOISES)
def test_without_a_change_at_most_one_series_in_twenty_has_one(noise: str, size: int) -> None:
    generator = np.random.default_rng(15)
    alarms = sum(
        bool(change_points(np.abs(100 + 3 * NOISES[noise](generator, size)) + 1))
        for _ in range(SERIES)
    )
    # Three standard errors of a share of 5 % above it.
    assert alarms / SERIES <= FALSE_ALARM_RATIO + 3 * (0.05 * 0.95 / SERIES) ** 0.5


def test_an_eight_percent_change_is_found_with_ten_reports_on_each_side() -> None:
    generator = np.random.default_rng(15)
    found, places = 0, []
    for _ in range(SERIES):
        noise = 3 * generator.normal(size=20)
        points = change_points(np.r_[np.full(10, 100.0), np.full(10, 108.0)] + noise)
        found += bool(points)
        places += points[:1]
    assert found / SERIES >= 0.9
    assert median(places) == 10


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(3, 3, []), (4, 4, [4]), (20, 2, []), (20, 3, [20])],
)
def test_how_many_reports_it_takes(before: int, after: int, expected: list[int]) -> None:
    generator = np.random.default_rng(1)
    noise = generator.normal(size=before + after)
    series = np.r_[np.full(before, 100.0), np.full(after, 120.0)] + noise
    assert change_points(series) == expected


def test_several_changes() -> None:
    generator = np.random.default_rng(3)
    levels = np.repeat([100.0, 130.0, 110.0], 10)
    assert change_points(levels + generator.normal(size=30)) == [10, 20]


def test_outliers_are_no_change() -> None:
    series = 100 + np.random.default_rng(2).normal(size=20)
    series[[3, 11]] = 5000
    assert change_points(series) == []


def test_small_and_equal_series() -> None:
    for series in ([], [1.0], [1.0, 2.0], [5.0] * 30):
        assert change_points(series) == []
    # Equal values within each level.
    assert change_points([100.0] * 6 + [110.0] * 6) == [6]


def test_a_change_of_less_than_one_percent_is_none() -> None:
    for ratio, expected in ((LEAST_CHANGE_RATIO * 0.9, []), (LEAST_CHANGE_RATIO * 1.1, [10])):
        assert change_points([100.0] * 10 + [100 * (1 + ratio)] * 10) == expected


def test_the_same_series_gives_the_same_answer() -> None:
    series = 100 + 5 * np.random.default_rng(9).normal(size=40)
    assert change_points(series) == change_points(series.copy())
