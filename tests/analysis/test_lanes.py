"""The lanes of a timeline hold the time of the tables, in order, without overlap, and within bounds."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import traceview
from scripts.cuda_trace import PROFILE_START_NS, CudaTrace
from scripts.scenarios import SCENARIOS
from tests.analysis.test_identity import NAMES, analyzed, trace_of, traces
from tests.charts import check
from traceview.analysis.gpu_time import lanes as lane_limits
from traceview.analysis.gpu_time.lanes import fair_shares, slices_of

US = 10**6
TWO_THAT_TAKE_TURNS = trace_of(
    [(0, 20, NAMES[0], (0, 0)), (0, 20, NAMES[0], (16, 19)), (1, 20, NAMES[0], (0, 15))]
)
"""Without steps, so that what it costs is not known."""


@settings(max_examples=40)
@example(TWO_THAT_TAKE_TURNS)
@given(traces())
def test_lanes_hold_the_time_of_the_tables(trace: CudaTrace) -> None:
    check(analyzed(trace.space(), lanes=True))


@pytest.mark.parametrize("most", [1, 10, 40])
@settings(max_examples=25)
@given(trace=traces(least_steps=2))
def test_merging_loses_no_time(most: int, trace: CudaTrace) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lane_limits, "MOST_SLICES", most)
        report = analyzed(trace.space(), lanes=True)
    check(report)


def test_lanes_are_made_when_asked_for(fixtures: Path) -> None:
    without = traceview.analyze(fixtures / "custom-loop-2")
    assert without.results.lanes is None
    assert "lanes" not in without.skipped
    assert traceview.analyze(fixtures / "custom-loop-2", lanes=True).results.lanes is not None


def busy_trace(device_count: int, kernels: int, name: str = "layer_{}/MatMul:MatMul") -> CudaTrace:
    trace = CudaTrace("host0", start_ns=PROFILE_START_NS)
    trace.thread()
    for ordinal in range(device_count):
        trace.gpu(ordinal)
        for number in range(kernels):
            start = number * 10 * US + ordinal * US
            trace.kernel(
                ordinal, start, start + 6 * US, op=name.format(number), launch_ps=max(start - US, 0)
            )
    return trace


def test_the_data_is_bounded(tmp_path: Path) -> None:
    busy_trace(8, 3000, name="x" * 500 + "/layer_{}/MatMul:MatMul").write(tmp_path)
    report = traceview.analyze(tmp_path, lanes=True)
    check(report)
    lanes = report.results.lanes
    assert lanes is not None
    every = list(lanes.lanes)
    assert sum(len(lane.length_ps) for lane in every) <= lane_limits.MOST_SLICES
    # Equal treatment: no device is drawn more coarsely than another.
    kinds = {lane.kind for lane in every if lane.resolution_ps}
    assert kinds == {"compute", "idle"}
    for kind in kinds:
        sizes = [len(lane.length_ps) for lane in every if lane.kind == kind]
        assert min(sizes) > 0.7 * max(sizes)
    assert len(msgspec.json.encode(lanes)) < 2_500_000
    assert sum(len(json.dumps(name)) for name in lanes.names) <= lane_limits.MOST_NAME_BYTES
    assert all(name.endswith("MatMul") for name in lanes.names if len(name) > 12)


@given(st.lists(st.integers(0, 1000), max_size=30), st.integers(0, 5000))
def test_shares_are_fair(wanted: list[int], most: int) -> None:
    shares = fair_shares(wanted, most)
    assert all(share <= want for share, want in zip(shares, wanted, strict=True))
    assert sum(shares) <= most
    cut = [share for share, want in zip(shares, wanted, strict=True) if share < want]
    if cut:
        # A lane that gets less than it wants gets no less than any other, but for the remainder.
        assert min(cut) >= max(shares) - 1
    else:
        assert shares == wanted


def test_an_event_counts_from_where_earlier_ones_ended() -> None:
    start, end = np.array([0, 2, 3, 20, 20]), np.array([10, 5, 15, 20, 30])
    class_, name = np.array([0, 1, 1, 0, 1]), np.arange(5, dtype=np.int32)
    found = slices_of(start, end, class_, name, 2)
    assert found.start_ps.tolist() == [0, 10, 20]
    assert found.end_ps.tolist() == [10, 15, 30]
    assert found.class_ps.tolist() == [[10, 0, 0], [0, 5, 10]]
    assert found.count.tolist() == [2, 2, 1]
    assert found.name.tolist() == [0, 2, 4]


@given(
    spans=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=2, max_size=60),
    most=st.integers(1, 30),
)
def test_the_resolution_is_the_finest_that_fits(spans: list[tuple[int, int]], most: int) -> None:
    bounds = np.cumsum(np.array(spans).reshape(-1))
    start, end = bounds[::2], bounds[1::2]
    classes, names = np.zeros(start.size, int), np.arange(start.size, dtype=np.int32)
    found = slices_of(start, end, classes, names, 1)
    drawn, resolution = found.in_detail(most, int(end[-1]), 0, np.array([], dtype=np.int64))
    assert drawn.size <= most
    if resolution:
        assert lane_limits._begins(start, end, resolution * 4 // 5).sum() > most


def test_detailed_spans_keep_their_short_slices() -> None:
    # 100 slices of 1 ps, one every 10 ps; those from 300 to 400 are to be kept.
    start = np.arange(0, 1000, 10)
    found = slices_of(start, start + 1, np.zeros(100, int), np.arange(100, dtype=np.int32), 1)
    drawn, resolution = found.in_detail(20, 1000, 0, np.array([300, 400]))
    inside = (drawn.start_ps >= 300) & (drawn.start_ps < 400)
    assert drawn.start_ps[inside].tolist() == list(range(300, 400, 10))
    assert (drawn.count[inside] == 1).all()
    assert drawn.size <= 22
    assert resolution > 10
    assert drawn.count.sum() == drawn.class_ps.sum() == 100
    assert (drawn.start_ps[1:] >= drawn.end_ps[:-1]).all()


def test_the_steps_of_findings_are_drawn_in_detail(tmp_path: Path) -> None:
    SCENARIOS["retracing"]().write(tmp_path)
    report = traceview.analyze(tmp_path, lanes=True)
    assert report.results.lanes is not None
    (host,) = report.results.lanes.hosts
    assert set(host.detailed_steps) >= {
        number for finding in report.findings for number in finding.steps[:1]
    }
