"""The critical path is, span by span, what a walk from instant to instant over the raw planes gives."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.cuda_trace import NCCL_NAME, US, CudaTrace, Line, Stats
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import new_trace
from tests.oracle import run_answer
from traceview.analysis.base import Skipped
from traceview.analysis.context import Context
from traceview.analysis.path.result import walked_steps
from traceview.analysis.selection import select
from traceview.trace.cause import PATH_KEYS
from traceview.trace.load import load

TICK_PS = 10 * US
STEP_TICKS = 60
THREADS = ("python3", "tf_gpu_private_0")
HOST_EVENTS = (
    "IteratorGetNext:IteratorGetNext",
    "FunctionRun",
    "cuStreamSynchronize",
    "SaveV2:SaveV2",
    "model/lookup:PyFunc",
    "step",
)
FIXTURES = sorted(path.parent.name for path in Path("fixtures").glob("*/plugins"))
SHARED = ["bert-8xV100", "jax-8xMI300X", "jax-gemm-1of8"]
UNREAD = ("dropped_events", "duplicate_files")
"""Runs whose steps the raw planes do not show: a rule of ours leaves some out, or a file is there twice."""

Span = tuple[str, str, int, int]
Rows = list[tuple[str, int | None, list[Span]]]


def paths(folder: Path) -> Rows:
    """Host, number and path of each step; spans of one device and cause that touch are joined."""
    trace = load(folder)
    walked = walked_steps(Context(trace, select(trace)))
    if isinstance(walked, Skipped):
        return []
    rows: Rows = [
        (trace.hosts[host].name, number, [])
        for host, number in zip(walked.host, walked.number, strict=True)
    ]
    parts = walked.parts
    for part in range(parts.step.size):
        _, _, spans = rows[int(parts.step[part])]
        device = trace.device_key(int(parts.device[part]))
        cause, start = PATH_KEYS[int(walked.key[part])], int(parts.start_ps[part])
        if spans and spans[-1][:2] == (device, cause):
            device, cause, start, end = spans.pop()
            assert end == int(parts.start_ps[part])
        spans.append((device, cause, start, int(parts.end_ps[part])))
    return rows


def expected(folder: Path) -> Rows:
    answer = run_answer(sorted(folder.glob("plugins/profile/*/*.xplane.pb")))
    return [(row["host"], row["step"], row["spans"]) for row in answer["path"]]


@pytest.mark.parametrize("name", sorted(set(SCENARIOS) - set(UNREAD)))
def test_scenarios(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    assert paths(tmp_path) == expected(tmp_path)


@pytest.mark.parametrize("name", FIXTURES)
def test_recorded_runs(name: str) -> None:
    assert paths(Path("fixtures", name)) == expected(Path("fixtures", name))


@pytest.mark.shared
@pytest.mark.parametrize("name", SHARED)
def test_recorded_gpu_runs(shared_traces: Path, name: str) -> None:
    assert paths(shared_traces / name) == expected(shared_traces / name)


# Random runs: phases that each end with a collective that all devices leave together

ticks = st.integers(1, 9)
host_events = st.tuples(
    st.sampled_from(HOST_EVENTS), st.integers(0, 1), st.integers(0, STEP_TICKS), st.integers(0, 9)
)
device_works = st.tuples(
    st.integers(0, 6),  # ticks without work
    ticks,  # of compute
    st.none() | st.tuples(st.integers(-4, 4), ticks),  # a copy on another stream: begin, ticks
    st.integers(0, 8),  # from launch to kernel
    st.booleans(),  # whether the launch is recorded
)
phases = st.lists(st.lists(device_works, min_size=3, max_size=3), min_size=1, max_size=2)
recordings = st.tuples(
    st.lists(phases, min_size=1, max_size=3),
    st.lists(host_events, max_size=8),
    st.integers(1, 4),  # ticks of the transfer
    st.booleans(),  # whether the last device takes no part in the last collective
)
Work = tuple[int, int, tuple[int, int] | None, int, bool]
Recording = tuple[list[list[list[Work]]], list[tuple[str, int, int, int]], int, bool]


def built(recording: Recording) -> CudaTrace:
    steps, events, transfer, is_cut = recording
    trace = new_trace()
    lines = [trace.thread(name, 100 + place) for place, name in enumerate(THREADS)]
    for number, step in enumerate(steps):
        begin = number * STEP_TICKS
        stats: Stats = {"_r": 1, "step_num": number}
        lines[0].add("train", begin * TICK_PS, (begin + STEP_TICKS - 1) * TICK_PS, stats)
        for name, line, start, length in events:
            at = (begin + start) * TICK_PS
            call: Stats = {"id": number}
            if name == "step":
                call = {"tf_function_call": "notTraced-nonXla"}
            lines[line].add(name, at, at + length * TICK_PS, call)
        free = [begin] * 3
        for place, phase in enumerate(step):
            is_last = (number, place) == (len(steps) - 1, len(step) - 1)
            for device, work in enumerate(phase):
                free[device] = _compute(trace, device, free[device], work, lines[device % 2])
            taking_part = range(2 if is_last and is_cut else 3)
            end = max(free[device] for device in taking_part) + transfer
            for device in taking_part:
                at = free[device] * TICK_PS
                event = trace.kernel(
                    device, at, end * TICK_PS, name=NCCL_NAME, stream=30, launch_ps=None
                )
                trace.launch("cuLaunchKernel", at - TICK_PS // 2, event, thread=lines[device % 2])
                free[device] = end
    return trace


def _compute(trace: CudaTrace, device: int, free: int, work: Work, line: Line) -> int:
    pause, length, copy, ahead, is_launched = work
    start, end = free + pause, free + pause + length
    event = trace.kernel(device, start * TICK_PS, end * TICK_PS, launch_ps=None)
    if is_launched:
        trace.launch("cuLaunchKernel", (start - ahead) * TICK_PS, event, thread=line)
    if copy is not None:
        begin = max(start + copy[0], 0)
        trace.copy(
            device, "H2D", begin * TICK_PS, (begin + copy[1]) * TICK_PS, size=8, launch_ps=None
        )
    return end


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(recordings)
def test_random_runs(recording: Recording) -> None:
    with TemporaryDirectory() as folder:
        built(recording).write(Path(folder))
        found = paths(Path(folder))
        assert found == expected(Path(folder))
    assert found
    for _, _, spans in found:
        assert all(first[3] == second[2] for first, second in pairwise(spans))
