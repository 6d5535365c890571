"""A bound is never above the step time after its fix."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import traceview
from scripts.cuda_trace import NCCL_NAME, CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.balance import T4_STATS
from scripts.scenarios.model import marked_steps, ms, new_trace
from traceview.analysis.balance.result import Balance
from traceview.analysis.balance.what_if import OTHER_CLOCKS
from traceview.report.model import Report

COUNT = 3

Phase = tuple[list[tuple[int, int]], int]
"""What each device does, milliseconds of copy and then of compute, and the all-reduce that ends the phase."""


def balance_of(folder: Path, trace: CudaTrace) -> Balance:
    trace.write(folder)
    found = traceview.analyze(folder).results.balance
    assert found is not None
    return found


def bounds(found: Balance) -> dict[str, int]:
    return {one.name: one.step_bound_ps for one in found.what_if}


def steps_of(*work: tuple[int, str, float, float], names: tuple[str, ...] = ()) -> CudaTrace:
    """Three steps of 50 ms; each kernel or copy: device, kind, start and end in the step."""
    trace = new_trace()
    if names:
        trace.gpu(0)
        trace.gpu(1, stats=T4_STATS)
    for step in marked_steps(trace, count=COUNT, marker_ms=50):
        for ordinal, kind, start, end in work:
            if kind in ("H2D", "D2H"):
                step.copy(ordinal, kind, start, end, size=1_000_000)
            elif kind == "nccl":
                step.kernel(ordinal, start, end, name=NCCL_NAME, stream=22)
            else:
                step.kernel(ordinal, start, end, name=names[ordinal] if names else kind)
    return trace


def test_waiting_for_a_device_is_not_saved_with_the_communication(tmp_path: Path) -> None:
    """GPU 0 is in the all-reduce for 24 ms, 20 of them until GPU 1 comes; GPU 1 computes for 40."""
    trace = steps_of((0, "k", 2, 22), (1, "k", 2, 42), (0, "nccl", 22, 46), (1, "nccl", 42, 46))
    assert bounds(balance_of(tmp_path, trace))["no_exposed_collectives"] == ms(46)


def test_what_one_device_after_the_other_does_adds_up(tmp_path: Path) -> None:
    """While GPU 0 copies GPU 1 computes, and the other way round: the step loses both copies."""
    trace = steps_of((0, "H2D", 2, 12), (1, "k", 2, 12), (1, "D2H", 12, 22), (0, "k", 12, 22))
    bound = bounds(balance_of(tmp_path, trace))["no_exposed_copies"]
    # Less than a microsecond more for the calls that launch the copies.
    assert bound == pytest.approx(ms(30), abs=ms(0.001))


def test_no_bound_is_below_what_a_device_computes(tmp_path: Path) -> None:
    """GPU 0 copies for 30 ms while GPU 1 computes for 45."""
    trace = steps_of((0, "H2D", 0, 30), (0, "k", 30, 40), (1, "k", 0, 45))
    assert bounds(balance_of(tmp_path, trace))["no_exposed_copies"] == ms(45)


def test_devices_that_take_turns_could_share_the_work(tmp_path: Path) -> None:
    """Both compute 20 ms, one after the other: together they need 20 for what takes 40."""
    trace = steps_of((0, "k", 2, 22), (1, "k", 22, 42))
    assert bounds(balance_of(tmp_path, trace))["balanced_devices"] == ms(30)


def test_a_slower_device_gets_less(tmp_path: Path) -> None:
    """A T4 takes 40 ms for what a V100 does in 20: shared by speed both need two thirds of 40, not the mean, 30."""
    SCENARIOS["mixed_models"]().write(tmp_path)
    found = traceview.analyze(tmp_path).results.balance
    assert found is not None
    bound = bounds(found)["balanced_devices"]
    assert bound == pytest.approx(ms(50 - 40 + 80 / 3), abs=2)


def test_of_unlike_devices_with_unlike_work_nothing_is_said(tmp_path: Path) -> None:
    trace = steps_of((0, "a", 2, 22), (1, "b", 2, 42), names=("one", "another"))
    found = balance_of(tmp_path, trace)
    assert "balanced_devices" not in bounds(found)
    assert found.what_if_missing["balanced_devices"] == (
        "the devices differ (Tesla T4 and Tesla V100-SXM2-16GB) and share too few kernels to compare their speeds"
    )


@pytest.mark.parametrize(("shared_ms", "is_told"), [(10, True), (9.9, False)])
def test_half_of_the_compute_in_shared_kernels_tells_the_speed(
    shared_ms: float, is_told: bool, tmp_path: Path
) -> None:
    trace = new_trace()
    trace.gpu(0)
    trace.gpu(1, stats=T4_STATS)
    for step in marked_steps(trace, count=COUNT, marker_ms=50):
        for ordinal, own in enumerate(("one", "another")):
            step.kernel(ordinal, 2, 2 + shared_ms, name="both")
            step.kernel(ordinal, 2 + shared_ms, 22, name=own)
    assert ("balanced_devices" in bounds(balance_of(tmp_path, trace))) == is_told


def test_clocks_that_may_differ_show_no_balance(tmp_path: Path) -> None:
    """Both compute 40 ms at once, and the clock of one is 7 ms ahead."""
    SCENARIOS["clocks_without_collectives"]().write(tmp_path)
    found = traceview.analyze(tmp_path).results.balance
    assert found is not None
    assert found.what_if_missing["balanced_devices"] == OTHER_CLOCKS


def largest_compute(report: Report) -> int:
    """The median over the used steps of each host of its longest compute on a device."""
    steps = report.results.steps
    assert steps is not None
    found = sorted(max(one.compute_ps for one in row.devices) for row in steps.steps if row.used)
    return (found[(len(found) - 1) // 2] + found[len(found) // 2]) // 2


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_bounds_lie_between_the_largest_compute_and_the_step(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = traceview.analyze(tmp_path)
    found, steps = report.results.balance, report.results.steps
    if found is None or steps is None or steps.median_ps is None:
        assert found is None or found.what_if == ()
        return
    assert {"no_input_wait", "no_exposed_collectives", "no_exposed_copies"} <= set(bounds(found))
    for one in found.what_if:
        assert 0 <= one.step_bound_ps <= steps.median_ps
        assert one.saved_ps == steps.median_ps - one.step_bound_ps
        assert one.reasoning
        if one.name.startswith("no_"):
            assert one.step_bound_ps >= min(largest_compute(report), steps.median_ps)


# Against a schedule that is worked out anew


def lasts(phases: list[Phase]) -> float:
    """How long a step takes: in each phase all wait for the last one, then reduce."""
    return sum(max(copy + compute for copy, compute in work) + reduce for work, reduce in phases)


def recorded(phases: list[Phase]) -> CudaTrace:
    trace = new_trace(length_ms=1000)
    period = lasts(phases)
    for step in marked_steps(trace, count=COUNT, period_ms=period, marker_ms=period):
        begin = 0.0
        for work, reduce in phases:
            end = begin + lasts([(work, reduce)])
            for ordinal, (copy, compute) in enumerate(work):
                times = [begin, begin + copy, begin + copy + compute]
                if copy:
                    step.copy(ordinal, "H2D", times[0], times[1], size=1_000_000)
                if compute:
                    step.kernel(ordinal, times[1], times[2])
                if reduce:
                    step.kernel(ordinal, times[2], end, name=NCCL_NAME, stream=22)
            begin = end
    return trace


def put_right(phases: list[Phase]) -> dict[str, float]:
    """How long the step would take with one thing put right and all else as it was."""
    mean = [sum(compute for _, compute in work) / len(work) for work, _ in phases]
    return {
        "no_input_wait": lasts(phases),
        "no_exposed_collectives": lasts([(work, 0) for work, _ in phases]),
        "no_exposed_copies": lasts(
            [([(0, compute) for _, compute in work], reduce) for work, reduce in phases]
        ),
        "balanced_devices": sum(
            max(copy for copy, _ in work) + share + reduce
            for (work, reduce), share in zip(phases, mean, strict=True)
        ),
        "concurrent_devices": max(
            sum(work[device][1] for work, _ in phases) for device in range(len(phases[0][0]))
        ),
    }


_work = st.tuples(st.integers(0, 6), st.integers(0, 6))
_phases: Any = st.integers(2, 3).flatmap(
    lambda devices: st.lists(
        st.tuples(st.lists(_work, min_size=devices, max_size=devices), st.integers(0, 4)),
        min_size=1,
        max_size=3,
    )
)


@settings(max_examples=60, deadline=None)
# One kernel name stands for work of several sizes, and devices run it unequally often.
@example([([(0, 0), (0, 1)], 0), ([(0, 2), (0, 2)], 0)])
@given(_phases)
def test_no_bound_is_above_the_step_that_was_put_right(phases: list[Phase]) -> None:
    devices = range(len(phases[0][0]))
    if not all(any(work[device][1] for work, _ in phases) for device in devices):
        return
    with TemporaryDirectory() as folder:
        found = balance_of(Path(folder), recorded(phases))
    better = put_right(phases)
    for name, bound in bounds(found).items():
        if name != "concurrent_devices":
            # Half a picosecond for each rounded moment of a phase.
            assert bound <= ms(better[name]) + 10 * len(phases), name


def test_the_schedule_is_recorded_as_meant(tmp_path: Path) -> None:
    phases: list[Phase] = [([(1, 2), (0, 4)], 1), ([(0, 3), (0, 1)], 2)]
    recorded(phases).write(tmp_path)
    steps = traceview.load(tmp_path).steps_by_host[0].steps
    assert lasts(phases) == 10
    assert [b.start_ps - a.start_ps for a, b in pairwise(steps)] == [ms(10)] * (COUNT - 1)
