"""The report on a run is the same however its events are written down, and on how many threads it is computed."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

import traceview
from scripts.cuda_trace import NCCL_NAME, PROFILE_START_NS, CudaTrace
from traceview.report import build
from traceview.report.document import screen_of
from traceview.report.model import Report

LATER_PS = 4_321_000
NAMES = ("sgemm_128x64", NCCL_NAME, "MemcpyH2D", "MemcpyD2H", "MemcpyD2D", "Memset")
Recorded = tuple[int, int, str, Sequence[int]]
"""Device, stream, name, and when it begins and ends."""


def trace_of(events: Sequence[Recorded], bounds: Sequence[int] = ()) -> CudaTrace:
    """Events on three GPUs, and the bounds of steps that follow one another without a gap."""
    trace = CudaTrace("host0", start_ns=PROFILE_START_NS)
    for ordinal in range(3):
        trace.gpu(ordinal)
    trace.thread()
    for number, (start, end) in enumerate(pairwise(bounds)):
        trace.marker(number, start, end)
    for device, stream, name, (start, end) in events:
        trace.device_event(device, name, start, end, stream=stream)
    return trace


def traces(least_steps: int = 0) -> st.SearchStrategy[CudaTrace]:
    times = st.integers(0, 120)
    event = st.tuples(
        st.integers(0, 2),
        st.sampled_from([20, 21, 30]),
        st.sampled_from(NAMES),
        st.tuples(times, times).map(sorted),
    )
    least = least_steps and least_steps + 1
    bounds = st.lists(times, unique=True, min_size=least, max_size=6).map(sorted)
    return st.builds(trace_of, st.lists(event, min_size=1, max_size=24), bounds)


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


TOGETHER = trace_of(
    [
        (0, 20, NAMES[0], (0, 0)),
        (0, 20, NAMES[0], (1, 2)),
        (0, 20, NAMES[0], (1, 3)),
        (0, 20, NAMES[1], (1, 3)),
    ]
)
"""Events that begin together, which a file may hold in either order."""


@pytest.mark.parametrize(
    "write", [in_another_order, later, renumbered, streams_on_two_lines, streams_on_two_planes]
)
@settings(max_examples=12)
@given(trace=traces())
@example(trace=TOGETHER)
def test_how_it_is_written_does_not_matter(write: Callable[[Any], None], trace: CudaTrace) -> None:
    space = trace.space()
    expected = facts(analyzed(space))
    write(space)
    assert facts(analyzed(space), LATER_PS * (write is later)) == expected


# The first screen


FIXTURE = Path(__file__).resolve().parent.parent.parent / "fixtures" / "keras-fit-4"


@pytest.mark.parametrize("name", ["keras-fit-4", "slow-input-2", "no-markers-2"])
def test_the_first_screen_of_a_report_made_for_it_is_that_of_the_whole_report(name: str) -> None:
    run = FIXTURE.with_name(name)
    whole, made = (build.analyze(run, is_for_screen=is_for) for is_for in (False, True))
    assert screen_of(made) == screen_of(whole)
    assert made.results.op_steps is None
    # Evidence is what no first screen shows.
    of_made, of_whole = (
        [msgspec.structs.replace(finding, evidence=()) for finding in report.findings]
        for report in (made, whole)
    )
    assert of_made == of_whole
