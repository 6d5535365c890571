"""A step time is compared with those of the runs before; noise is no change."""

from __future__ import annotations

import pytest
from msgspec import Struct

from traceview.watch.change import step_change

MS = 10**9


class Run(Struct, frozen=True):
    step_ps: int | None
    step_iqr_ps: int | None = 0
    step_count: int = 5


def run(ms: float, *, iqr_ms: float = 0, count: int = 5) -> Run:
    return Run(round(ms * MS), round(iqr_ms * MS), count)


def runs(*milliseconds: float, iqr_ms: float = 0, count: int = 5) -> list[Run]:
    return [run(ms, iqr_ms=iqr_ms, count=count) for ms in milliseconds]


@pytest.mark.parametrize("before", [[], [Run(None)], [Run(0)]])
def test_without_a_run_before_there_is_no_change(before: list[Run]) -> None:
    assert step_change(Run(10 * MS), before) is None
    assert step_change(Run(None), runs(10)) is None


def test_a_change_in_words() -> None:
    for step, before, text in (
        (12, (10, 10, 10), "20.0% slower than the last 3 runs"),
        (8, (10, 10, 10), "20.0% faster than the last 3 runs"),
        (10.1, (10, 10, 10), "as the last 3 runs (within 2.0%)"),
        (10.4, (10,), "as the run before (within 5.0%)"),
        (11, (10,), "10.0% slower than the run before"),
    ):
        change = step_change(run(step), runs(*before))
        assert change is not None
        assert change.text == text


@pytest.mark.parametrize(("step_ms", "is_beyond"), [(10.19, False), (10.21, True), (9.79, True)])
def test_the_least_change_of_several_runs(step_ms: float, is_beyond: bool) -> None:
    change = step_change(run(step_ms), runs(10, 10, 10))
    assert change is not None
    assert change.is_beyond_noise is is_beyond


def test_runs_that_differ_are_noise() -> None:
    """Medians of 9, 10 and 11 ms: their median absolute deviation is 1 ms, so 2 × 1.4826 ms of 10 say nothing."""
    change = step_change(run(12.9), runs(9, 10, 11))
    assert change is not None
    assert change.noise_ratio == pytest.approx(2 * 1.4826 / 10)
    assert not change.is_beyond_noise
    assert (step_change(run(13), runs(9, 10, 11)) or change).is_beyond_noise


def test_one_odd_run_before_changes_nothing() -> None:
    change = step_change(run(10), runs(10, 10, 10, 10, 50))
    assert change is not None
    assert (change.ratio, change.noise_ratio) == (0, 0.02)


def test_steps_that_differ_are_noise() -> None:
    """Steps with an interquartile range of 2 ms: the median of 4 has an error of 0.929 ms, the others' of the same."""
    change = step_change(run(11, iqr_ms=2, count=4), runs(10, 10, 10, iqr_ms=2, count=4))
    assert change is not None
    assert change.noise_ratio == pytest.approx(2 * 0.929 * 2**0.5 / 10)
    assert not change.is_beyond_noise
    of_many = step_change(run(11, iqr_ms=2, count=400), runs(10, 10, 10, iqr_ms=2, count=400))
    assert of_many is not None
    assert of_many.is_beyond_noise
