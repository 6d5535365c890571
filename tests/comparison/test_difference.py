"""The difference of two sides of captures and its interval, on series whose answer is known and on recorded runs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scripts import step_noise
from scripts.step_noise import (
    called_share,
    every_capture,
    found,
    held,
    quiet_half,
    real_pairs,
    recorded,
    run_spread,
)
from traceview.base.stats import Float64Array, block_length, student, variance_of_mean
from traceview.comparison.difference import (
    CONFIDENCE,
    REPLICA_RUN_SPREAD,
    Difference,
    Level,
    RunSpread,
    StepChange,
    difference,
    level_of,
    mean_level,
    most_chance,
    part_difference,
    step_change,
    step_level,
)


def of_parts(before: list[list[float]], after: list[list[float]]) -> Difference:
    sides = [[level for steps in side if (level := mean_level(steps))] for side in (before, after)]
    return difference(sides[0], sides[1])


def of_steps(
    before: list[Float64Array], after: list[Float64Array], spread: RunSpread | None = None
) -> StepChange:
    change = step_change(map(step_level, before), map(step_level, after), spread)
    assert change is not None
    return change


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [(1, 12.706), (2, 4.303), (5, 2.571), (10, 2.228), (30, 2.042), (10_000, 1.960)],
)
def test_student_agrees_with_printed_tables(degrees: float, expected: float) -> None:
    assert student(CONFIDENCE, degrees) == pytest.approx(expected, abs=6e-4)
    assert student(0.8, 4) == pytest.approx(1.533, abs=6e-4)


def test_two_steps_on_each_side_have_the_interval_of_the_t_test() -> None:
    # Variances of the means: 1 and 4, by the factor of single steps; degrees of Welch and Satterthwaite: 25 ÷ (1 + 16).
    result = of_parts([[99, 101]], [[118, 122]])
    half = student(CONFIDENCE, 25 / 17) * (2.4 * 5) ** 0.5
    assert (result.low, result.value, result.high) == pytest.approx((20 - half, 20, 20 + half))
    assert (result.direction, result.is_over_runs) == ("none", False)
    assert of_parts([[318, 322]], [[99, 101]]).direction == "faster"
    assert result.chance is not None
    assert student(1 - result.chance, 25 / 17) == pytest.approx(20 / (2.4 * 5) ** 0.5)


def test_the_typical_step_is_the_mean_without_the_slowest_third() -> None:
    lengths = np.exp([1.0, 2.0, 3.0, 3.5, 2.5, 9.0])
    level = step_level(lengths)
    assert level is not None
    assert level.value == pytest.approx(8.5 / 4)
    assert level.degrees == 3
    # Yuen: the squares of these around their mean, over 4 · 3.
    kept = np.array([1, 2, 3, 3, 2.5, 3])
    assert level.variance == pytest.approx(2.4 * float(((kept - kept.mean()) ** 2).sum()) / 12)


def test_captures_vary_as_wholes() -> None:
    # Steps hardly vary, captures do: a variance of 2 on each side, two degrees.
    result = of_parts([[99, 99.01], [101, 101.01]], [[102, 102.01], [104, 104.01]])
    assert (result.is_over_runs, result.direction) == (True, "none")
    assert result.high is not None
    assert result.high - 3 == pytest.approx(student(CONFIDENCE, 2) * 2**0.5, rel=0.01)


def test_what_is_known_of_runs_widens_the_interval() -> None:
    before, after = np.array([100.0, 100.1, 99.9]), np.array([120.0, 120.1, 119.9])
    assert of_steps([before], [after]).direction == "slower"
    known = of_steps([before], [after], RunSpread(ratio=0.1, degrees=4))
    assert (known.direction, known.is_over_runs) == ("none", True)
    assert known.high_ratio is not None
    half = student(CONFIDENCE, 4) * 0.1 * 2**0.5
    assert math.log1p(known.high_ratio) == pytest.approx(math.log(1.2) + half, rel=1e-3)
    levels = [Level(100.0, 0.01, 9)], [Level(120.0, 0.01, 9)]
    part = part_difference(*levels, RunSpread(ratio=0.1, degrees=4))
    assert part.high == pytest.approx(20 + student(CONFIDENCE, 4) * 12 * 2**0.5)


def test_noisy_steps_are_not_hidden_by_runs_that_agree() -> None:
    steps = [80.0, 120.0, 100.0]
    result = of_parts([steps, steps], [steps, steps])
    assert result.high is not None
    assert result.high > 10


def test_what_shows_no_noise_has_no_interval() -> None:
    one, two = np.array([100.0]), np.array([110.0, 112.0])
    result = of_steps([one], [two])
    assert (result.direction, result.low_ratio, result.least_shown_ratio) == ("unknown", None, None)
    assert of_steps([one], [3 * one], RunSpread(0.05, 8)).direction == "slower"
    for nothing in ([], [0.0, 1.0]):
        assert step_level(nothing) is None
        assert step_change([step_level(nothing)], [step_level(two)]) is None
    assert level_of(5.0, None, None, 1) == Level(5.0)


@pytest.mark.parametrize(("after", "direction"), [(100.0, "none"), (101.0, "slower")])
def test_equal_steps_differ_where_their_length_does(after: float, direction: str) -> None:
    assert of_steps([np.full(12, 100.0)], [np.full(12, after)]).direction == direction
    assert of_parts([[0, 0, 0]], [[1, 1, 1]]).direction == "slower"


def test_steps_of_any_length_have_finite_intervals() -> None:
    first, second = np.array([1.0, 2**62]), np.array([2**62, 1.0, 5.0])
    change = of_steps([first], [second])
    assert change.direction == "none"
    for ratio in (change.low_ratio, change.high_ratio, change.least_shown_ratio):
        assert ratio is not None
        assert -1 <= ratio <= 1e6


def test_there_and_back_are_shown_alike() -> None:
    random = np.random.default_rng(1)
    steps, other = random.gamma(50, 1, 20), random.gamma(60, 1, 15)
    there, back = of_steps([steps], [other]), of_steps([other], [steps])
    assert there.low_ratio is not None
    assert back.high_ratio is not None
    assert (1 + there.ratio) * (1 + back.ratio) == pytest.approx(1)
    assert (1 + there.low_ratio) * (1 + back.high_ratio) == pytest.approx(1)


def test_a_few_long_steps_are_no_change() -> None:
    steps = np.arange(100.0, 110.0)
    disturbed = steps.copy()
    disturbed[[3, 7]] = 900
    assert of_steps([steps], [disturbed]).direction == "none"
    slower = of_steps([steps], [disturbed * 1.2])
    assert slower.direction == "slower"
    assert slower.low_ratio is not None
    assert slower.high_ratio is not None
    assert slower.low_ratio < 0.2 < slower.high_ratio


@pytest.mark.parametrize(
    ("count", "length"), [(2, 1), (7, 1), (8, 2), (26, 2), (27, 3), (1000, 10)]
)
def test_blocks_grow_with_the_series(count: int, length: int) -> None:
    assert block_length(count) == length


def test_the_variance_is_that_of_infinitely_many_draws() -> None:
    values = np.random.default_rng(1).gamma(5, 1, 27)
    random, length = np.random.default_rng(2), block_length(27)
    starts = random.integers(0, 27, (100_000, 27 // length))
    drawn = values[(starts[:, :, None] + np.arange(length)) % 27].reshape(len(starts), -1)
    variance, degrees = variance_of_mean(values)
    assert variance == pytest.approx(float(drawn.mean(axis=1).var()) * 27 / (27 - length), rel=0.02)
    assert degrees == 12


def test_neighbours_that_are_alike_count_as_fewer() -> None:
    alternating = np.tile([0.0, 1.0], 50)
    in_turns = np.repeat([0.0, 1.0], 50)
    assert variance_of_mean(in_turns)[0] > 3 * variance_of_mean(alternating)[0]


def test_of_many_differences_one_in_twenty_is_by_chance() -> None:
    def with_chance(chance: float | None) -> Difference:
        return Difference(1, chance=chance)

    assert most_chance(map(with_chance, (0.01, 0.02, 0.04))) == 0.04
    assert most_chance(map(with_chance, (0.01, 0.2, 0.04))) == 0.01
    assert most_chance(map(with_chance, (0.03, 0.2, 0.4, None))) == -1


# Recorded runs


@pytest.fixture(scope="module")
def captures() -> step_noise.Captures:
    return recorded(step_noise.REPEATED)


@pytest.fixture(scope="module")
def long() -> list[Float64Array]:
    return every_capture(recorded(step_noise.LONG))


@pytest.mark.parametrize("step_count", [5, 10, 20, 30])
def test_runs_without_a_change_are_rarely_called_changed(
    long: list[Float64Array], step_count: int
) -> None:
    assert found(long, 0.0, step_count) <= 0.05
    assert found(quiet_half(long), 0.0, step_count) <= 0.05


@pytest.mark.parametrize(
    ("ratio", "step_count", "of_all", "of_quiet"),
    [(0.1, 10, 0.65, 0.8), (0.1, 20, 0.8, 0.9), (0.2, 10, 0.8, 0.95), (0.2, 20, 0.9, 0.99)],
)
def test_changes_are_found(
    long: list[Float64Array], ratio: float, step_count: int, of_all: float, of_quiet: float
) -> None:
    assert found(long, ratio, step_count) >= of_all
    assert found(quiet_half(long), ratio, step_count) >= of_quiet


def test_a_change_as_large_as_is_said_to_show_does(long: list[Float64Array]) -> None:
    assert found(long, None) >= 0.88


@pytest.mark.parametrize("ratio", [0.0, 0.3])
def test_intervals_hold_the_true_change(long: list[Float64Array], ratio: float) -> None:
    assert 0.94 <= held(long, ratio) <= 0.97


def test_alike_neighbours_make_no_change() -> None:
    """Steps of which each is half of the one before, and half new."""
    random = np.random.default_rng(5)
    called = 0
    for _ in range(300):
        noise = random.normal(size=(2, 130))
        for place in range(1, 130):
            noise[:, place] += 0.5 * noise[:, place - 1]
        first, second = np.exp(0.05 * noise[:, 30:])
        called += of_steps([first], [second]).direction != "none"
    assert called <= 0.08 * 300


@pytest.mark.parametrize(("of_each", "least_found"), [(1, 0.0), (2, 0.5)])
def test_real_pairs_are_rarely_called_changed(
    captures: step_noise.Captures, of_each: int, least_found: float
) -> None:
    results = real_pairs(captures, of_each=of_each)
    assert len(results) >= 270
    assert called_share(results) <= 0.05
    assert called_share(real_pairs(captures, of_each=of_each, ratio=0.2)) >= least_found


def test_the_spread_of_runs_is_what_the_recorded_runs_show(captures: step_noise.Captures) -> None:
    spread = run_spread(captures)
    assert spread.ratio == pytest.approx(REPLICA_RUN_SPREAD.ratio, abs=5e-4)
    assert spread.degrees == pytest.approx(REPLICA_RUN_SPREAD.degrees, abs=5e-3)
