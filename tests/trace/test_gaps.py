"""Every gap is attributed to the cause that was written into it. Times are microseconds; the gap is 100 to 200."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from msgspec import Struct
from msgspec.structs import astuple

from scripts.cuda_trace import NCCL_NAME, US, CudaTrace, Line, Stats
from tests.gap_causes import causes_of_gaps, causes_of_steps
from traceview.analysis.facts.idle_time import IdleAttribution, attribute_idle_time
from traceview.analysis.facts.selection import select
from traceview.base.intervals import Int32Array, Int64Array
from traceview.trace.host.cause import Cause
from traceview.trace.host.gaps import Gaps, IdleSpans
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


class CauseSpans(Struct, frozen=True, eq=False):
    """Spans of one cause each, in time order; all arrays `[n]`.

    int64 `start_ps`, `end_ps`; uint8 `cause`; int32 `gap`, the number of the gap.
    """

    start_ps: Int64Array
    end_ps: Int64Array
    cause: npt.NDArray[np.uint8]
    gap: Int32Array


def cause_spans(gaps: Gaps, chosen: Int64Array) -> CauseSpans:
    """The causes of the gaps with the numbers `chosen`, instant by instant; touching spans of one cause are joined."""
    every = gaps.idle_spans
    inside = np.isin(gaps.gap[every.piece], chosen)
    spans = IdleSpans(*(column[inside] for column in astuple(every)))
    gap = gaps.gap[spans.piece]
    # Spans of a gap touch each other.
    opens = np.ones(gap.size, dtype=np.bool_)
    opens[1:] = (spans.cause[1:] != spans.cause[:-1]) | (gap[1:] != gap[:-1])
    first = np.flatnonzero(opens)
    last = np.append(first[1:], gap.size)[: first.size] - 1
    return CauseSpans(spans.start_ps[first], spans.end_ps[last], spans.cause[first], gap[first])


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
    return found, attribute_idle_time(found, select(found, window))


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


@pytest.mark.parametrize("cause", EVENTS)
def test_each_cause_is_shown_by_its_event(cause: str, tmp_path: Path) -> None:
    small = Small(190)
    small.event(EVENTS[cause], 100, 190)
    expected = {cause: 90, "latency": 10} if cause != "launch" else {"launch": 100}
    assert causes(small, tmp_path) == [expected]


def test_between_markers_is_callback(tmp_path: Path) -> None:
    small = Small(190)
    small.marker(0, 0, 120)
    small.marker(1, 170, 310)
    small.event(EVENTS["input"], 130, 140)
    # Also CPU ops between the markers are the callback's.
    small.event(EVENTS["host_ops"], 100, 165)
    first, last = causes(small, tmp_path)
    assert first == {
        "host_ops": 20,
        "between": 40,
        "input": 10,
        "unknown": 20,
        "latency": 10,
    }
    assert last == {"unknown": 10}


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


def test_a_copy_call_that_blocks_is_h2d(tmp_path: Path) -> None:
    small = Small(190)
    small.event("cuMemcpyHtoD_v2", 110, 180)
    assert causes(small, tmp_path) == [{"unknown": 20, "h2d": 70, "latency": 10}]


def test_queued_behind_a_copy_is_h2d(tmp_path: Path) -> None:
    small = Small(60)
    small.trace.copy(0, "H2D", 90 * US, 110 * US, size=8)
    assert causes(small, tmp_path) == [{"h2d": 90}]


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


def test_an_iterator_on_a_data_thread_counts_where_a_call_waits_for_it(tmp_path: Path) -> None:
    for waited, expected in ((7, {"input": 60, "launch": 40}), (8, {"launch": 100})):
        small = Small(190)
        data = small.trace.thread("tf_data_iterator_get_next", 9)
        small.event("FunctionRun", 100, 188, {"id": 7})
        small.event("IteratorGetNextOp::DoCompute", 110, 170, {"id": waited}, thread=data)
        small.event(EVENTS["checkpoint"], 100, 190, thread=data)
        expected = {"input": 60, "launch": 30, "latency": 10} if waited == 7 else expected
        assert causes(small, tmp_path / str(waited)) == [expected]


def test_a_read_that_no_call_shows(tmp_path: Path) -> None:
    """The thread asks for a copy to the host and does nothing until it ends."""
    for ends, expected in ((150, {"sync": 30}), (130, {})):
        small = Small(190)
        number = small.trace.copy(0, "D2H", 120 * US, 150 * US, size=4)
        small.trace.launch("cuMemcpyDtoHAsync_v2", 105 * US, number, duration_ps=US)
        small.event("busy", ends, ends + 1)
        first, _ = causes(small, tmp_path / str(ends))
        # Until its launch at 105 nothing is known, then the copy is queued.
        assert first == {"unknown": 5, "latency": 15}
        other = Small(190)
        number = other.trace.copy(1, "D2H", 120 * US, 150 * US, size=4)
        other.trace.launch("cuMemcpyDtoHAsync_v2", 105 * US, number, duration_ps=US)
        other.event("busy", ends, ends + 1)
        (found,) = causes(other, tmp_path / f"other{ends}")
        assert found.get("sync", 0) == (45 if expected else 0)


# Ends and bounds


def test_a_gap_at_the_end_of_the_window_is_the_hosts(tmp_path: Path) -> None:
    small = Small(50)
    small.marker(0, 0, 400)
    small.event(EVENTS["input"], 320, 380)
    assert causes(small, tmp_path) == [{"dependency": 100}, {"input": 60, "unknown": 40}]


def test_gaps_are_cut_by_steps_and_their_causes_are_not(tmp_path: Path) -> None:
    small = Small(185)
    small.marker(0, 0, 188)
    small.marker(1, 188, 300)
    small.event("EagerExecute", 100, 185)
    trace, found = loaded(small.trace, tmp_path)
    gaps = found.gaps[0]
    assert (gaps.start_ps / US).tolist() == [101, 189]
    assert (gaps.end_ps / US).tolist() == [189, 201]
    assert (gaps.gap.tolist(), gaps.step.tolist()) == ([0, 0], [0, 1])
    # The host was late by launching, in the first step; what was queued in the second counts as that too.
    steps = trace.steps_by_host[0].steps
    assert (causes_of_steps(gaps, steps)[Cause.LAUNCH] / US).tolist() == [88, 12]
    pieces, whole = gaps.idle_spans, cause_spans(gaps, np.arange(1))
    assert pieces.piece.tolist() == [0, 1]
    assert (pieces.start_ps.tolist(), pieces.end_ps.tolist()) == (
        gaps.start_ps.tolist(),
        gaps.end_ps.tolist(),
    )
    assert (whole.start_ps / US).tolist() + (whole.end_ps / US).tolist() == [101, 201]
    assert pieces.cause.tolist() == [*whole.cause.tolist()] * 2 == [Cause.LAUNCH] * 2
    assert len(steps) == 2


def test_steps_that_overlap_each_have_their_idle_time(tmp_path: Path) -> None:
    small = Small(190)
    steps = small.trace.gpu(0).line(0xDEADBEEF, "Steps")
    steps.add("0", 0, 180 * US)
    steps.add("1", 150 * US, 160 * US)
    steps.add("2", 170 * US, 300 * US)
    trace, found = loaded(small.trace, tmp_path)
    causes_of = causes_of_steps(found.gaps[0], trace.steps_by_host[0].steps)
    assert (causes_of.sum(axis=0) / US).tolist() == [80, 10, 30]
    assert found.gaps[0].step.tolist() == [0, 1, 0, 2, 2]


@pytest.mark.parametrize("direction", ["H2D", None])
def test_a_device_without_a_kernel_is_unused(direction: str | None, tmp_path: Path) -> None:
    small = Small(190)
    small.trace.gpu(1)
    small.event(EVENTS["input"], 0, 300)
    if direction:
        small.trace.copy(1, direction, 0, 50 * US, size=8)
    expected = 250 if direction else 300
    assert causes(small, tmp_path, device=1) == [{"no_work": expected}]
    _, found = loaded(small.trace, tmp_path)
    gaps = found.gaps[1]
    spans = cause_spans(gaps, np.arange(gaps.count))
    assert set(spans.cause.tolist()) == {Cause.NO_WORK}


# Other devices and hosts


def test_another_device_in_a_collective(tmp_path: Path) -> None:
    small = Small(110)
    small.event(EVENTS["input"], 100, 110)
    small.trace.kernel(1, 105 * US, 160 * US, name=NCCL_NAME)
    small.trace.kernel(1, 170 * US, 200 * US)
    assert causes(small, tmp_path) == [{"input": 10, "device_wait": 50, "dependency": 40}]


def test_replicas_wait_for_each_other(tmp_path: Path) -> None:
    trace = CudaTrace()
    caller, first, second = (
        trace.thread(name, n) for n, name in enumerate(("python", "a", "b"), 1)
    )
    for number, thread in ((1, first), (2, second)):
        run: Stats = {"id": 5, "_r": 1, "_pt": 2, "_p": number}
        caller.add("FunctionRun", (number - 1) * US, 100 * US, run)
        executes: Stats = {"id": 5, "_ct": 2, "_c": number}
        thread.add("ExecutorState::Process", 2 * US, 100 * US, executes)
    first.add("a:Add", 2 * US, 20 * US)
    first.add("b:Add", 60 * US, 100 * US)
    second.add("replica_1/c:Mul", 10 * US, 50 * US)
    small = Small()
    small.trace = trace
    # What launches on such a host is no launch, and nothing is queued.
    first.add("cuLaunchKernel", 30 * US, 59 * US, {"correlation_id": 5})
    assert causes(small, tmp_path / "0", device=0) == [{"device_wait": 30, "host_ops": 10}]
    assert causes(small, tmp_path / "1", device=1) == [
        {"device_wait": 8},
        {"device_wait": 40, "host_ops": 10},
    ]
