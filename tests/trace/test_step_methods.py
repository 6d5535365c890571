"""Steps are detected where events repeat, and none where nothing does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

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


def noise() -> list[str]:
    """Kernels by chance, among which three occur together three times."""
    chance = Random(7)
    names = [f"k{chance.randrange(12)}" for _ in range(120)]
    for place in (10, 50, 90):
        names[place : place + 3] = ["once", "twice", "thrice"]
    return names


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        pytest.param(
            [(KERNELS * 4, 0)], [(0, 8), (8, 16), (16, 24), (24, 31)], id="from anchor to anchor"
        ),
        pytest.param(
            # The rarest kernel is the anchor now; after its last occurrence two of four kernels are left.
            [((*KERNELS * 4, "a", "b"), 0)],
            [(6, 14), (14, 22), (22, 30)],
            id="a cut period at the end is no step",
        ),
        pytest.param(
            [("xyz", 0), (KERNELS * 3, 0)],
            [(0, 8), (8, 16), (16, 23)],
            id="the busiest device counts",
        ),
        pytest.param([(noise(), 0)], [], id="what repeats three times in noise is no step"),
        pytest.param(
            # GPU 0 is the busiest, and begins each repetition 3 ms later: at 6 ms and every 8 after that.
            [(("z", *KERNELS * 4), 4), (KERNELS * 4, 3)],
            [(3, 11), (11, 19), (19, 27), (27, 37)],
            id="it begins with the first device that begins it",
        ),
        pytest.param(
            # GPU 1 begins its first repetition when GPU 0 is at its second.
            [((*KERNELS * 4, "z"), 0), (KERNELS * 4, 9)],
            [(0, 8), (8, 16), (16, 24), (24, 31)],
            id="devices that run apart are cut at the busiest",
        ),
    ],
)
def test_a_step_is_what_runs_between_two_anchors(
    devices: list[tuple[Sequence[str], int]], expected: list[tuple[int, int]], tmp_path: Path
) -> None:
    """Of each device a kernel of each name, 1 ms every 2 ms, from some millisecond on."""
    trace = CudaTrace()
    for ordinal, (names, first_ms) in enumerate(devices):
        for place, name in enumerate(names):
            start = first_ms + 2 * place
            trace.kernel(ordinal, start * MS, (start + 1) * MS, name=name)
    found = steps_of(trace, tmp_path)
    assert found.method == ("period" if expected else "none")
    assert [
        ((step.start_ps - ORIGIN_PS) / MS, (step.end_ps - ORIGIN_PS) / MS) for step in found.steps
    ] == expected


def test_kernels_that_begin_together_are_of_one_step(tmp_path: Path) -> None:
    trace = CudaTrace()
    for _ in range(3):
        for name in KERNELS:
            trace.kernel(0, 0, MS, name=name)
    assert steps_of(trace, tmp_path).method == "none"


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
