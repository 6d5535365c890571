from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import traceview
from scripts.scenarios import SCENARIOS
from tests.export import trace_events
from tests.export.perfetto_reading import Read, read
from traceview.analysis.selection import select
from traceview.export import chrome, perfetto, wire
from traceview.export.draw import drawn
from traceview.export.scene import Arrows, Labels, Process, Scene, Slices, Track
from traceview.trace.model import Names


def scene_of(logs: Path) -> Scene:
    trace = traceview.load(logs)
    return drawn(trace, select(trace), traceview.analyze(trace))


def told_by_chrome(scene: Scene) -> list[tuple[Any, ...]]:
    """Every slice of the other format, with its process and its track."""
    events = trace_events.checked(b"".join(chrome.written(scene)))
    names = {
        (event["name"], event["pid"], event["tid"]): event["args"].get("name")
        for event in events
        if event["ph"] == "M"
    }
    return [
        (
            names["process_name", pid, pid],
            names["thread_name", pid, tid],
            event["name"],
            event["cat"],
            *trace_events.picoseconds(event),
            event.get("args", {}),
        )
        for (pid, tid), mine in trace_events.slices(events).items()
        for event in mine
    ]


def told(found: Read) -> list[tuple[Any, ...]]:
    return [
        (
            found.process_of(one.track),
            found.track_name(one.track),
            one.name,
            one.category,
            *one.picoseconds,
            one.arguments,
        )
        for one in found.slices
    ]


@pytest.mark.parametrize("name", ["A", "B", "C", "F", "two_hosts", "no_gpu_plane"])
def test_both_formats_tell_the_same(tmp_path: Path, name: str) -> None:
    SCENARIOS[name]().write(tmp_path / "logs")
    scene = scene_of(tmp_path / "logs")
    found = read(b"".join(perfetto.written(scene)))
    assert found.slices
    assert told(found) == told_by_chrome(scene)


def test_recorded_replicas(fixtures: Path) -> None:
    scene = scene_of(fixtures / "custom-loop-4")
    assert told(read(b"".join(perfetto.written(scene)))) == told_by_chrome(scene)


def test_every_arrow_begins_and_ends_once(tmp_path: Path) -> None:
    SCENARIOS["B"]().write(tmp_path / "logs")
    found = read(b"".join(perfetto.written(scene_of(tmp_path / "logs"))))
    begun = {flow: one for one in found.slices for flow in one.flows}
    ended = {flow: one for one in found.slices for flow in one.ending_flows}
    assert begun
    assert set(begun) == set(ended)
    assert len(begun) == sum(len(one.flows) for one in found.slices)
    assert 0 not in begun
    for flow, launch in begun.items():
        assert launch.arguments["correlation_id"] == ended[flow].arguments["correlation_id"]
        assert launch.start_ns <= ended[flow].start_ns


def test_busy_fraction_adds_up_to_the_busy_time(tmp_path: Path) -> None:
    SCENARIOS["B"]().write(tmp_path / "logs")
    report = traceview.analyze(tmp_path / "logs")
    found = read(b"".join(perfetto.written(scene_of(tmp_path / "logs"))))
    assert report.results.device_time
    for row in report.results.device_time.devices:
        (values,) = (
            values
            for track, values in found.counters.items()
            if found.process_of(track).startswith(row.device)
        )
        assert values[-1][1] == 0
        shares = [share for _, share in values[:-1]]
        assert min(shares) >= 0
        assert max(shares) <= 100
        assert row.busy_ratio is not None
        assert abs(np.mean(shares) / 100 - row.busy_ratio) < 0.01


def one_track(slices: Slices, labels: Labels) -> Scene:
    return Scene((Process("p", (Track("t", "thread", slices),)),), labels)


def test_a_launch_of_very_many() -> None:
    """Their arrows do not fit beside each other in one matrix."""
    count = 40_000
    labels = Labels(Names())
    name = np.full(count, labels.add("a"), dtype=np.int64)
    time = np.arange(count, dtype=np.int64) * 1000
    arrows = np.zeros(count, dtype=np.int64)
    arrows[[3, count - 2]] = (30_000, 2)
    first = np.cumsum(arrows) - arrows
    slices = Slices(time, time + 500, name, name, arrows=Arrows(first, count=arrows))
    found = read(b"".join(perfetto.written(one_track(slices, labels))))
    assert len(found.slices) == count
    assert found.slices[3].flows == tuple(range(1, 30_001))
    assert found.slices[-2].flows == (30_001, 30_002)
    assert all(not one.flows for one in found.slices[4:-2])


@pytest.mark.parametrize("value", [0, 1, 127, 128, 2**31, 2**63 - 1, -1, -(2**63)])
def test_numbers_are_those_that_protobuf_reads(value: int) -> None:
    rows = wire.varints(np.array([value, 5, value], dtype=np.int64))
    wanted = wire.varint(value & (1 << 64) - 1)
    assert rows.content() == wanted + b"\x05" + wanted
