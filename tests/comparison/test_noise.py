"""The interval of a difference: on series whose answer is known, on made runs, and on recorded ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scripts import step_noise
from scripts.step_noise import BETWEEN, NOISES, Noise
from traceview.base.stats import Float64Array, block_length, student
from traceview.comparison.noise import (
    CONFIDENCE,
    REPLICA_SPREAD,
    Difference,
    Level,
    RunSpread,
    difference,
    most_chance,
    part_difference,
    step_change,
    step_level,
)

SPREAD = RunSpread(ratio=0.1, degrees=4)
EXACT = RunSpread(ratio=0.0, degrees=4)


def levels(*values: float) -> list[Level]:
    return [Level(value) for value in values]


def of_steps(
    before: list[Float64Array], after: list[Float64Array], spread: RunSpread = EXACT
) -> Difference:
    change = step_change(map(step_level, before), map(step_level, after), spread)
    assert change is not None
    return change


@pytest.mark.parametrize(
    ("before", "after", "earlier", "half", "basis"),
    [
        # Welch: variances 1/3 and 4/3 of the means, (5/3)² ÷ ((1/9 + 16/9) ÷ 2) degrees.
        ((99, 100, 101), (118, 120, 122), (), student(0.95, 50 / 17) * (5 / 3) ** 0.5, "captures"),
        # Student: one capture against three, whose variance is 1.
        ((100,), (119, 120, 121), (), student(0.95, 2) * (4 / 3) ** 0.5, "captures"),
        ((100,), (120,), ((5, 6, 7),), student(0.95, 2) * 2**0.5, "earlier"),
        # Two groups of earlier runs have a degree less than one.
        ((100,), (120,), ((5, 7), (8, 10)), student(0.95, 2) * 2, "earlier"),
    ],
)
def test_runs_that_differ_are_the_noise(
    before: tuple[float, ...],
    after: tuple[float, ...],
    earlier: tuple[tuple[float, ...], ...],
    half: float,
    basis: str,
) -> None:
    result = difference(
        levels(*before), levels(*after), SPREAD, [levels(*group) for group in earlier]
    )
    assert (result.low, result.value, result.high) == pytest.approx(
        (20 - half, 20, 20 + half), rel=1e-3
    )
    assert result.basis == basis


def test_what_is_assumed_of_runs_adds_to_the_noise_of_steps() -> None:
    before, after = Level(100.0, 4.0, 10), Level(120.0, 5.0, 10)
    of_steps = student(CONFIDENCE, 81 / (16 + 25) * 10) * 3
    of_runs = student(CONFIDENCE, 4) * 2 * 2**0.5
    alone = difference([before], [after], RunSpread(0.0, 4))
    assert alone.high == pytest.approx(20 + of_steps, rel=1e-3)
    assert alone.basis == "assumed"
    both = difference([before], [after], RunSpread(2.0, 4))
    assert both.high == pytest.approx(20 + math.hypot(of_steps, of_runs), rel=1e-3)
    assert both.chance is not None
    assert both.chance < 0.05
    part = part_difference([Level(100.0, 0.0, 9)], [Level(120.0, 0.0, 9)], SPREAD)
    assert part.high == pytest.approx(20 + student(CONFIDENCE, 4) * 12 * 2**0.5)


def test_the_typical_step_is_the_mean_without_the_slowest_third() -> None:
    level = step_level(np.exp([1.0, 3.0, 2.0, 3.5, 2.5, 9.0]))
    assert level is not None
    assert level.value == pytest.approx(8.5 / 4)
    # Yuen: the squares around their mean of the steps cut to 3, over 4 kept ones and the independent ones less one.
    cut = np.array([1, 3, 2, 3, 2.5, 3])
    around = cut - cut.mean()
    independent = max(4 / block_length(around), 2)
    assert level.degrees == pytest.approx(independent - 1)
    assert level.variance == pytest.approx(float(around @ around) / 4 / (independent - 1))


def test_what_shows_no_noise_has_no_interval() -> None:
    one, two = np.array([100.0]), np.array([110.0, 112.0])
    result = of_steps([one], [two])
    assert (result.direction, result.low, result.least_shown) == ("unknown", None, None)
    assert of_steps([one] * 3, [two] * 3).direction == "slower"
    for nothing in ([], [0.0, 1.0]):
        assert step_level(nothing) is None
        assert step_change([step_level(nothing)], [step_level(two)], EXACT) is None


@pytest.mark.parametrize(("after", "direction"), [(100.0, "none"), (101.0, "slower")])
def test_equal_steps_differ_where_their_length_does(after: float, direction: str) -> None:
    for count in (1, 3):
        before, changed = ([np.full(12, length)] * count for length in (100.0, after))
        assert of_steps(before, changed).direction == direction


def test_steps_of_any_length_have_finite_intervals() -> None:
    change = of_steps([np.array([1.0, 2**62])], [np.array([2**62, 1.0, 5.0])])
    assert change.direction == "none"
    for ratio in (change.low, change.high, change.least_shown):
        assert ratio is not None
        assert -1 <= ratio <= 1e6


def test_a_few_long_steps_are_no_change() -> None:
    steps = np.arange(100.0, 110.0)[[3, 1, 7, 9, 0, 5, 2, 8, 6, 4]]
    disturbed = steps.copy()
    disturbed[[3, 7]] = 900
    assert of_steps([steps], [disturbed]).direction == "none"
    slower = of_steps([steps], [disturbed * 1.2])
    assert slower.direction == "slower"
    assert math.isclose(slower.value, 0.2, abs_tol=0.03)


def test_of_many_differences_one_in_twenty_is_by_chance() -> None:
    for chances, most in (
        ((0.01, 0.02, 0.04), 0.04),
        ((0.01, 0.2, 0.04), 0.01),
        ((0.03, 0.2, 0.4, None), -1),
    ):
        assert most_chance(Difference(1, chance=chance) for chance in chances) == most


# How often it is wrong: scripts/step_noise.py has all rows, docs/runs.md the table


@pytest.mark.parametrize("captures", [1, 3])
@pytest.mark.parametrize(
    ("noise", "between"), [(NOISES[0], 0.0), (NOISES[3], 0.03), (NOISES[5], 0.05)]
)
def test_made_runs_are_rarely_called_changed(noise: Noise, between: float, captures: int) -> None:
    row = step_noise.made_row(noise, between, captures)
    assert between in BETWEEN
    assert row.called <= 0.05
    assert row.failed <= 0.05
    assert row.held >= 0.93
    if captures == 3 and not between:
        assert row.shown >= 0.8
        assert row.caught >= 0.8


@pytest.mark.parametrize(("name", "before", "after"), step_noise.REAL)
def test_recorded_runs_are_rarely_called_changed(name: str, before: int, after: int) -> None:
    row = step_noise.real_row(name, before, after)
    assert row.pairs >= 29
    assert max(row.called, row.failed) <= 0.05
    assert row.held >= 0.93


def test_the_assumption_for_replicas_is_what_recorded_runs_show() -> None:
    tables = [step_noise.recorded(step_noise.RECORDED[name]) for name in ("repeated", "busy")]
    spread = step_noise.run_spread(tables)
    assert spread.ratio == pytest.approx(REPLICA_SPREAD.ratio, abs=5e-4)
    assert spread.degrees == pytest.approx(REPLICA_SPREAD.degrees, abs=5e-3)
