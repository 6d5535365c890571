"""Small files with one entry of each kind, written with the full protobuf classes."""

from __future__ import annotations

from typing import Any

from scripts.xspace import XSpace
from traceview.xplane.columns import Plane

START_NS = 1_760_000_000_000_000_000


def add_plane(space: Any, name: bytes, names: tuple[bytes, ...], stats: tuple[bytes, ...]) -> Any:
    """A plane whose event and stat names have the ids 1, 2, … in the order given."""
    plane = space.planes.add(name=name)
    for index, text in enumerate(names, 1):
        plane.event_metadata[index].id = index
        plane.event_metadata[index].name = text
    for index, text in enumerate(stats, 1):
        plane.stat_metadata[index].id = index
        plane.stat_metadata[index].name = text
    return plane


def small_space() -> Any:
    """One GPU with a kernel and a copy, launched by a host thread with a step marker; about 600 bytes."""
    space = XSpace(warnings=[b"w"], errors=[b"e"])
    host = add_plane(
        space, b"/host:CPU", (b"train", b"k"), (b"_r", b"step_num", b"correlation_id", b"id")
    )
    thread = host.lines.add(id=-7, name=b"python", timestamp_ns=5)
    for step in range(2):
        marker = thread.events.add(metadata_id=1, offset_ps=step * 9000, duration_ps=8000)
        marker.stats.add(metadata_id=1, int64_value=1)
        marker.stats.add(metadata_id=2, uint64_value=step)
        call = thread.events.add(metadata_id=2, offset_ps=step * 9000 + 100, duration_ps=50)
        call.stats.add(metadata_id=3, uint64_value=step + 1)
        call.stats.add(metadata_id=4, double_value=0.5)
    gpu = add_plane(
        space,
        b"/device:GPU:0",
        (b"k", b"MemcpyH2D"),
        (b"correlation_id", b"kernel_details", b"memcpy_details", b"regs:8 grid:1,1,1"),
    )
    gpu.event_metadata[1].stats.add(metadata_id=2, ref_value=4)
    stream = gpu.lines.add(id=3, name=b"Stream #3(Compute,MemcpyH2D)", timestamp_ns=5)
    for step in range(2):
        kernel = stream.events.add(metadata_id=1, offset_ps=step * 9000 + 200, duration_ps=4000)
        kernel.stats.add(metadata_id=1, uint64_value=step + 1)
    copy = stream.events.add(metadata_id=2, offset_ps=4300, duration_ps=100)
    copy.stats.add(metadata_id=3, str_value=b"size:112 dest:0 async:0")
    stream.events.add(metadata_id=1, num_occurrences=3)
    environment = add_plane(
        space, b"Task Environment", (), (b"profile_start_time", b"profile_stop_time")
    )
    environment.stats.add(metadata_id=1, uint64_value=START_NS)
    environment.stats.add(metadata_id=2, uint64_value=START_NS + 40)
    return space


def event_count(*planes: Plane) -> int:
    """Number of events of planes that were read, those without a time included."""
    return sum(line.columns.metadata_id.size for plane in planes for line in plane.lines)
