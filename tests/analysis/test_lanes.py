"""The lanes of a timeline hold the time of the tables, in order, without overlap, and within bounds."""

from __future__ import annotations

import json
from collections import Counter
from itertools import accumulate, pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import traceview
from scripts.cuda_trace import CudaTrace
from scripts.scenarios import SCENARIOS
from tests.analysis.test_identity import Activity, Run, analyzed, runs
from tests.charts import slices_of_lane
from traceview.analysis.gpu_time import lanes as lane_limits
from traceview.analysis.gpu_time.lanes import fair_shares, slices_of
from traceview.document.figures import Lane
from traceview.report.model import Report

US = 10**6
ODD = (
    "C",
    "absolute_stamps",
    "callbacks_between_steps",
    "clock_inversion",
    "copy_only",
    "eight_balanced",
    "gpu_planes_empty",
    "hidden_transfers",
    "hostile_names",
    "host_runs_ahead",
    "metadata_dangles",
    "no_gpu_plane",
    "no_steps",
    "overlapped_collectives",
    "past_the_stop",
    "sixteen_skewed_clocks",
    "stored_steps",
    "two_hosts",
    "uneven_last_batch",
    "waits_for_input_in_the_graph",
    "zero_length",
)
"""Scenarios in which something is missing, overlaps, or lies outside of the window."""


def covered(lane: Lane) -> Counter[str]:
    sums: Counter[str] = Counter()
    for part in slices_of_lane(lane):
        sums.update(part.class_ps)
    return sums


def check(report: Report) -> None:
    """The lanes of a report against its tables, exactly."""
    results = report.results
    assert results.lanes is not None
    assert results.device_time is not None
    assert results.idle is not None
    times = {row.device: row for row in results.device_time.devices}
    causes = {row.device: row for row in results.idle.devices}
    windows = {host.host: host.end_ps - host.start_ps for host in results.lanes.hosts}
    for host in results.lanes.hosts:
        for lane in host.lanes:
            check_lane(lane, windows[host.host])
    assert [device.device for device in results.lanes.devices] == list(causes)
    for device in results.lanes.devices:
        for lane in device.lanes:
            check_lane(lane, windows[device.host])
        own = {lane.kind: lane for lane in device.lanes}
        row, activity = times[device.device], times[device.device].activity
        assert activity is not None
        assert _length(own.get("compute")) == activity["compute"].busy_ps
        assert _length(own.get("communication")) == activity["collective"].busy_ps
        copies = [activity[key].busy_ps for key in ("h2d", "d2h", "d2d", "memset")]
        assert max(copies) <= _length(own.get("copies")) <= sum(copies)
        assert _length(own.get("idle")) == row.idle_ps == causes[device.device].idle_ps
        if "idle" in own:
            assert covered(own["idle"]) == Counter(causes[device.device].states)
            # Where its state changes, a gap is several segments.
            assert own["idle"].event_count >= causes[device.device].gap_count
        for kind, key in {"compute": "compute", "communication": "collective"}.items():
            assert kind not in own or own[kind].event_count == activity[key].count


def check_lane(lane: Lane, window_ps: int) -> None:
    slices = list(slices_of_lane(lane))
    assert slices
    assert all(part.start_ps < part.end_ps for part in slices)
    assert all(part.end_ps <= after.start_ps for part, after in pairwise(slices))
    assert slices[0].start_ps >= 0
    assert slices[-1].end_ps <= window_ps
    assert all(length > 0 for part in slices for length in part.class_ps.values())
    counts = [1] * len(slices)
    for place, count in zip(accumulate(lane.merged), lane.merged_count, strict=True):
        counts[place] = count
    if lane.kind != "idle":
        # Gaps are cut at the bounds of steps, and empty events at the end belong to no slice.
        assert sum(counts) <= lane.event_count
    for place, hole in zip(accumulate(lane.merged), lane.merged_hole_ps, strict=True):
        # A stretch, and a short slice that reaches beyond it.
        length = slices[place].end_ps - slices[place].start_ps
        assert not hole or length < 2 * lane.resolution_ps


def _length(lane: Lane | None) -> int:
    return 0 if lane is None else sum(covered(lane).values())


TWO_THAT_TAKE_TURNS = Run(
    (
        Activity(0, 20, "compute", 0, 0),
        Activity(0, 20, "compute", 16, 19),
        Activity(1, 20, "compute", 0, 15),
    ),
    (),
)
"""Without steps, so that what it costs is not known."""


@settings(deadline=None, max_examples=40)
@example(TWO_THAT_TAKE_TURNS)
@given(runs())
def test_lanes_hold_the_time_of_the_tables(run: Run) -> None:
    check(analyzed(run.trace().space(), lanes=True))


@pytest.mark.parametrize("most", [1, 10, 40])
@settings(deadline=None, max_examples=25)
@given(run=runs(least_steps=2))
def test_merging_loses_no_time(most: int, run: Run) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lane_limits, "MOST_SLICES", most)
        report = analyzed(run.trace().space(), lanes=True)
    check(report)


@pytest.mark.parametrize("name", ODD)
def test_scenarios(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = traceview.analyze(tmp_path, lanes=True)
    if report.results.lanes is None:
        assert report.skipped["lanes"] == "the trace holds no device event"
    else:
        check(report)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["bert-8xV100", "jax-8xMI300X"])
def test_real_traces(name: str, shared_traces: Path) -> None:
    check(traceview.analyze(shared_traces / name, lanes=True))


def test_lanes_are_made_when_asked_for(fixtures: Path) -> None:
    without = traceview.analyze(fixtures / "custom-loop-2")
    assert without.results.lanes is None
    assert "lanes" not in without.skipped
    assert traceview.analyze(fixtures / "custom-loop-2", lanes=True).results.lanes is not None


def busy_trace(device_count: int, kernels: int, name: str = "layer_{}/MatMul:MatMul") -> CudaTrace:
    trace = CudaTrace("host0", start_ns=1_760_000_000_000_000_000)
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


def test_a_slice_says_what_it_stands_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_limits, "MOST_SLICES", 12)
    busy_trace(1, 100).write(tmp_path)
    lanes = traceview.analyze(tmp_path, lanes=True).results.lanes
    assert lanes is not None
    (compute,) = (lane for lane in lanes.devices[0].lanes if lane.kind == "compute")
    assert compute.event_count == 100
    assert covered(compute) == {"compute": 600 * US}
    # Kernels of 6 µs with holes of 4 µs between them.
    counts = list(compute.merged_count)
    assert sum(counts) == 100
    assert list(compute.merged_hole_ps) == [(count - 1) * 4 * US for count in counts]
    assert compute.resolution_ps > 6 * US


def test_many_devices_are_cut_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_limits, "MOST_DEVICES", 3)
    busy_trace(5, 2).write(tmp_path)
    lanes = traceview.analyze(tmp_path, lanes=True).results.lanes
    assert lanes is not None
    assert [device.device for device in lanes.devices] == ["GPU:0", "GPU:1", "GPU:2"]
    assert lanes.left_out_device_count == 2


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
    resolution = found.resolution_for(most, int(end[-1]), 0)
    region = np.zeros(start.size, dtype=np.int64)
    assert found.merged(resolution, 0, region).size <= most
    if resolution:
        assert found.merged(resolution * 4 // 5, 0, region).size > most


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
