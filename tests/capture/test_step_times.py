from __future__ import annotations

import pytest

from traceview.capture.step_times import StepTimes

MS = 1_000_000


def times(unprofiled: list[float], profiled: list[float]) -> StepTimes:
    return StepTimes.of([t * MS for t in unprofiled], [t * MS for t in profiled])


def test_an_overhead_beyond_the_spread() -> None:
    found = times([9, 10, 10, 11, 10], [12, 13, 13, 13, 14])
    assert found.unprofiled_quartiles_ns == (10 * MS, 10 * MS)
    assert found.overhead_ratio == pytest.approx(0.3)
    assert found.spread_ratio == 0
    assert str(found) == (
        "overhead: +30% per step (10.00 ms [10.00 to 10.00] without the profiler, median and quartiles of 5; "
        "13.00 ms [13.00 to 13.00] with it, of 5)"
    )


@pytest.mark.parametrize(
    ("profiled", "spread"),
    [
        ([10, 10, 11, 60, 60], "±270%"),  # longer, and within what they vary
        ([4, 4, 4], "±20%"),  # shorter
    ],
)
def test_an_overhead_that_may_be_chance(profiled: list[float], spread: str) -> None:
    found = times([8, 8, 10, 12, 12], profiled)
    assert str(found).startswith(
        f"overhead: not measurable: steps vary by {spread} (10.00 ms [8.00"
    )


@pytest.mark.parametrize(
    ("unprofiled", "profiled"), [([], []), ([1, 2], [1, 2, 3]), ([1, 2, 3], [1])]
)
def test_too_few_steps(unprofiled: list[float], profiled: list[float]) -> None:
    found = times(unprofiled, profiled)
    assert found.spread_ratio is None
    assert found.as_json()["ratio"] is None
    assert str(found) == "note: too few steps to compare their time with and without the profiler"
    assert found.as_json()["unprofiled_count"] == len(unprofiled)
