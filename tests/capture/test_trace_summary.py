from __future__ import annotations

from pathlib import Path

from scripts.xspace import XSpace
from traceview.capture.record.trace_summary import ACTIVITY_LIMIT, TraceSummary, read_summary


def test_a_recorded_trace_is_counted(fixtures: Path) -> None:
    (path,) = (fixtures / "custom-loop-2").rglob("*.xplane.pb")
    contents = read_summary(path)
    planes = XSpace.FromString(path.read_bytes()).planes
    assert contents.host_events == sum(len(line.events) for p in planes for line in p.lines)
    assert contents.device_events == contents.callbacks == 0
    assert contents.size == path.stat().st_size


def test_device_events_and_their_calls_are_counted(tmp_path: Path) -> None:
    space = XSpace(warnings=[b"dropped"])
    gpu = space.planes.add(name=b"/device:GPU:0")
    stream = gpu.lines.add(id=1)
    for _ in range(3):
        stream.events.add(metadata_id=1)
    host = space.planes.add(name=b"/host:CPU")
    host.stat_metadata[7].id = 7
    host.stat_metadata[7].name = b"correlation_id"
    line = host.lines.add(id=1)
    line.events.add(metadata_id=1).stats.add(metadata_id=7, int64_value=1)
    line.events.add(metadata_id=1)
    path = tmp_path / "node.xplane.pb"
    path.write_bytes(space.SerializeToString())
    contents = read_summary(path)
    assert (contents.host_events, contents.callbacks, contents.device_events) == (2, 1, 3)
    assert contents.warnings == ("dropped",)


def test_the_fuller_buffer_counts() -> None:
    contents = TraceSummary(9, 10, ACTIVITY_LIMIT // 4, (), "", 0)
    assert contents.fullest_ratio == 0.25
