"""A step time is compared with those of the runs before; noise is no change."""

from __future__ import annotations

import numpy as np
import pytest

from traceview.comparison.noise import REPLICA_SPREAD, Level, step_level
from traceview.watch.facts import StepChange, change_since


def levels(*lengths: float, noise: float = 0.001) -> list[Level | None]:
    """Runs of ten steps that vary by a share of this length."""
    random = np.random.default_rng(4)
    return [step_level(length * (1 + noise * random.normal(size=10))) for length in lengths]


def since(*lengths: float, noise: float = 0.001) -> StepChange:
    """How the last of these runs differs from the others."""
    *before, run = levels(*lengths, noise=noise)
    change = change_since(run, before)
    assert change is not None
    return change


def test_without_a_run_before_there_is_no_change() -> None:
    (run,) = levels(10)
    for before in ([], [None]):
        assert change_since(run, before) is None
    assert change_since(None, [run]) is None
    assert change_since(step_level([10]), [step_level([10])]) is None


@pytest.mark.parametrize(
    ("lengths", "text"),
    [
        ((10, 10, 10, 12), "20.0% slower than the last 3 runs"),
        ((10, 10, 10, 8), "20.0% faster than the last 3 runs"),
        ((10, 10, 10, 10.1), "as the last 3 runs (within 2.0%)"),
        ((10, 10.4), "as the run before (within 5.0%)"),
        ((10, 11), "10.0% slower than the run before"),
        ((9, 9.5, 9, 9.5, 9.4), "as the last 4 runs (within "),
        ((9, 10, 11, 12), "too noisy to compare with the last 3 runs"),
    ],
)
def test_a_change_in_words(lengths: tuple[float, ...], text: str) -> None:
    assert since(*lengths, noise=1e-5).text.startswith(text)


def test_steps_that_differ_are_noise() -> None:
    assert since(10, 11, noise=0.01).is_beyond_noise
    assert not since(10, 11, noise=0.2).is_beyond_noise


def test_runs_on_shared_cores_differ_without_a_change() -> None:
    before, run = levels(10, 12)
    assert (change_since(run, [before]) or since(1, 1)).is_beyond_noise
    of_replicas = change_since(run, [before], REPLICA_SPREAD)
    assert of_replicas is not None
    assert not of_replicas.is_beyond_noise


def test_two_steps_say_nothing() -> None:
    change = change_since(step_level([1, 2**62]), [step_level([2**62, 1])])
    assert change is not None
    assert change.text == "too noisy to compare with the run before"
