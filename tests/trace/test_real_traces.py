"""Recordings of real machines give the numbers that a script with third-party code computed from them.

Every number is from the README beside the recordings, which says how it was made.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import traceview
from tests.device_times import flat_times
from traceview import Trace
from traceview.base.errors import TraceFormatError
from traceview.report.model import Report

pytestmark = pytest.mark.shared

BERT = {
    1: (1, 19, 33792000, 33792000, 18, 2761776101000, 2775193523000),
    4: (4, 759, 14983622000, 15023814000, 739, 1821856661000, 1941165319000),
    6: (4, 778, 15050451000, 15104499000, 758, 2099696083000, 2590165953000),
}
MI300X = {
    0: (4, 60, 3995965000, 4000165000, 50, 1611362000, 140082194000),
    1: (1, 25, 3345845000, 3345845000, 20, 27256936000, 139363042000),
    2: (1, 25, 3524285000, 3524285000, 20, 32017342000, 139010013000),
    3: (1, 25, 3403364000, 3403364000, 19, 44412649000, 139673794000),
    4: (1, 25, 3493365000, 3493365000, 18, 48200514000, 139796594000),
    5: (1, 25, 3464884000, 3464884000, 19, 46953142000, 139891645000),
    6: (1, 25, 3403004000, 3403004000, 17, 35489367000, 139710844000),
    7: (1, 25, 3502165000, 3502165000, 19, 49120115000, 139683174000),
}
GEMM = {0: (2, 54, 3475484000, 3475484000, 53, 1220562000, 10676774000)}
# Stream lines, events, busy, sum, gaps, first start and last end, by GPU; the others have no event.
DEVICES = {
    "bert-8xV100": BERT,
    "broken/host-plane-missing": BERT,
    "jax-8xMI300X": MI300X,
    "broken/concatenated-twice": MI300X,
    "jax-gemm-1of8": GEMM,
}


def rows(report: Report) -> dict[int, Any]:
    assert report.results.device_time is not None
    assert len(report.results.device_time.devices) == 8
    return {
        row.ordinal: SimpleNamespace(**flat_times(row))
        for row in report.results.device_time.devices
    }


def gap_count(events: pd.DataFrame) -> int:
    """Strictly positive holes between the first and the last event."""
    start = events["start_ps"]
    reach = (start + events["duration_ps"]).cummax()
    return int((start.iloc[1:].to_numpy() > reach.iloc[:-1].to_numpy()).sum())


def delays(trace: Trace, events: pd.DataFrame) -> list[int]:
    """From the start of each launch to the start on the device; only for events with a launch."""
    linked = events[events["launch"].notna()]
    launched = trace.host_events["start_ps"].to_numpy()[linked["launch"].to_numpy(dtype="int64")]
    return [int(delay) for delay in linked["start_ps"].to_numpy() - launched]


def check_delays(found: list[int], least: float, median: float, most: float) -> None:
    """In microseconds, to the digits of the table, whose median of an even number is the upper one."""
    us = [min(found) / 1e6, statistics.median_high(found) / 1e6, max(found) / 1e6]
    assert us == pytest.approx([least, median, most], abs=0.0051)


@pytest.mark.parametrize("name", DEVICES)
def test_devices(shared_traces: Path, name: str) -> None:
    trace = traceview.load(shared_traces / name)
    report = traceview.analyze(trace, window="devices")
    found = rows(report)
    frame = trace.device_events
    expected = DEVICES[name]
    for ordinal, row in found.items():
        events = frame[frame["device"] == f"GPU:{ordinal}"]
        if ordinal not in expected:
            assert row.status in ("empty", "memory_only")
            assert (row.busy_ps, len(events)) == (0, 0)
            continue
        assert (
            events["stream"].nunique(),
            len(events),
            row.busy_ps,
            int(events["duration_ps"].sum()),
            gap_count(events),
            int(events["start_ps"].min()),
            int((events["start_ps"] + events["duration_ps"]).max()),
        ) == expected[ordinal]
    counts = {f"GPU:{n}": numbers[1] for n, numbers in expected.items()}
    used = trace.device_events["device"].value_counts()
    assert used[used > 0].to_dict() == counts


@pytest.fixture(scope="module")
def bert(shared_traces: Path) -> Trace:
    return traceview.load(shared_traces / "bert-8xV100")


class TestBert:
    def test_one_host_and_a_copy(self, bert: Trace) -> None:
        assert [host.name for host in bert.hosts] == ["34.83.195.179_6003"]
        assert bert.hosts[0].event_count == 23128
        assert bert.hosts[0].profile_start_ns is None
        assert bert.hosts[0].errors == ()
        assert len(bert.host_events) == 15354
        assert [problem.code for problem in bert.problems] == ["duplicate-host-file"]
        first_file, copy = bert.files
        assert copy.sha256 == first_file.sha256
        assert (first_file.bytes, copy.bytes) == (3039638, 3039638)

    def test_links_are_one_to_one(self, bert: Trace) -> None:
        launches = bert.device_events["launch"]
        assert launches.notna().all()
        assert launches.is_unique
        assert len(launches) == 1556
        assert int(bert.host_events["correlation_id"].notna().sum()) == 1556
        check_delays(delays(bert, bert.device_events), 9.143, 383.143, 2971.129)


@pytest.fixture(scope="module")
def mi300x(shared_traces: Path) -> Trace:
    return traceview.load(shared_traces / "jax-8xMI300X")


class TestMi300x:
    def test_copies_that_look_like_kernels(self, mi300x: Trace) -> None:
        """Their direction stands in the host call, their size nowhere: unknown, not 0."""
        row = rows(traceview.analyze(mi300x, window="devices"))[0]
        assert (row.kernel_count, row.copy_count, row.unknown_direction_count) == (25, 35, 2)
        assert (row.exposed_compute_ps, row.exposed_d2d_ps) == (3436644000, 559321000)
        assert row.total_ps["d2d"] == 559321000
        assert row.d2d_bytes is None
        copies = mi300x.device_events[mi300x.device_events["class"] == "d2d"]
        calls = mi300x.host_events["name"].iloc[copies["launch"].to_numpy(dtype="int64")]
        assert calls.value_counts().loc[lambda n: n > 0].to_dict() == {
            "hipMemcpyDtoDAsync": 33,
            "hipLaunchHostFunc": 1,
            "hipStreamWaitEvent": 1,
        }

    def test_one_launch_owns_two_kernels(self, mi300x: Trace) -> None:
        launches = mi300x.device_events["launch"]
        assert launches.notna().all()
        assert launches.nunique() == 234
        assert int(mi300x.host_events["correlation_id"].notna().sum()) == 234
        twice = mi300x.device_events[launches.duplicated(keep=False)]
        assert set(twice["correlation_id"]) == {477}
        assert list(twice["device"]) == ["GPU:0", "GPU:0"]
        check_delays(delays(mi300x, mi300x.device_events), 11.82, 35.04, 758.189)

    def test_events_past_the_stop_are_kept(self, mi300x: Trace) -> None:
        (host,) = mi300x.hosts
        assert host.profile_start_ns == 1771595639214724894
        assert host.stop_ps == 164316288000
        events = mi300x.host_events
        assert int((events["start_ps"] + events["duration_ps"]).max()) == 164952729000


def test_all_planes_are_salvaged_from_a_file_without_its_last_byte(shared_traces: Path) -> None:
    cut = traceview.load(shared_traces / "broken/truncated-last-byte", salvage=True)
    whole = traceview.load(shared_traces / "bert-8xV100")
    assert cut.device_list == whole.device_list
    pd.testing.assert_frame_equal(cut.device_events, whole.device_events)
    pd.testing.assert_frame_equal(
        cut.host_events.drop(columns="host"), whole.host_events.drop(columns="host")
    )
    assert [problem.code for problem in cut.problems] == ["damaged-file"]


def test_of_half_a_file_nothing_can_be_saved(shared_traces: Path) -> None:
    with pytest.raises(TraceFormatError, match="cut off: the plane") as raised:
        traceview.load(shared_traces / "broken/truncated-half", salvage=True)
    assert str(raised.value.hint).startswith("nothing of it can be saved")


def test_without_the_planes_of_devices_nothing_is_said_of_them(
    shared_traces: Path, tmp_path: Path
) -> None:
    """What stood after the cut is unknown: no word against the GPU tracer, and none about steps."""
    whole = next((shared_traces / "bert-8xV100").rglob("34.83.195.180_6003.xplane.pb"))
    cut = tmp_path / "cut.xplane.pb"
    cut.write_bytes(whole.read_bytes()[:2_216_120])
    report = traceview.analyze(traceview.load(cut, salvage=True))
    assert report.results.device_time is not None
    assert report.results.device_time.devices == ()
    assert report.capture.quality == "unusable"
    assert [(finding.code, finding.severity) for finding in report.findings] == [
        ("damaged-file", "critical")
    ]
    assert report.capture.problems[-1].code == "devices-unknown"


def test_without_the_host_plane_every_kernel_is_unlinked(shared_traces: Path) -> None:
    trace = traceview.load(shared_traces / "broken/host-plane-missing")
    assert trace.device_events["launch"].isna().all()
    assert trace.host_columns.count == 0
    report = traceview.analyze(trace)
    assert [problem.code for problem in report.capture.problems] == ["unlinked-kernels"]
