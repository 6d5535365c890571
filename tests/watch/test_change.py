"""A step time is compared with those of the runs before; noise is no change."""

from __future__ import annotations

import numpy as np
import pytest

from traceview.comparison.noise import DEVICE_SPREAD, REPLICA_SPREAD, Level, step_level
from traceview.watch.follow import StepChange, change_since


def levels(*lengths: float, noise: float = 0.001) -> list[Level | None]:
    """Runs of ten steps that vary by a share of this length."""
    random = np.random.default_rng(4)
    return [step_level(length * (1 + noise * random.normal(size=10))) for length in lengths]


def since(*lengths: float, noise: float = 1e-5) -> StepChange:
    """How the last of these runs differs from the others."""
    *before, run = levels(*lengths, noise=noise)
    change = change_since(run, before, DEVICE_SPREAD)
    assert change is not None
    return change


def test_without_a_run_before_there_is_no_change() -> None:
    (run,) = levels(10)
    for before in ([], [None]):
        assert change_since(run, before, DEVICE_SPREAD) is None
    assert change_since(None, [run], DEVICE_SPREAD) is None
    assert change_since(step_level([10]), [step_level([10])], DEVICE_SPREAD) is None


@pytest.mark.parametrize(
    ("lengths", "text"),
    [
        ((10, 10, 10, 12), "20.0% slower than the last 3 runs"),
        ((10, 10, 10, 8), "20.0% faster than the last 3 runs"),
        ((10, 10, 10, 10.1), "as the last 3 runs (within 2.0%)"),
        ((10, 10.4), "no verdict yet: it takes 3 runs before"),
        ((10, 13), "30.0% slower than the run before"),
        ((9.2, 9.5, 9.2, 9.5, 9.4), "as the last 4 runs (within "),
        ((9, 10, 11, 12), "no verdict: the last 3 runs differ too much (within "),
        ((10, 10.1, 10.2), "no verdict yet: it takes 3 runs before"),
    ],
)
def test_a_change_in_words(lengths: tuple[float, ...], text: str) -> None:
    assert since(*lengths).text.startswith(text), since(*lengths).text


def test_steps_that_differ_are_noise() -> None:
    assert since(10, 13, noise=0.01).is_beyond_noise
    assert not since(10, 13, noise=0.3).is_beyond_noise


def test_runs_on_shared_cores_differ_without_a_change() -> None:
    before, run = levels(10, 13)
    of_replicas = change_since(run, [before], REPLICA_SPREAD)
    assert of_replicas is not None
    assert not of_replicas.is_beyond_noise
