"""The report on a run is the same however its events are written down."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

import traceview
from scripts.cuda_trace import NCCL_NAME, CudaTrace
from traceview.report.model import Report

END = 120
"""All events lie in this many picoseconds."""

LATER_PS = 4_321_000
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


def in_another_order(space: Any) -> None:
    for plane in space.planes:
        for line in plane.lines:
            events = list(line.events)
            random.Random(5).shuffle(events)
            del line.events[:]
            line.events.extend(events)
    planes = list(space.planes)[::-1]
    del space.planes[:]
    space.planes.extend(planes)


def later(space: Any) -> None:
    for plane in space.planes:
        for line in plane.lines:
            line.timestamp_ns += LATER_PS // 1000


def renumbered(space: Any) -> None:
    for plane in space.planes:
        for line in plane.lines:
            line.id += 1_000_003
            line.name = line.name.replace(b"Stream #", b"Stream #7").replace(b"python3", b"main")
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


def move_every_second_event(source: Any, target: Any) -> None:
    kept, moved = list(source.events)[::2], list(source.events)[1::2]
    del source.events[:]
    source.events.extend(kept)
    target.id, target.name, target.timestamp_ns = source.id, source.name, source.timestamp_ns
    target.events.extend(moved)


def streams_on_two_lines(space: Any) -> None:
    for plane in space.planes:
        if plane.name.startswith(b"/device:"):
            for line in list(plane.lines):
                move_every_second_event(line, plane.lines.add())


def streams_on_two_planes(space: Any) -> None:
    for plane in list(space.planes):
        if plane.name.startswith(b"/device:"):
            second = space.planes.add()
            second.CopyFrom(plane)
            del second.lines[:]
            for line in plane.lines:
                move_every_second_event(line, second.lines.add())


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


@pytest.mark.parametrize(
    "write", [in_another_order, later, renumbered, streams_on_two_lines, streams_on_two_planes]
)
@settings(max_examples=12)
@given(run=runs())
@example(run=TOGETHER)
def test_how_it_is_written_does_not_matter(write: Callable[[Any], None], run: Run) -> None:
    space = run.trace().space()
    expected = facts(analyzed(space))
    write(space)
    assert facts(analyzed(space), LATER_PS * (write is later)) == expected
