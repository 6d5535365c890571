"""The interval of a difference: on series whose answer is known, on made runs, and on recorded ones."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest

from scripts import step_noise
from scripts.step_noise import NOISES, Noise
from tests.reports import known
from traceview.base.stats import Float64Array, block_length, student
from traceview.comparison.noise import (
    CONFIDENCE,
    DEVICE_SPREAD,
    REPLICA_SPREAD,
    Difference,
    Level,
    RunSpread,
    difference,
    mean_level,
    most_chance,
    part_difference,
    step_change,
    step_levels,
)

SPREAD = RunSpread(ratio=0.1, degrees=4)
EXACT = RunSpread(ratio=0.0, degrees=4)


def levels(*values: float) -> list[Level]:
    return [Level(value) for value in values]


def of_steps(
    before: list[Float64Array], after: list[Float64Array], spread: RunSpread = EXACT
) -> Difference:
    return known(step_change(map(step_levels, before), map(step_levels, after), spread))


@pytest.mark.parametrize(
    ("before", "after", "earlier", "half", "basis"),
    [
        # Student: of both sides the squares are 2 and 8, with four degrees.
        ((99, 100, 101), (118, 120, 122), (), student(0.95, 4) * (5 / 3) ** 0.5, "captures"),
        # One capture against three, whose variance is 1.
        ((100,), (119, 120, 121), (), student(0.95, 2) * (4 / 3) ** 0.5, "captures"),
        ((100,), (120,), ((5, 6, 7),), student(0.95, 2) * 2**0.5, "earlier"),
        # Two groups of earlier runs have a degree less than one.
        ((100,), (120,), ((5, 7), (8, 10)), student(0.95, 2) * 2, "earlier"),
    ],
)
def test_runs_of_single_steps_that_differ_are_the_noise(
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
    assert known(both.chance) < 0.05
    part = part_difference([Level(100.0, 0.0, 9)], [Level(120.0, 0.0, 9)], SPREAD)
    assert part.high == pytest.approx(20 + student(CONFIDENCE, 4) * 12 * 2**0.5)


REPLICAS = RunSpread(ratio=2.0, degrees=1.5, is_of_replicas=True)


@pytest.mark.parametrize("captures", [2, 3])
def test_what_captures_show_is_added_to_what_is_assumed(captures: int) -> None:
    before, after = (
        [Level(value + distance, 4.0, 10) for distance in (-1.5, 1.5, 0)[:captures]]
        for value in (100, 120)
    )
    degrees = 1.5 + 2 * captures - 2
    of_runs = student(CONFIDENCE, round(degrees, 2)) ** 2 * (1.5 * 4 + 9) / degrees * 2 / captures
    # Of three captures the squares have the noise of their steps.
    of_steps = student(CONFIDENCE, 40) ** 2 * 4 if captures == 2 else 0
    result = difference(before, after, REPLICAS)
    assert result.high == pytest.approx(20 + math.sqrt(of_runs + of_steps), rel=1e-3)
    assert result.basis == "captures"


@pytest.mark.parametrize(("distance", "is_alone"), [(0.1, True), (9, False)])
def test_of_devices_the_assumption_or_the_captures_alone_show_a_change(
    distance: float, is_alone: bool
) -> None:
    chosen = RunSpread(ratio=2.0, degrees=4)
    before, after = (
        [Level(value - distance, 0.0, 10), Level(value + distance, 0.0, 10)] for value in (100, 120)
    )
    squares = 4 * distance**2
    alone = student(0.975, 2) * math.sqrt(squares / 2)
    both = student(0.975, 6) * math.sqrt((4 * 4 + squares) / 6)
    result = difference(before, after, chosen)
    assert (alone < both) == is_alone
    assert result.high == pytest.approx(20 + min(alone, both), rel=1e-3)
    assert (known(result.chance) <= 0.05) == (result.direction != "none")


@pytest.mark.parametrize("spread", [REPLICA_SPREAD, DEVICE_SPREAD])
def test_one_more_capture_that_agrees_never_lengthens_the_interval(spread: RunSpread) -> None:
    random = np.random.default_rng(7)
    for captures in product(range(1, 6), repeat=2):
        for between, of_steps in product((0.003, 0.03, 0.3), (0.0, 0.003, 0.05)):
            sides = [
                [Level(value, of_steps**2, 8) for value in random.normal(0, between, count)]
                for count in captures
            ]
            before = difference(sides[0], sides[1], spread)
            for place in range(2):
                mean = float(np.mean([level.value for level in sides[place]]))
                more = list(sides)
                more[place] = [*sides[place], Level(mean, of_steps**2, 8)]
                after = difference(more[0], more[1], spread)
                assert known(after.high) - after.value <= known(before.high) - before.value


def test_the_typical_step_is_the_mean_without_the_slowest_third() -> None:
    steps = np.exp([1.0, 3.0, 2.0, 3.5, 2.5, 9.0])
    levels = known(step_levels(steps))
    level, mean = levels.typical, mean_level(steps)
    assert levels.mean.value == pytest.approx(math.log(steps.mean()))
    assert levels.mean.variance == pytest.approx((mean.variance or 0.0) / steps.mean() ** 2)
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
        assert step_levels(nothing) is None
        assert step_change([step_levels(nothing)], [step_levels(two)], EXACT) is None


@pytest.mark.parametrize(("after", "direction"), [(100.0, "none"), (101.0, "slower")])
def test_equal_steps_differ_where_their_length_does(after: float, direction: str) -> None:
    for count in (1, 3):
        before, changed = ([np.full(12, length)] * count for length in (100.0, after))
        assert of_steps(before, changed).direction == direction


def test_steps_of_any_length_have_finite_intervals() -> None:
    change = of_steps([np.array([1.0, 2**62])], [np.array([2**62, 1.0, 5.0])])
    assert change.direction == "none"
    for ratio in (change.low, change.high, change.least_shown):
        assert -1 <= known(ratio) <= 1e6


def test_a_few_long_steps_are_no_change() -> None:
    steps = np.arange(100.0, 110.0)[[3, 1, 7, 9, 0, 5, 2, 8, 6, 4]]
    disturbed = steps.copy()
    disturbed[[3, 7]] = 900
    for before, after in ((steps, disturbed), (disturbed, steps)):
        change = of_steps([before], [after])
        assert (change.direction, change.measure) == ("none", "typical")
    slower = of_steps([steps], [disturbed * 1.2])
    assert (slower.direction, slower.measure) == ("slower", "typical")
    assert math.isclose(slower.value, 0.2, abs_tol=0.03)
    # Such runs show a change, if none of 10%.
    shown = of_steps([steps], [disturbed * 1.3], DEVICE_SPREAD)
    assert (shown.direction, shown.measure) == ("slower", "typical")
    # Captures that differ more than the typical step does show neither.
    unsure = of_steps([steps], [disturbed * 1.2], REPLICA_SPREAD)
    assert (unsure.direction, unsure.measure) == ("none", "mean")


def test_long_steps_in_each_of_several_captures_are_a_change_of_the_mean() -> None:
    """Each third step is four times as long, so the typical one is as before."""
    steps = np.array([100.0, 101, 102, 103, 104, 105] * 5)
    longer = np.where(np.arange(30) % 3, steps, 4 * steps)
    change = of_steps([steps * 1.001, steps, steps], [longer * 1.001, longer, longer])
    assert (change.direction, change.measure) == ("slower", "mean")
    assert change.value == pytest.approx(longer.mean() / steps.mean() - 1)
    assert 0.5 < known(change.low) < change.value < known(change.high)
    before, after = ([step_levels(of)] * 3 for of in (steps, longer))
    moved = known(step_change(before, after, EXACT, ratio=1.5))
    # Its own interval is one of logarithms.
    assert (1 + known(moved.low)) * (1 + known(moved.high)) == pytest.approx(2.5**2)


def test_what_is_stated_of_the_mean_step_is_in_its_interval() -> None:
    """`ratio` is the change of means over captures, of which the levels are logarithms."""
    before, after = ([step_levels(steps)] for steps in ([100.0, 101, 102], [100.0, 101, 900]))
    for ratio in (0.004, 1.5):
        change = known(step_change(before, after, SPREAD, ratio=ratio))
        assert change.value == pytest.approx(ratio)
        assert change.measure == "mean"
        assert known(change.low) < ratio < known(change.high)


def test_of_many_differences_one_in_twenty_is_by_chance() -> None:
    for chances, most in (
        ((0.01, 0.02, 0.04), 0.04),
        ((0.01, 0.2, 0.04), 0.01),
        ((0.03, 0.2, 0.4, None), -1),
    ):
        assert most_chance(Difference(1, chance=chance) for chance in chances) == most


# How often it is wrong: scripts/step_noise.py has all rows, docs/runs.md the table


@pytest.mark.parametrize("captures", [1, 2, 3, 5])
@pytest.mark.parametrize(
    ("noise", "between"), [(NOISES[0], 0.0), (NOISES[3], 0.03), (NOISES[5], 0.05)]
)
def test_made_runs_are_rarely_called_changed(noise: Noise, between: float, captures: int) -> None:
    row = step_noise.made_row(noise, between, captures)
    assert max(row.called, row.failed) <= 0.05
    assert row.held >= 0.93
    if captures >= 3 and not between:
        assert min(row.shown, row.caught) >= 0.8


@pytest.mark.parametrize(("name", "before", "after"), step_noise.REAL)
def test_recorded_runs_are_rarely_called_changed(name: str, before: int, after: int) -> None:
    row = step_noise.real_row(name, before, after)
    assert row.pairs >= 29
    assert max(row.called, row.failed) <= 0.05
    assert row.held >= 0.93


def test_more_captures_with_the_recorded_noise_show_more_and_are_as_rarely_called_changed() -> None:
    shown = []
    for captures in step_noise.DRAWN:
        pairs = step_noise.drawn_pairs(captures)
        row = step_noise.row_of(pairs, REPLICA_SPREAD, step_noise.DRAWN_CHANGE)
        assert row.called <= 0.05
        assert row.held >= 0.95
        shown.append(row.shown)
    for fewer, more in pairwise(shown):
        assert more > fewer + 0.05


def test_the_assumption_for_replicas_is_what_recorded_runs_show() -> None:
    tables = [step_noise.recorded(step_noise.RECORDED[name]) for name in ("repeated", "busy")]
    spread = step_noise.run_spread(tables)
    assert spread.ratio == pytest.approx(REPLICA_SPREAD.ratio, abs=5e-4)
    assert spread.degrees == pytest.approx(REPLICA_SPREAD.degrees, abs=5e-3)
