from __future__ import annotations

from itertools import pairwise

import pytest

from traceview.capture.window.step_window import RecordedCall, StepTimes

MS = 1_000_000


def calls(*steps: tuple[float, float]) -> list[RecordedCall]:
    """Calls whose steps last so many milliseconds, of which they wait so many for input, and one more."""
    begun = [1.0]
    for ms, _ in steps:
        begun.append(begun[-1] + ms)
    rows = zip(pairwise(begun), (wait for _, wait in steps), strict=True)
    made = [RecordedCall(0, 1, "f", int(a * MS), int(w * MS), int(b * MS)) for (a, b), w in rows]
    return [*made, RecordedCall(0, 1, "f", int(begun[-1] * MS), 0, int(begun[-1] * MS))]


def times(unprofiled: list[float], profiled: list[float], wait: float = 0) -> StepTimes:
    """Those of steps that all wait for their input, with the profiler three times as long."""
    before = calls(*((ms + wait, wait) for ms in unprofiled))
    *before, first = before
    after = calls(*((ms + 3 * wait, 3 * wait) for ms in profiled))
    # The first recorded call ends the last one before.
    after = [RecordedCall(0, 1, "f", first.begun_ns, 0, 0, is_traced=True), *after]
    return StepTimes.of(before, after)


@pytest.mark.parametrize("wait", [0, 10])
def test_an_overhead_beyond_the_spread_is_that_of_all_but_the_wait_for_input(wait: float) -> None:
    step_times = times([9, 10, 10, 11, 10], [12, 13, 13, 13, 14], wait)
    assert step_times.ratios == pytest.approx((3 / (10 + wait), 0))
    assert str(step_times) == (
        f"overhead: {3 / (10 + wait):+.0%} per step. Median step without its wait for input: 10.00 ms (quartiles 10.00 to "
        "10.00, 5 calls) without the profiler, 13.00 ms (quartiles 13.00 to 13.00, 5 calls) with it"
    )


def test_a_call_whose_beginning_was_not_seen_says_no_time() -> None:
    before = calls(*[(10, 0)] * 9)
    before[4].begun_ns = 0
    assert StepTimes.of(before, []).unprofiled == [10 * MS] * 7
    assert StepTimes.of(before, []).step_ns == 10 * MS


def test_an_overhead_that_may_be_chance() -> None:
    words = "less than the spread of step times with and without it (mean IQR 270%)"
    chance = times([8, 8, 10, 12, 12], [10, 10, 11, 60, 60])
    assert str(chance).startswith(f"overhead: {words}. Median step")


@pytest.mark.parametrize(
    ("unprofiled", "profiled"), [([], []), ([1, 2], [1, 2, 3]), ([1, 2, 3], [1])]
)
def test_too_few_steps(unprofiled: list[float], profiled: list[float]) -> None:
    step_times = times(unprofiled, profiled)
    assert step_times.as_json()["ratio"] is None
    assert str(step_times) == "note: too few steps to measure the overhead of the profiler"
    assert step_times.as_json()["unprofiled_count"] == len(unprofiled)
