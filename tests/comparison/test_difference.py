"""The difference of two series of steps and its interval, on series whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scripts import step_noise
from scripts.step_noise import (
    PAIRS,
    every_capture,
    found,
    found_with_needed_steps,
    held,
    most_by_the_mean,
    quiet_half,
    real_pairs,
    recorded,
    run_spread,
    variation,
)
from traceview.comparison.difference import (
    CONFIDENCE,
    REPLICA_RUN_SPREAD,
    Difference,
    RunSpread,
    difference,
    most_chance,
    step_difference,
    student,
)
from traceview.comparison.typical_step import typical_change
from traceview.mean_variance import Float64Array, block_length, variance_of_mean


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [(1, 12.706), (2, 4.303), (5, 2.571), (10, 2.228), (30, 2.042), (10_000, 1.960)],
)
def test_student_agrees_with_printed_tables(degrees: float, expected: float) -> None:
    assert student(CONFIDENCE, degrees) == pytest.approx(expected, abs=6e-4)
    assert student(0.8, 4) == pytest.approx(1.533, abs=6e-4)


def test_two_steps_on_each_side_have_the_interval_of_the_t_test() -> None:
    # Variances of the means: 1 and 4, and a quarter for further neighbours; degrees of Welch and Satterthwaite: 25 ÷ (1 + 16).
    result = difference([[99, 101]], [[118, 122]])
    half = student(CONFIDENCE, 25 / 17) * (1.25 * 5) ** 0.5
    assert (result.before, result.after, result.difference, result.ratio) == (100, 120, 20, 0.2)
    assert (result.low, result.high) == pytest.approx((20 - half, 20 + half))
    assert result.direction == "slower"
    assert not result.is_over_runs
    assert difference([[118, 122]], [[99, 101]]).direction == "faster"


def test_captures_vary_as_wholes() -> None:
    # Steps hardly vary, captures do: relative variance 2·0.01² ÷ 1 on each side, two degrees.
    result = difference([[99, 99.01], [101, 101.01]], [[102, 102.01], [104, 104.01]])
    assert result.is_over_runs
    assert result.direction == "none"
    assert result.high is not None
    assert result.high - 3 == pytest.approx(student(CONFIDENCE, 2) * 2**0.5, rel=0.03)


def test_what_is_known_of_runs_widens_the_interval() -> None:
    before, after = [[100.0, 100.1, 99.9]], [[120.0, 120.1, 119.9]]
    assert difference(before, after).direction == "slower"
    known = difference(before, after, RunSpread(ratio=0.1, degrees=4))
    assert known.direction == "none"
    assert known.high == pytest.approx(20 + student(CONFIDENCE, 4) * (10**2 + 12**2) ** 0.5)


def test_noisy_steps_are_not_hidden_by_runs_that_agree() -> None:
    steps = [80.0, 120.0, 100.0]
    result = difference([steps, steps], [steps, steps])
    assert result.high is not None
    assert result.high > 10


@pytest.mark.parametrize("before", [[], [[]]])
def test_a_side_without_steps_has_no_difference(before: list[list[float]]) -> None:
    result = difference(before, [[1.0, 2.0]])
    assert (result.before, result.difference, result.direction) == (None, None, "unknown")


def test_a_single_step_has_no_interval() -> None:
    result = difference([[100.0]], [[110.0, 112.0]])
    assert (result.difference, result.low, result.direction) == (11, None, "unknown")
    assert difference([[100.0]], [[300.0]], RunSpread(0.05, 8)).direction == "slower"


def test_series_of_zeros_have_no_ratio() -> None:
    result = difference([[0, 0, 0]], [[1, 1, 1]])
    assert (result.ratio, result.low_ratio, result.least_shown_ratio) == (None, None, None)
    assert result.direction == "slower"


def test_the_interval_of_the_ratio_holds_zero_where_that_of_the_difference_does() -> None:
    random = np.random.default_rng(3)
    for _ in range(200):
        before, after = random.gamma(20, 1, 10), random.gamma(20, 1.1, 12)
        result = difference([before], [after])
        assert result.low is not None
        assert result.high is not None
        assert result.low_ratio is not None
        assert result.high_ratio is not None
        assert (result.low > 0) == (result.low_ratio > 0)
        assert (result.high < 0) == (result.high_ratio < 0)


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


def test_of_many_differences_one_in_twenty_is_by_chance() -> None:
    def with_chance(chance: float | None) -> Difference:
        return Difference(1, 2, chance=chance)

    assert most_chance(map(with_chance, (0.01, 0.02, 0.04))) == 0.04
    assert most_chance(map(with_chance, (0.01, 0.2, 0.04))) == 0.01
    assert most_chance(map(with_chance, (0.03, 0.2, 0.4, None))) == -1


def test_the_chance_is_that_of_the_interval() -> None:
    result = difference([[99, 101]], [[103, 105]])
    degrees = 2
    assert result.chance is not None
    assert student(1 - result.chance, degrees) == pytest.approx(4 / 2.5**0.5)
    assert difference([[5, 5]], [[5, 5]]).chance == 1
    assert difference([[5, 5]], [[6, 6]]).chance == 0


def test_neighbours_that_are_alike_count_as_fewer() -> None:
    alternating = np.tile([0.0, 1.0], 50)
    in_turns = np.repeat([0.0, 1.0], 50)
    assert variance_of_mean(in_turns)[0] > 3 * variance_of_mean(alternating)[0]


def test_the_typical_step_ignores_long_ones() -> None:
    steps = np.array([100, 101, 102, 103, 104, 105, 106, 107, 108, 109], dtype=np.float64)
    disturbed = steps * 1.1
    disturbed[[3, 7]] = 900
    result = step_difference([steps], [disturbed])
    assert result.ratio == pytest.approx(1.6, abs=0.01)
    assert result.typical is not None
    assert 0.08 < result.typical.ratio < 0.12
    assert difference([steps], [disturbed]).direction == "none"
    assert result.direction == "slower"
    assert step_difference([disturbed], [steps]).direction == "faster"


def test_the_change_of_the_typical_step_is_exact_where_noise_is_the_same() -> None:
    steps = np.random.default_rng(1).gamma(50, 1, 20)
    change = typical_change(steps, steps * 1.3)
    assert change is not None
    assert change.ratio == pytest.approx(0.3)
    assert change.low_ratio < 0.3 < change.high_ratio
    same = typical_change(steps, steps)
    assert same is not None
    assert (1 + change.low_ratio) / (1 + same.low_ratio) == pytest.approx(1.3)


@pytest.mark.parametrize(("after", "direction"), [(100.0, "none"), (101.0, "slower")])
def test_equal_steps_differ_where_their_length_does(after: float, direction: str) -> None:
    change = typical_change(np.full(12, 100.0), np.full(12, after))
    assert change is not None
    assert change.direction == direction


def test_eight_steps_have_no_typical_one() -> None:
    assert typical_change(np.full(8, 100.0), np.full(8, 200.0)) is None
    assert typical_change(np.full(9, 100.0), np.full(9, 200.0)) is not None
    assert typical_change(np.zeros(9), np.ones(9)) is None


def test_rare_long_steps_are_shown_by_the_mean() -> None:
    steps = np.random.default_rng(2).normal(100, 1, 60)
    checkpoint = steps.copy()
    checkpoint[::4] += 60
    result = step_difference([steps], [checkpoint])
    assert result.typical is not None
    assert result.typical.direction == "none"
    assert result.direction == "slower"


def test_the_typical_step_says_nothing_of_runs() -> None:
    steps = np.random.default_rng(3).normal(100, 1, 10)
    known = step_difference([steps], [steps * 1.2], REPLICA_RUN_SPREAD)
    assert (known.direction, known.typical, known.needed_steps) == ("none", None, None)
    several = step_difference([steps, steps], [steps * 1.2, steps])
    assert (several.typical, several.is_over_runs) == (None, True)


def test_more_steps_or_captures_are_advised_where_8_percent_does_not_show() -> None:
    noisy, quiet = (np.random.default_rng(4).normal(100, sigma, 10) for sigma in (8, 0.5))
    assert step_difference([quiet], [quiet]).needed_steps is None
    result = step_difference([noisy], [noisy])
    assert result.least_shown_ratio is not None
    assert result.needed_steps is not None
    assert (
        result.needed_steps - 5 < 10 * (result.least_shown_ratio / 0.08) ** 2 <= result.needed_steps
    )
    over_runs = step_difference([quiet], [quiet], RunSpread(ratio=0.05, degrees=8))
    count = over_runs.needed_captures
    assert count is not None

    def least(captures: int) -> float:
        degrees = 8 + 2 * (captures - 1)
        return (student(0.95, degrees) + student(0.8, degrees)) * 0.05 * math.sqrt(2 / captures)

    assert least(count) <= 0.08 < least(count - 1)
    assert (
        step_difference([quiet], [quiet], RunSpread(ratio=0.01, degrees=8)).needed_captures is None
    )


@pytest.fixture(scope="module")
def captures() -> step_noise.Captures:
    return recorded(step_noise.REPEATED)


@pytest.fixture(scope="module")
def long() -> list[Float64Array]:
    return every_capture(recorded(step_noise.LONG))


@pytest.fixture(scope="module")
def quiet(long: list[Float64Array]) -> list[Float64Array]:
    return quiet_half(long)


def test_runs_without_a_change_are_rarely_called_changed(
    long: list[Float64Array], quiet: list[Float64Array]
) -> None:
    assert PAIRS == 400
    assert found(long, 0.0) <= 0.05
    assert found(quiet, 0.0) <= 0.05


def test_more_is_found_than_by_a_mean_whose_noise_is_known(
    long: list[Float64Array], quiet: list[Float64Array]
) -> None:
    assert found(long, 0.08) >= most_by_the_mean(long, 0.08) + 0.1
    assert found(quiet, 0.08) >= most_by_the_mean(quiet, 0.08)


def test_a_change_of_8_percent_shows_in_ten_quiet_steps_and_in_twenty_others(
    long: list[Float64Array], quiet: list[Float64Array]
) -> None:
    quietest = [steps for steps in long if variation(steps) < 0.05]
    assert found(quietest, 0.08) >= 0.9
    assert found(quiet, 0.08, step_count=20) >= 0.9


def test_a_change_as_large_as_is_said_to_show_does(long: list[Float64Array]) -> None:
    assert found(long, None) >= 0.9


def test_as_many_steps_as_are_said_to_be_needed_show_it(long: list[Float64Array]) -> None:
    share, _, _ = found_with_needed_steps(long)
    assert share >= 0.9


@pytest.mark.parametrize("ratio", [0.0, 0.08, 0.3])
def test_intervals_hold_the_true_change(
    long: list[Float64Array], quiet: list[Float64Array], ratio: float
) -> None:
    for chosen in (long, quiet):
        for share in held(chosen, ratio):
            assert 0.93 <= share <= 0.97


@pytest.mark.parametrize("of_each", [1, 2])
def test_real_pairs_are_rarely_called_changed(captures: step_noise.Captures, of_each: int) -> None:
    results = real_pairs(captures, of_each=of_each)
    called = sum(result.direction != "none" for result in results)
    assert len(results) >= 40
    assert called <= 0.05 * len(results)


def test_the_spread_of_runs_is_what_the_recorded_runs_show(captures: step_noise.Captures) -> None:
    spread = run_spread(captures)
    assert spread.ratio == pytest.approx(REPLICA_RUN_SPREAD.ratio, abs=5e-4)
    assert spread.degrees == pytest.approx(REPLICA_RUN_SPREAD.degrees, abs=5e-3)
