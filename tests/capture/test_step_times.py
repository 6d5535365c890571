from __future__ import annotations

import pytest

from traceview.capture.step_times import StepTimes

MS = 1_000_000


def times(unprofiled: list[float], profiled: list[float]) -> StepTimes:
    return StepTimes.of([t * MS for t in unprofiled], [t * MS for t in profiled])


def test_an_overhead_beyond_the_spread() -> None:
    step_times = times([9, 10, 10, 11, 10], [12, 13, 13, 13, 14])
    assert step_times.unprofiled_quartiles_ns == (10 * MS, 10 * MS)
    assert step_times.overhead_ratio == pytest.approx(0.3)
    assert step_times.spread_ratio == 0
    assert str(step_times) == (
        "overhead: +30% per step. Median step: 10.00 ms (quartiles 10.00 to 10.00, 5 calls) without the profiler, "
        "13.00 ms (quartiles 13.00 to 13.00, 5 calls) with it"
    )


@pytest.mark.parametrize(
    ("profiled", "spread"),
    [
        ([10, 10, 11, 60, 60], "±270%"),  # longer, and within what they vary
        ([4, 4, 4], "±20%"),  # shorter
    ],
)
def test_an_overhead_that_may_be_chance(profiled: list[float], spread: str) -> None:
    step_times = times([8, 8, 10, 12, 12], profiled)
    assert str(step_times).startswith(
        f"overhead: not measurable, step times vary too much ({spread}). Median step: 10.00 ms (quartiles 8.00"
    )


@pytest.mark.parametrize(
    ("unprofiled", "profiled"), [([], []), ([1, 2], [1, 2, 3]), ([1, 2, 3], [1])]
)
def test_too_few_steps(unprofiled: list[float], profiled: list[float]) -> None:
    step_times = times(unprofiled, profiled)
    assert step_times.spread_ratio is None
    assert step_times.as_json()["ratio"] is None
    assert str(step_times) == "note: too few steps to measure the overhead of the profiler"
    assert step_times.as_json()["unprofiled_count"] == len(unprofiled)
