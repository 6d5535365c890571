"""Counts from the bytes of a recording what a GPU waits for, and what copies to it take, without traceview.

An idle GPU waits for a launch where the call that launches its next event has not ended yet, or the event follows within
20 µs; outside of a step marker for the loop, and not while an event of the calling thread says that it waits, or the call
hands over data. All of that is also the cost of a read where a copy to the host came last: without it the launch could have
been made before. Copies to the device count while nothing else runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from scripts.xspace import XSpace

RECOUNTED: Final = ("launch-bound", "h2d-exposed", "d2h-sync", "callback-stall")
"""The codes of the findings that are counted."""

_WAITS: Final = (b"Synchronize", b"GetNext", b"Iterator", b"Await", b"BlockHost", b"WaitFor")
"""Parts of the names of events in which a thread waits: for a device, or for input."""

_STEP: Final = b"train"
"""The name of step markers, which the recorder writes."""

_LATENCY_PS: Final = 20_000_000
"""From its launch to an event on an idle GPU (TensorFlow's GPU performance guide: 20 to 40 µs from the call on)."""

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
    steps: list[_Event] = []
    for event in sorted(event for event in host if event.name == _STEP):
        # Inside of a marker there may be another one.
        if not steps or event.start_ps >= steps[-1].end_ps:
            steps.append(event)
    first, last = (round(share * (len(device) - 1)) for share in _MIDDLE)
    counted = device[first:last]
    begin_ps = end_ps = counted[0].start_ps
    idle_ps: Counter[str] = Counter()
    before = counted[0]
    for event in counted:
        gap_ps, launch = event.start_ps - end_ps, launches.get(event.correlation)
        if launch is not None and gap_ps > 0:
            is_late = end_ps < launch.end_ps
            if before.name == b"MemcpyD2H" and is_late:
                idle_ps["d2h-sync"] += gap_ps
            if is_late or gap_ps <= _LATENCY_PS:
                in_steps_ps = sum(_covers_ps(steps, end_ps, event.start_ps))
                idle_ps["callback-stall"] += gap_ps - in_steps_ps
                waiting_ps = max(_covers_ps(waits[launch.line], end_ps, launch.end_ps), default=0)
                if event.name == b"MemcpyH2D":
                    (copying_ps,) = _covers_ps([launch], end_ps, event.start_ps)
                    idle_ps["h2d-exposed"] += copying_ps
                    waiting_ps += copying_ps
                idle_ps["launch-bound"] += max(in_steps_ps - waiting_ps, 0)
        if event.end_ps > end_ps:
            end_ps, before = event.end_ps, event
    others = [event for event in counted if event.name != b"MemcpyH2D"]
    idle_ps["h2d-exposed"] += _covered_ps(counted) - _covered_ps(others)
    return {code: idle_ps[code] / (end_ps - begin_ps) for code in RECOUNTED}


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


def _covers_ps(events: Iterable[_Event], start_ps: int, end_ps: int) -> Iterator[int]:
    """What each event covers of a time."""
    for event in events:
        yield max(min(event.end_ps, end_ps) - max(event.start_ps, start_ps), 0)
