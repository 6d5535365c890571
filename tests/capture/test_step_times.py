from __future__ import annotations

import pytest

from traceview.capture.window.step_times import StepTimes, TimedStep

MS = 1_000_000


def times(unprofiled: list[float], profiled: list[float]) -> StepTimes:
    return StepTimes.of(*([TimedStep(t * MS) for t in side] for side in (unprofiled, profiled)))


def timed(*steps: tuple[float, float]) -> list[TimedStep]:
    return [TimedStep(ms * MS, input_ms * MS) for ms, input_ms in steps]


def test_an_overhead_beyond_the_spread() -> None:
    step_times = times([9, 10, 10, 11, 10], [12, 13, 13, 13, 14])
    assert step_times.unprofiled.quartiles_ns == (10 * MS, 10 * MS)
    assert step_times.overhead_ratio == pytest.approx(0.3)
    assert step_times.spread_ratio == 0
    assert str(step_times) == (
        "overhead: +30% per step. Median step: 10.00 ms (quartiles 10.00 to 10.00, 5 calls) without the profiler, "
        "13.00 ms (quartiles 13.00 to 13.00, 5 calls) with it"
    )


@pytest.mark.parametrize(
    ("profiled", "words"),
    [
        (
            [10, 10, 11, 60, 60],
            "less than the spread of step times with and without it (mean IQR 270%)",
        ),
        ([4, 4, 4], "not measurable, because steps with the profiler were 60% shorter"),
    ],
)
def test_an_overhead_that_may_be_chance(profiled: list[float], words: str) -> None:
    step_times = times([8, 8, 10, 12, 12], profiled)
    assert str(step_times).startswith(f"overhead: {words}. Median step: 10.00 ms (quartiles 8.00")


@pytest.mark.parametrize(
    ("unprofiled", "profiled"), [([], []), ([1, 2], [1, 2, 3]), ([1, 2, 3], [1])]
)
def test_too_few_steps(unprofiled: list[float], profiled: list[float]) -> None:
    step_times = times(unprofiled, profiled)
    assert step_times.spread_ratio is None
    assert step_times.as_json()["ratio"] is None
    assert str(step_times) == "note: too few steps to measure the overhead of the profiler"
    assert step_times.as_json()["unprofiled"]["count"] == len(unprofiled)


def test_steps_with_input_from_a_full_buffer_are_compared_with_such_steps() -> None:
    """The buffer was filled while the profile started: four recorded steps do not wait, the others do."""
    step_times = StepTimes.of(
        timed(*[(30, 20)] * 9), timed(*[(10, 0)] * 4, *[(33, 20), (33, 22), (33, 21)])
    )
    assert (step_times.unprofiled.ns, step_times.unprofiled.count) == (30 * MS, 9)
    assert (step_times.profiled.ns, step_times.profiled.count) == (33 * MS, 3)
    assert step_times.overhead_ratio == pytest.approx(0.1)


def test_without_steps_of_one_kind_there_is_no_overhead() -> None:
    """The first steps took what was ready when the first one had been traced; the recorded ones wait."""
    step_times = StepTimes.of(timed(*[(10, 0.9)] * 9), timed(*[(30, 3)] * 5))
    assert not step_times.is_comparable
    assert step_times.as_json()["ratio"] is None
    assert str(step_times).startswith(
        "overhead: not measurable, steps waited for input only before the profile or only in it. Median step: 10.00"
    )
    is_ready = StepTimes.of(timed(*[(10, 0.9)] * 9), timed(*[(30, 2.9)] * 5))
    assert is_ready.overhead_ratio == pytest.approx(2)
