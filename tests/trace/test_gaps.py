"""Every gap is attributed to the cause that was written into it. Times are microseconds; the gap is 100 to 200."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.cuda_trace import US, CudaTrace, Line, Stats
from tests.gap_causes import causes_of_gaps
from traceview.analysis.facts.run import IdleAttribution, Run
from traceview.analysis.facts.selection import select
from traceview.trace.host.cause import Cause
from traceview.trace.model import Trace
from traceview.trace.reading.load import load
from traceview.trace.windows import WindowKind

Causes = dict[str, float]
EVENTS = {
    "input": "IteratorGetNext:IteratorGetNext",
    "h2d": "cuMemHostAlloc",
    "compile": "Autotuning",
    "sync": "cuStreamSynchronize",
    "checkpoint": "SaveV2:SaveV2",
    "launch": "EagerExecute",
    "host_ops": "model/PyFunc:PyFunc",
}


class Small:
    """Two kernels on GPU:0, from 0 to 100 and from 200 to 300."""

    def __init__(
        self,
        launch: float | None = None,
        *,
        call: float = 5,
        launch_thread: Line | None = None,
        host: str = "host0",
    ) -> None:
        self.trace = CudaTrace(host)
        self.trace.kernel(0, 0, 100 * US)
        number = self.trace.kernel(0, 200 * US, 300 * US)
        if launch is not None:
            self.launch(launch, number, call=call, thread=launch_thread)

    def launch(
        self, at: float, number: int, *, call: float = 5, thread: Line | None = None
    ) -> None:
        self.trace.launch("cuLaunchKernel", _ps(at), number, duration_ps=_ps(call), thread=thread)

    def event(
        self,
        name: str,
        start: float,
        end: float,
        stats: Stats | None = None,
        *,
        thread: Line | None = None,
    ) -> None:
        self.trace.host_event(name, _ps(start), _ps(end), stats, thread=thread)

    def marker(self, number: int, start: float, end: float) -> None:
        self.trace.marker(number, _ps(start), _ps(end))


def _ps(microseconds: float) -> int:
    return round(microseconds * US)


def loaded(
    trace: CudaTrace, folder: Path, window: WindowKind = "auto"
) -> tuple[Trace, IdleAttribution]:
    trace.write(folder)
    found = load(folder)
    return found, Run(found, select(found, window)).idle


def causes(
    small: Small, folder: Path, device: int = 0, window: WindowKind = "auto"
) -> list[Causes]:
    """The causes of each gap, in microseconds."""
    _, found = loaded(small.trace, folder, window)
    starts, ends = found.gaps[device].spans
    parts = causes_of_gaps(found.gaps[device])
    assert parts.sum(axis=0).tolist() == (ends - starts).tolist()
    return [
        {cause.key: parts[cause, i] / US for cause in Cause if parts[cause, i]}
        for i in range(starts.size)
    ]


# Launches


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
    small.event(EVENTS["input"], 100, 200)
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


# Threads


def chained() -> Small:
    """The caller runs a graph at 130; worker 1 goes on at 140, worker 2 at 150, and launches at 185."""
    small = Small()
    first, second = (small.trace.thread("worker", n) for n in (2, 3))
    small.launch(185, 2, thread=second)
    small.event(EVENTS["input"], 100, 130)
    small.event(EVENTS["checkpoint"], 100, 120, thread=second)
    # Between the graph calls only the timeline of worker 2 shows it.
    small.event(EVENTS["checkpoint"], 140, 144, thread=second)
    small.event("FunctionRun", 130, 140, {"_pt": 2, "_p": 1})
    small.event(
        "ExecutorState::Process", 140, 150, {"_ct": 2, "_c": 1, "_pt": 3, "_p": 2}, thread=first
    )
    small.event("ExecutorState::Process", 150, 190, {"_ct": 3, "_c": 2}, thread=second)
    # A later call, which made nothing ready for worker 2.
    small.event("FunctionRun", 145, 148)
    return small


def test_a_chain_over_two_hand_overs_leads_to_the_caller(tmp_path: Path) -> None:
    (found,) = causes(chained(), tmp_path)
    assert found == {"input": 30, "checkpoint": 4, "launch": 66}


# Ends and bounds


def test_a_gap_at_the_end_of_the_window_is_the_hosts(tmp_path: Path) -> None:
    small = Small(50)
    small.marker(0, 0, 400)
    small.event(EVENTS["input"], 320, 380)
    assert causes(small, tmp_path) == [{"dependency": 100}, {"input": 60, "unknown": 40}]


# Other devices and hosts
