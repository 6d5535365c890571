"""Counts from the bytes of a recording what a GPU waits for launches and spends on copies to it, without traceview.

An idle GPU waits for a launch where the call that launches its next event begins after the idle time has, and for as
long as no event of the calling thread says that it waits; what is left until the event begins is the latency of the
launch. A copy counts while nothing else runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from scripts.xspace import XSpace

RECOUNTED: Final = ("launch-bound", "h2d-exposed")
"""The codes of the findings that are counted."""

_WAITS: Final = (b"Synchronize", b"GetNext", b"Iterator", b"Await", b"BlockHost", b"WaitFor")
"""Parts of the names of events in which a thread waits: for a device, or for input."""

_MIDDLE: Final = (0.1, 0.9)
"""The first and the last device event that count, as shares of all: a recording begins and ends in the middle of a step."""


class _Event(NamedTuple):
    start_ps: int
    end_ps: int
    name: bytes
    correlation: int
    line: int


def recounted(folder: Path) -> Mapping[str, float]:
    """By code of a finding the share of the recorded time that a GPU spends on that, in a recording of one GPU."""
    (path,) = folder.rglob("*.xplane.pb")
    planes = XSpace.FromString(path.read_bytes()).planes
    device = sorted(chain(*(_events(plane) for plane in planes if _is_gpu(plane.name))))
    host = list(chain(*(_events(plane) for plane in planes if plane.name == b"/host:CPU")))
    launches = {event.correlation: event for event in host if event.correlation}
    waits = defaultdict(list)
    for event in host:
        if any(part in event.name for part in _WAITS):
            waits[event.line].append(event)
    first, last = (round(share * (len(device) - 1)) for share in _MIDDLE)
    counted = device[first:last]
    begin_ps = end_ps = counted[0].start_ps
    launching_ps = 0
    for event in counted:
        launch = launches.get(event.correlation)
        if launch is not None and end_ps < launch.start_ps:
            launching_ps += max(event.start_ps - end_ps, 0)
            launching_ps -= _longest_ps(waits[launch.line], end_ps, launch.start_ps)
        end_ps = max(end_ps, event.end_ps)
    others = [event for event in counted if event.name != b"MemcpyH2D"]
    copying_ps = _covered_ps(counted) - _covered_ps(others)
    length_ps = end_ps - begin_ps
    shares = (launching_ps / length_ps, copying_ps / length_ps)
    return dict(zip(RECOUNTED, shares, strict=True))


def _is_gpu(name: bytes) -> bool:
    return name.startswith(b"/device:GPU:")


def _events(plane: Any) -> Iterator[_Event]:
    """The events of the streams of a GPU, or of the threads of a host."""
    (correlation,) = (
        key for key, stat in plane.stat_metadata.items() if stat.name == b"correlation_id"
    )
    for line in plane.lines:
        if _is_gpu(plane.name) and not line.name.startswith(b"Stream"):
            continue
        for event in line.events:
            start_ps = line.timestamp_ns * 1000 + event.offset_ps
            ids = [
                stat.uint64_value or stat.int64_value
                for stat in event.stats
                if stat.metadata_id == correlation
            ]
            yield _Event(
                start_ps,
                start_ps + event.duration_ps,
                plane.event_metadata[event.metadata_id].name,
                ids[0] if ids else 0,
                line.id,
            )


def _covered_ps(events: Iterable[_Event]) -> int:
    """The time in which at least one of the events runs; they are in the order of their starts."""
    covered_ps = end_ps = 0
    for event in events:
        covered_ps += max(event.end_ps - max(event.start_ps, end_ps), 0)
        end_ps = max(end_ps, event.end_ps)
    return covered_ps


def _longest_ps(waits: list[_Event], start_ps: int, end_ps: int) -> int:
    """The longest that one of the waits covers of a time."""
    covered_ps = (min(wait.end_ps, end_ps) - max(wait.start_ps, start_ps) for wait in waits)
    return max((0, *covered_ps))
