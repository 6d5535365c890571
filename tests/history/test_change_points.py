"""Changes of a level are found where they are, and hardly ever where there are none."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from traceview.comparison.history import change_points
from traceview.comparison.noise import Level

SERIES = 400
Noise = Callable[[np.random.Generator, int], np.ndarray]
NOISES: dict[str, Noise] = {
    "normal": lambda generator, size: generator.normal(size=size),
    "heavy tails": lambda generator, size: generator.standard_t(2, size=size),
    "skewed": lambda generator, size: generator.exponential(size=size),
}


def points(step_times: Iterable[float]) -> list[int]:
    return change_points([Level(math.log(step_time)) for step_time in step_times])


@pytest.mark.parametrize("size", [8, 12, 30])
@pytest.mark.parametrize("noise", NOISES)
def test_without_a_change_at_most_one_series_in_twenty_has_one(noise: str, size: int) -> None:
    generator = np.random.default_rng(15)
    alarms = sum(
        bool(points(np.abs(100 + 3 * NOISES[noise](generator, size)) + 1)) for _ in range(SERIES)
    )
    # Three standard errors of a share of 5 % above it.
    assert alarms / SERIES <= 0.05 + 3 * (0.05 * 0.95 / SERIES) ** 0.5


@pytest.mark.parametrize(("runs", "ratio"), [(10, 1.08), (4, 1.2)])
def test_a_change_is_found_with_so_many_runs_on_each_side(runs: int, ratio: float) -> None:
    generator = np.random.default_rng(15)
    places = [
        points(np.repeat([100.0, 100 * ratio], runs) + 3 * generator.normal(size=2 * runs))[:1]
        for _ in range(SERIES)
    ]
    assert sum(map(bool, places)) >= 0.9 * SERIES
    assert np.median([place for found in places for place in found]) == runs


def test_several_changes() -> None:
    levels = np.repeat([100.0, 130.0, 110.0], 10)
    assert points(levels + np.random.default_rng(3).normal(size=30)) == [10, 20]


@pytest.mark.parametrize("places", [[3, 11], [19], [0]])
def test_outliers_are_no_change(places: list[int]) -> None:
    series = 100 + np.random.default_rng(2).normal(size=20)
    series[places] = 5000
    assert points(series) == []
