"""The parts of a device's time add up whatever ran, and however it was written down."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

import traceview
from scripts.cuda_trace import NCCL_NAME, CudaTrace
from traceview.report.model import Report
from traceview.trace.model import WindowKind

END = 120
"""All events lie in this many picoseconds, so that the truth is an array with one entry for each."""

ORIGIN = 1_000_000
CLASSES = ("compute", "collective", "H2D", "D2H", "D2D", "memset")
NAMES = {
    "compute": "sgemm_128x64",
    "collective": NCCL_NAME,
    "H2D": "MemcpyH2D",
    "D2H": "MemcpyD2H",
    "D2D": "MemcpyD2D",
    "memset": "Memset",
}


@dataclass(frozen=True)
class Activity:
    device: int
    stream: int
    class_: str
    start: int
    end: int


@dataclass(frozen=True)
class Run:
    """Events on three GPUs, and the bounds of steps that follow one another without a gap."""

    activities: tuple[Activity, ...]
    bounds: tuple[int, ...]

    def trace(self) -> CudaTrace:
        trace = CudaTrace("host0", start_ns=1_760_000_000_000_000_000)
        for ordinal in range(3):
            trace.gpu(ordinal)
        trace.thread()
        for number, (start, end) in enumerate(zip(self.bounds, self.bounds[1:], strict=False)):
            trace.marker(number, start, end)
        for one in self.activities:
            trace.device_event(one.device, NAMES[one.class_], one.start, one.end, stream=one.stream)
        return trace

    def painted(self, device: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """For each picosecond the first class that is active, 6 for none."""
        active = np.full(END, len(CLASSES))
        for rank in reversed(range(len(CLASSES))):
            for one in self.activities:
                if one.device == device and one.class_ == CLASSES[rank]:
                    active[one.start : one.end] = rank
        return active

    def parts(self, device: int, start: int, end: int) -> list[int]:
        inside = self.painted(device)[start:end]
        return [int((inside == rank).sum()) for rank in range(len(CLASSES) + 1)]


@st.composite
def runs(draw: st.DrawFn, least_steps: int = 0) -> Run:
    spans = st.tuples(st.integers(0, END), st.integers(0, END)).map(sorted)
    activities = draw(
        st.lists(
            st.builds(
                lambda device, stream, class_, span: Activity(device, stream, class_, *span),
                st.integers(0, 2),
                st.sampled_from([20, 21, 30]),
                st.sampled_from(CLASSES),
                spans,
            ),
            min_size=1,
            max_size=24,
        )
    )
    bounds = draw(
        st.lists(
            st.integers(0, END), unique=True, min_size=least_steps and least_steps + 1, max_size=6
        )
    )
    return Run(tuple(activities), tuple(sorted(bounds)))


def analyzed(space: Any, **options: Any) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "host0.xplane.pb")
        path.write_bytes(space.SerializeToString(deterministic=True))
        return traceview.analyze(path, top=None, **options)


@settings(max_examples=60, deadline=None)
@given(runs(), st.sampled_from(["auto", "devices"]))
def test_parts_and_idle_are_the_window(run: Run, window: WindowKind) -> None:
    report = analyzed(run.trace().space(), window=window)
    (span,) = report.windows
    start, end = span.start_ps - ORIGIN, span.end_ps - ORIGIN
    if window == "devices" or report.results.steps is None:
        assert start == min(one.start for one in run.activities)
        assert end == max(one.end for one in run.activities)
    elif run.bounds:
        assert (start, end) == (run.bounds[0], run.bounds[-1])
    else:
        # Without markers steps may be detected, by what repeats on a device.
        assert start < end
    assert report.results.device_time is not None
    for row in report.results.device_time.devices:
        assert row.activity is not None
        assert row.idle_ps is not None
        parts = [*(of_class.exposed_ps for of_class in row.activity.values()), row.idle_ps]
        assert parts == run.parts(row.ordinal, start, end)
        assert sum(parts) == row.window_ps == end - start
        assert row.busy_ps == row.window_ps - parts[-1]


# One run, written in other ways


def shuffled(space: Any) -> int:
    for plane in space.planes:
        for line in plane.lines:
            events = list(line.events)
            random.Random(5).shuffle(events)
            del line.events[:]
            line.events.extend(events)
    return 0


def planes_in_another_order(space: Any) -> int:
    planes = list(space.planes)[::-1]
    del space.planes[:]
    space.planes.extend(planes)
    return 0


def later(space: Any) -> int:
    for plane in space.planes:
        for line in plane.lines:
            line.timestamp_ns += 4_321
    return 4_321_000


def renumbered(space: Any) -> int:
    for plane in space.planes:
        for line in plane.lines:
            line.id += 1_000_003
            line.name = line.name.replace(b"Stream #", b"Stream #7").replace(b"python3", b"main")
    return 0


def metadata_renumbered(space: Any) -> int:
    for plane in space.planes:
        for entries in (plane.event_metadata, plane.stat_metadata):
            held = {
                key + 5_000: type(entry).FromString(entry.SerializeToString())
                for key, entry in entries.items()
            }
            entries.clear()
            for key, entry in held.items():
                entry.id = key
                entries[key].CopyFrom(entry)
        stats = [*plane.stats]
        for line in plane.lines:
            for event in line.events:
                event.metadata_id += 5_000
                stats += event.stats
        for stat in stats:
            stat.metadata_id += 5_000
            if stat.WhichOneof("value") == "ref_value":
                stat.ref_value += 5_000
    return 0


def move_every_second_event(source: Any, target: Any) -> None:
    kept, moved = list(source.events)[::2], list(source.events)[1::2]
    del source.events[:]
    source.events.extend(kept)
    target.id, target.name, target.timestamp_ns = source.id, source.name, source.timestamp_ns
    target.events.extend(moved)


def streams_on_two_lines(space: Any) -> int:
    for plane in space.planes:
        if plane.name.startswith(b"/device:"):
            for line in list(plane.lines):
                move_every_second_event(line, plane.lines.add())
    return 0


def streams_on_two_planes(space: Any) -> int:
    for plane in list(space.planes):
        if plane.name.startswith(b"/device:"):
            second = space.planes.add()
            second.CopyFrom(plane)
            del second.lines[:]
            for line in plane.lines:
                move_every_second_event(line, second.lines.add())
    return 0


WRITINGS: list[Callable[[Any], int]] = [
    shuffled,
    planes_in_another_order,
    later,
    renumbered,
    metadata_renumbered,
    streams_on_two_lines,
    streams_on_two_planes,
]


def facts(report: Report, shift_ps: int = 0) -> dict[str, Any]:
    """The report without where it came from, in times before the shift, rows in an order of their own."""
    facts: dict[str, Any] = to_builtins(report)
    del facts["source"], facts["command"]
    stamped = [*facts["windows"]]
    for result in ("steps", "timeline"):
        if facts["results"][result]:
            stamped += facts["results"][result]["steps" if result == "steps" else "devices"]
    if facts["results"]["idle"]:
        stamped += [gap for row in facts["results"]["idle"]["devices"] for gap in row["gaps"]]
        for gap in stamped:
            # Threads are named there as they were recorded.
            gap.pop("thread", None)
    for entry in stamped:
        for key in ("start_ps", "end_ps"):
            if key in entry:
                entry[key] -= shift_ps
    if facts["results"]["ops"]:
        facts["results"]["ops"]["rows"] = sorted(facts["results"]["ops"]["rows"], key=repr)
    return facts


TOGETHER = Run(
    (
        Activity(0, 20, "compute", 0, 0),
        Activity(0, 20, "compute", 1, 2),
        Activity(0, 20, "compute", 1, 3),
        Activity(0, 20, "collective", 1, 3),
    ),
    (),
)
"""Events that begin together, which a file may hold in either order."""


@pytest.mark.parametrize("write", WRITINGS)
@settings(max_examples=12, deadline=None)
@given(run=runs())
@example(run=TOGETHER)
def test_how_it_is_written_does_not_matter(write: Callable[[Any], int], run: Run) -> None:
    space = run.trace().space()
    expected = facts(analyzed(space))
    shift_ps = write(space)
    assert facts(analyzed(space), shift_ps) == expected
