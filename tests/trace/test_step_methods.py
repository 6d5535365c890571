"""Steps are detected where events repeat, and none where nothing does."""

from __future__ import annotations

from pathlib import Path
from random import Random

from scripts.cuda_trace import MS, CudaTrace
from scripts.scenarios.model import ORIGIN_PS, Step, ms, new_trace
from tests.oracle import run_answer
from tests.trace.recordings import loaded
from traceview.api import load
from traceview.trace.model import HostSteps

KERNELS = ("a", "b", "b", "c")


def steps_of(trace: CudaTrace, folder: Path) -> HostSteps:
    """The steps found, which are also those of the oracle."""
    file = trace.write(folder)
    (found,) = load(folder).steps_by_host
    expected = run_answer([file])["steps"]
    assert found.method == expected["method"]
    assert [(step.start_ps, step.duration_ps) for step in found.steps] == [
        (step["start_ps"], step["duration_ps"]) for step in expected["steps"]
    ]
    assert sum(step.excluded is None for step in found.steps) == expected.get("used_count", 0)
    return found


def bounds(found: HostSteps) -> list[tuple[float, float]]:
    """Start and end of each step in milliseconds."""
    return [((s.start_ps - ORIGIN_PS) / MS, (s.end_ps - ORIGIN_PS) / MS) for s in found.steps]


def running(
    names: list[str], ordinal: int = 0, trace: CudaTrace | None = None, first_ms: int = 0
) -> CudaTrace:
    """One kernel of each name, 1 ms every 2 ms, from `first_ms` on."""
    trace = CudaTrace() if trace is None else trace
    for place, name in enumerate(names):
        start = first_ms + 2 * place
        trace.kernel(ordinal, start * MS, (start + 1) * MS, name=name)
    return trace


def test_a_step_is_what_runs_between_two_anchors(tmp_path: Path) -> None:
    found = steps_of(running([*KERNELS * 4]), tmp_path)
    assert (found.method, found.basis) == ("period", "device")
    assert bounds(found) == [(0, 8), (8, 16), (16, 24), (24, 31)]


def test_a_cut_period_at_the_end_is_no_step(tmp_path: Path) -> None:
    found = steps_of(running([*KERNELS * 4, "a", "b"]), tmp_path)
    # The rarest kernel is the anchor now; after its last occurrence two of four kernels are left.
    assert bounds(found) == [(6, 14), (14, 22), (22, 30)]


def test_the_busiest_device_counts(tmp_path: Path) -> None:
    trace = running(["x", "y", "z"])
    assert len(steps_of(running([*KERNELS * 3], 1, trace), tmp_path).steps) == 3


def test_noise_that_repeats_three_times_is_no_step(tmp_path: Path) -> None:
    chance = Random(7)
    names = [f"k{chance.randrange(12)}" for _ in range(120)]
    for place in (10, 50, 90):
        names[place : place + 3] = ["once", "twice", "thrice"]
    assert steps_of(running(names), tmp_path).method == "none"


def test_kernels_that_begin_together_are_of_one_step(tmp_path: Path) -> None:
    trace = CudaTrace()
    for _ in range(3):
        for name in KERNELS:
            trace.kernel(0, 0, MS, name=name)
    assert steps_of(trace, tmp_path).method == "none"


# Several devices


def test_a_step_begins_with_the_first_device_that_begins_it(tmp_path: Path) -> None:
    trace = running(["z", *KERNELS * 4], first_ms=4)
    found = steps_of(running([*KERNELS * 4], 1, trace, first_ms=3), tmp_path)
    # GPU 0 is the busiest, and begins each repetition 3 ms later: at 6 ms and every 8 after that.
    assert bounds(found) == [(3, 11), (11, 19), (19, 27), (27, 37)]


def test_devices_that_run_apart_are_cut_at_the_busiest(tmp_path: Path) -> None:
    trace = running([*KERNELS * 4, "z"])
    found = steps_of(running([*KERNELS * 4], 1, trace, first_ms=9), tmp_path)
    # GPU 1 begins its first repetition when GPU 0 is at its second.
    assert bounds(found) == [(0, 8), (8, 16), (16, 24), (24, 31)]


# Calls of a function


def test_the_last_call_of_a_function_ends_with_the_last_component_of_its_call(
    tmp_path: Path,
) -> None:
    """A call has one `FunctionRun` per device, and any of them may be the last to return."""
    trace = new_trace()
    for index in range(3):
        step = Step(trace, 50 * index)
        step.kernel(0, 2, 4)
        for component, (start, end) in enumerate([(0, 1), (1, 30), (31, 32)]):
            run = {"id": 7 + index, "_r": 1, "_pt": 2, "_p": 100 * index + component}
            step.host("FunctionRun", start, end, run, thread=trace.thread("python", 2))
    (found,) = loaded(tmp_path, trace).steps_by_host
    assert found.method == "function"
    assert found.steps[-1].duration_ps == ms(32)
