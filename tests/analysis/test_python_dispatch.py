"""Python of the framework is dispatch; the user's own is not, nor is what no sample stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.scenarios.model import marked_steps, ms, new_trace
from tests.python_sidecars import PROFILE_START_NS, Line, Sample, python_group
from tests.sidecars import write_sidecar

THREADS: list[dict[str, Any]] = [{"ident": 140_000, "name": "MainThread", "native_id": 1}]
MILLISECOND_NS = 1_000_000
CALL: Line = ("train.py", "train", 9, True)
WORK: Line = ("train.py", "augmented", 4, True)
TENSORFLOW: Line = (
    "tensorflow/python/distribute/distribute_utils.py",
    "value_container",
    248,
    False,
)
ENUM: Line = ("enum.py", "__hash__", 1230, False)
NUMPY: Line = ("numpy/_core/fromnumeric.py", "sort", 1092, False)


def state_of(folder: Path, *stack: Line, first_rounds: int | None = None) -> str:
    """The state of the first 20 ms of each step, in which Python ran with this stack; then a graph is called for 5 ms.

    `first_rounds`: samples end after so many milliseconds.
    """
    trace = new_trace(length_ms=300)
    samples: list[Sample] = []
    for step in marked_steps(trace, period_ms=50, marker_ms=50):
        step.host("FunctionRun", 20, 25)
        step.kernel(0, 25, 50, launch_ms=24.9)
        begin_ns = PROFILE_START_NS + round(step.start_ms * MILLISECOND_NS)
        for at in range(50):
            lines = stack if at <= 20 else (CALL,) if at <= 25 else ()
            if lines:
                samples.append((begin_ns + at * MILLISECOND_NS, 0, lines))
    path = trace.write(folder)
    group = python_group(samples[:first_rounds], THREADS)
    write_sidecar(path, {"python": group})
    steps = traceview.analyze(folder).results.steps
    assert steps is not None
    states: dict[str, int] = {}
    for row in steps.steps:
        for state, ps in row.devices[0].states.items():
            states[state] = states.get(state, 0) + ps
    found = {
        state: ps
        for state, ps in states.items()
        if state in ("python", "launch", "between_calls") and ps > len(steps.steps) * ms(10)
    }
    (state,) = found
    return state


@pytest.mark.parametrize(
    ("stack", "state"),
    [
        ((TENSORFLOW, WORK), "launch"),
        # What the framework calls.
        ((ENUM, TENSORFLOW, WORK), "launch"),
        ((NUMPY, WORK), "python"),
        ((TENSORFLOW, NUMPY, WORK), "python"),
        ((WORK,), "python"),
        # The line at which it is while a graph runs.
        ((CALL,), "launch"),
        ((NUMPY, CALL), "python"),
    ],
)
def test_the_user_s_line_and_what_it_calls_decide(
    stack: tuple[Line, ...], state: str, tmp_path: Path
) -> None:
    assert state_of(tmp_path, *stack) == state


def test_what_no_sample_stands_for_is_between_calls(tmp_path: Path) -> None:
    assert state_of(tmp_path, WORK, first_rounds=1) == "between_calls"
    found = {row.code: row for row in traceview.analyze(tmp_path).findings}
    assert found["between-calls"].action.startswith("Capture more steps: Python is sampled")


def states_beside(folder: Path, busy_ms: float) -> dict[str, int]:
    """How long each step of 50 ms is idle in Python and for launches, in milliseconds.

    Its device works until `busy_ms`, the script until 20 ms, then the framework hands on work for 5 ms.
    """
    trace = new_trace(length_ms=300)
    samples: list[Sample] = []
    cpu_us: list[int] = []
    used_us = 0
    for step in marked_steps(trace, period_ms=50, marker_ms=50):
        step.host("FunctionRun", 24, 25)
        step.kernel(0, 25, 50 + busy_ms, launch_ms=24.9)
        begin_ns = PROFILE_START_NS + round(step.start_ms * MILLISECOND_NS)
        for at in range(50):
            lines = (WORK,) if at < 20 else (TENSORFLOW, CALL)
            samples.append((begin_ns + at * MILLISECOND_NS, 0, lines))
            used_us += 1000
            cpu_us.append(used_us)
    path = trace.write(folder)
    write_sidecar(path, {"python": python_group(samples, THREADS, cpu_us)})
    steps = traceview.analyze(folder).results.steps
    assert steps is not None
    states = steps.steps[1].devices[0].states
    return {name: round(states.get(name, 0) / ms(1)) for name in ("python", "launch")}


@pytest.mark.parametrize(
    ("busy_ms", "python_ms", "launch_ms"),
    [(0.5, 20, 4), (3, 20, 2), (15, 10, 0)],
)
def test_dispatch_that_comes_late_because_of_python_is_python(
    busy_ms: float, python_ms: int, launch_ms: int, tmp_path: Path
) -> None:
    """As long as the script kept the thread while the device was at work: without it the launch would have been hidden."""
    assert states_beside(tmp_path, busy_ms) == {"python": python_ms, "launch": launch_ms}


@pytest.mark.parametrize(
    ("in_time", "state"), [((WORK,), "python"), ((TENSORFLOW, WORK), "launch")]
)
def test_a_late_round_meets_the_thread_where_it_gives_the_lock_back(
    in_time: tuple[Line, ...], state: str, tmp_path: Path
) -> None:
    """Of 20 ms four rounds come in time, and one after 15 ms, in a call of the framework: what kept the lock is what they saw."""
    trace = new_trace(length_ms=300)
    samples: list[Sample] = []
    late_us: list[int] = []
    for step in marked_steps(trace, period_ms=50, marker_ms=50):
        step.host("FunctionRun", 20, 25)
        step.kernel(0, 25, 50, launch_ms=24.9)
        begin_ns = PROFILE_START_NS + round(step.start_ms * MILLISECOND_NS)
        for at in (0, 1, 2, 3, 19, 20, 30, 40):
            samples.append(
                (begin_ns + at * MILLISECOND_NS, 0, in_time if at < 19 else (TENSORFLOW,))
            )
            late_us.append(15_000 if at == 19 else 0)
    cpu_us = [(at_ns - PROFILE_START_NS) // 1000 for at_ns, _, _ in samples]
    path = trace.write(tmp_path)
    write_sidecar(path, {"python": python_group(samples, THREADS, cpu_us, late_us=late_us)})
    steps = traceview.analyze(tmp_path).results.steps
    assert steps is not None
    states = steps.steps[1].devices[0].states
    assert max(("python", "launch"), key=lambda name: states.get(name, 0)) == state


@pytest.mark.parametrize(("line", "is_python"), [(CALL, False), (WORK, True)])
def test_a_line_that_calls_the_framework_rests_in_it(
    line: Line, is_python: bool, tmp_path: Path
) -> None:
    """It waits for a device in native code; another line may sleep."""
    trace = new_trace(length_ms=300)
    samples: list[Sample] = []
    for step in marked_steps(trace, period_ms=50, marker_ms=50):
        step.host("FunctionRun", 24.2, 24.8)
        step.kernel(0, 25, 50, launch_ms=24.9)
        begin_ns = PROFILE_START_NS + round(step.start_ms * MILLISECOND_NS)
        samples += [
            (begin_ns + at * MILLISECOND_NS, 0, (line,) if at < 24 else (TENSORFLOW, CALL))
            for at in range(50)
        ]
    path = trace.write(tmp_path)
    write_sidecar(path, {"python": python_group(samples, THREADS, [0] * len(samples))})
    steps = traceview.analyze(tmp_path).results.steps
    assert steps is not None
    states = steps.steps[1].devices[0].states
    assert ("python" in states) is is_python


@pytest.mark.parametrize(
    ("module", "converts"), [("jax/_src/dtypes.py", True), ("jax/_src/pjit.py", False)]
)
def test_a_gap_that_is_cut_by_collections_has_the_line_of_most_of_it(
    module: str, converts: bool, tmp_path: Path
) -> None:
    """Rounds that come late find the thread where it collects garbage, and of the parts between one has a sample."""
    trace = new_trace(length_ms=300)
    samples: list[Sample] = []
    collected: list[tuple[int, int, int]] = []
    for step in marked_steps(trace, period_ms=50, marker_ms=50):
        step.host("PjitFunction(step)", 40, 41)
        step.host("dot.1", 41, 50, {"device_ordinal": 0}, thread=trace.thread("device", 70))
        begin_ns = PROFILE_START_NS + round(step.start_ms * MILLISECOND_NS)
        for at in (4, 9, 19, 29, 39):
            lines = ((module, "dtype", 1047, False), WORK)
            samples.append((begin_ns + at * MILLISECOND_NS, 0, lines))
            if at > 4:
                collected.append((begin_ns + at * MILLISECOND_NS - 500_000, 1_000_000, 2))
    path = trace.write(tmp_path)
    write_sidecar(path, {"python": python_group(samples, THREADS, collections=collected)})
    found = {row.code: row for row in traceview.analyze(tmp_path).findings}
    assert "in augmented, train.py:4" in found["host-bound"].title
    assert ("np.asarray" in found["host-bound"].action) is converts
