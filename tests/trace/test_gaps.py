"""Every gap is attributed to the cause that was written into it. Times are microseconds; the gap is 100 to 200."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.cuda_trace import US, CudaTrace
from tests.gap_causes import causes_of_gaps
from traceview.analysis.facts.run import Run
from traceview.analysis.facts.selection import select
from traceview.trace.reading.load import load
from traceview.trace.state import State

Causes = dict[str, float]


class Small:
    """Two kernels on GPU:0, from 0 to 100 and from 200 to 300."""

    def __init__(self, launch: float, *, call: float = 5) -> None:
        self.trace = CudaTrace()
        self.trace.kernel(0, 0, 100 * US)
        number = self.trace.kernel(0, 200 * US, 300 * US)
        self.launch(launch, number, call=call)

    def launch(self, at: float, number: int, *, call: float = 5) -> None:
        self.trace.launch("cuLaunchKernel", _ps(at), number, duration_ps=_ps(call))


def _ps(microseconds: float) -> int:
    return round(microseconds * US)


def causes(small: Small, folder: Path) -> list[Causes]:
    """The causes of each gap, in microseconds."""
    small.trace.write(folder)
    trace = load(folder)
    gaps = Run(trace, select(trace)).idle.gaps[0]
    parts = causes_of_gaps(gaps)
    return [
        {cause.key: parts[cause, i] / US for cause in State if parts[cause, i]}
        for i in range(gaps.count)
    ]


@pytest.mark.parametrize(
    ("launch", "expected"),
    [
        (180, {"input": 80, "dependency": 20}),
        (180.000001, {"input": 80.000001, "latency": 19.999999}),
    ],
)
def test_less_than_20_us_in_the_queue_is_latency(
    launch: float, expected: Causes, tmp_path: Path
) -> None:
    small = Small(launch)
    small.trace.host_event("IteratorGetNext:IteratorGetNext", _ps(100), _ps(200))
    assert causes(small, tmp_path) == [expected]


@pytest.mark.parametrize(
    ("call", "expected"),
    [(120, {"launch": 70, "dependency": 30}), (19.9, {"dependency": 100})],
)
def test_a_launch_call_that_blocks_is_the_hosts_time(
    call: float, expected: Causes, tmp_path: Path
) -> None:
    assert causes(Small(50, call=call), tmp_path) == [expected]


def test_holes_of_100_us_between_launches_are_launching(tmp_path: Path) -> None:
    for hole, expected in ((100, {"launch": 100}), (101, {"unknown": 90, "latency": 10})):
        small = Small(190)
        small.launch(190 - hole - 5, small.trace.kernel(0, 90 * US, 91 * US))
        folder = tmp_path / str(hole)
        assert causes(small, folder) == [expected]
