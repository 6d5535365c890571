"""The causes of idle time follow their rules in random traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from scripts.cuda_trace import NCCL_NAME, US, CudaTrace, Line
from tests.gap_causes import causes_of_gaps, causes_of_steps
from tests.oracle import run_answer
from traceview.analysis.facts.run import Run
from traceview.analysis.facts.selection import select
from traceview.analysis.measures.idle_report import longest_steps
from traceview.trace.model import StepBounds
from traceview.trace.reading.load import load
from traceview.trace.state import State

TICK_PS = 10 * US
THREADS = ("python3", "tf_gpu_private_0", "worker", "tf_data_iterator", "tf_Compute")
HOST_EVENTS = (
    "IteratorGetNext:IteratorGetNext",
    "IteratorGetNextOp::DoCompute",
    "FunctionRun",
    "ExecutorState::Process",
    "EagerExecute",
    "cuStreamSynchronize",
    "cuMemcpyHtoDAsync_v2",
    "XlaCompilation::Compile",
    "SaveV2:SaveV2",
    "model/lookup:PyFunc",
    "step",
    "TFE_Py_FastPathExecute_C",
    "PjitFunction(step)",
    "$train.py:7 step",
    "$array.py:7 block_until_ready",
    "InstantiatedCapturedFunction::Run",
    "Iterator::Map",
    "augment",
)
DEVICE_EVENTS = ("kernel", "collective", "H2D", "D2H", "constant")
Event = tuple[str, int, int, int, int]
Recording = tuple[list[Event], list[tuple[Event, tuple[int, int, int] | None]], int]

threads = st.integers(0, len(THREADS) - 1)
lengths = st.sampled_from((0, 1, 2, 3, 5, 8, 14))
host_events = st.tuples(
    st.sampled_from(HOST_EVENTS), threads, st.integers(0, 40), lengths, st.integers(0, 2)
)
"""Name, thread, first tick, ticks, and a number that joins it to others."""

device_events = st.tuples(
    st.tuples(
        st.sampled_from(DEVICE_EVENTS),
        st.integers(0, 1),
        st.integers(4, 44),
        lengths,
        st.integers(20, 21),
    ),
    st.none() | st.tuples(threads, st.integers(0, 40), st.integers(0, 3)),
)
"""Kind, device, first tick, ticks, stream; and its launch: thread, first tick, ticks."""

recordings = st.tuples(
    st.lists(host_events, max_size=14),
    st.lists(device_events, min_size=1, max_size=8),
    st.integers(0, 3),
)
"""The last number is that of markers."""


LAUNCH_INSIDE_A_CALL_THAT_OUTLASTS_THE_LAST_MARKER: Recording = (
    [("IteratorGetNext:IteratorGetNext", 0, 16, 14, 0)],
    [(("kernel", 0, 4, 0, 20), None), (("kernel", 0, 25, 0, 20), (0, 16, 0))],
    2,
)


def has_nested_runs(recording: Recording) -> bool:
    """Whether a function runs inside another one, and nothing else marks steps.

    Such runs may be steps within a step or parts of one; there is no definition to check.
    """
    runs = [event[1:4] for event in recording[0] if event[0] == "FunctionRun"]
    return recording[2] == 0 and any(
        thread == other and start <= begin < start + length
        for (thread, start, length), (other, begin, _) in permutations(runs, 2)
    )


def stats_of(name: str, number: int) -> dict[Any, Any]:
    match name:
        case "FunctionRun":
            return {"id": number, "_pt": 2, "_p": number}
        case "ExecutorState::Process":
            # Runs what the event of its number made ready, and hands on under the next number.
            return {"id": number, "_ct": 2, "_c": number, "_pt": 2, "_p": number + 1}
        case "IteratorGetNextOp::DoCompute" | "InstantiatedCapturedFunction::Run":
            return {"id": number}
        case "step":
            call = "traced-nonXla" if number == 0 else "notTraced-nonXla"
            return {"tf_function_call": call, "tracing_count": 1}
    return {}


def built(
    recording: Recording,
    *,
    shift_ps: int,
    threads: tuple[str, ...],
    order: Callable[[list[Any]], list[Any]],
) -> CudaTrace:
    """The trace of a recording; `order` is that of the events of each line in the file, and of the lines."""
    trace = CudaTrace()
    lines: list[Line] = [trace.thread(name, 100 + n) for n, name in enumerate(threads)]
    for number in range(recording[2]):
        begin = (3 + 12 * number) * TICK_PS + shift_ps
        stats: dict[Any, Any] = {"_r": 1, "step_num": number}
        lines[0].add("train", begin, begin + 9 * TICK_PS, stats)
    for name, thread, start, length, number in recording[0]:
        begin = start * TICK_PS + shift_ps
        lines[thread].add(name, begin, begin + length * TICK_PS, stats_of(name, number))
    for (kind, device, start, length, stream), launch in recording[1]:
        begin, end = start * TICK_PS + shift_ps, (start + length) * TICK_PS + shift_ps
        if kind in ("kernel", "collective"):
            name = NCCL_NAME if kind == "collective" else "kernel"
            number = trace.kernel(device, begin, end, name=name, stream=stream)
        elif kind == "constant":
            op: dict[Any, Any] = {"tf_op": "MakeTensorFromProto"}
            number = trace.copy(device, "H2D", begin, end, size=8, stream=stream, stats=op)
        else:
            number = trace.copy(device, kind, begin, end, size=8, stream=stream)
        if launch is not None:
            thread, at, ticks = launch
            to_device = "cuMemcpyHtoDAsync_v2"
            copies = {"H2D": to_device, "constant": to_device, "D2H": "cuMemcpyDtoHAsync_v2"}
            call = copies.get(kind, "cuLaunchKernel")
            trace.launch(
                call,
                at * TICK_PS + shift_ps,
                number,
                duration_ps=ticks * TICK_PS,
                thread=lines[thread],
            )
    for plane in (trace.host_plane, *trace.gpus.values()):
        plane.lines = dict(order(list(plane.lines.items())))
        for line in plane.lines.values():
            line.events = order(line.events)
    trace.gpus = dict(order(list(trace.gpus.items())))
    return trace


@contextmanager
def written(trace: CudaTrace) -> Iterator[tuple[Path, Path]]:
    with TemporaryDirectory() as folder:
        yield Path(folder), trace.write(Path(folder))


@settings(max_examples=60, derandomize=True)
@given(
    recordings,
    st.sampled_from((0, 10**15 + 1)),
    st.sampled_from((THREADS, ("python", "Thread 7", "\x1b[31m", "tf_data_private", "x/y"))),
    st.randoms(use_true_random=False),
)
@example(LAUNCH_INSIDE_A_CALL_THAT_OUTLASTS_THE_LAST_MARKER, 0, THREADS, Random(1))
def test_every_gap_is_as_the_oracle_says(
    recording: Recording, shift_ps: int, threads: tuple[str, ...], chance: Random
) -> None:
    """Whenever it was, whatever threads are called, and in whatever order the file has the events."""

    def shuffled(items: list[Any]) -> list[Any]:
        return chance.sample(items, len(items))

    assume(not has_nested_runs(recording))
    # Which of two equal events of a thread lies inside the other follows from their order alone.
    starts = [(thread, start, length) for _, thread, start, length, _ in recording[0]]
    order = shuffled if len(set(starts)) == len(starts) else list
    trace_of = built(recording, shift_ps=shift_ps, threads=threads, order=order)
    with written(trace_of) as (folder, file):
        trace = load(folder)
        selection = select(trace)
        idle = Run(trace, selection).idle
        answer = run_answer([file])["idle"]
    assert [trace.device_key(device) for device in idle.gaps] == [row["device"] for row in answer]
    for gaps, expected in zip(idle.gaps.values(), answer, strict=True):
        steps = selection.steps[trace.device_list[gaps.device].host]
        numbers = [*(step.number for step in steps), None]
        start, end = gaps.start_ps, gaps.end_ps
        causes = causes_of_gaps(gaps)
        step_of = longest_steps(gaps, StepBounds.of(steps)).tolist()
        assert [
            (int(start[i]), int(end[i] - start[i]), by_cause(causes[:, i]), numbers[step_of[i]])
            for i in range(gaps.count)
        ] == [
            (gap["start_ps"], gap["duration_ps"], gap["causes"], gap["step"])
            for gap in sorted(expected["gaps"], key=lambda gap: int(gap["start_ps"]))
        ]
        of_steps = causes_of_steps(gaps, steps)
        assert [(step.number, by_cause(of_steps[:, i])) for i, step in enumerate(steps)] == [
            (step["number"], step["causes"]) for step in expected["steps"]
        ]


def by_cause(picoseconds: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, int]:
    return {State(i).key: int(ps) for i, ps in enumerate(picoseconds) if ps}
