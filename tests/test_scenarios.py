"""The generated traces hold what their truths say, as far as that shows without traceview."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from scripts.scenarios import SCENARIOS, Scenario
from scripts.xspace import XSpace

ROOT = Path(__file__).resolve().parent.parent
CLASSES = ("compute", "collective", "h2d", "d2h", "d2d", "memset")
ABSOLUTE_NS = 10**15
Interval = tuple[str, int, int]


@pytest.fixture(params=sorted(SCENARIOS))
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return SCENARIOS[request.param]()


def _class(name: str, host_call: str) -> str:
    if "__amd_rocclr_copyBuffer" in name:
        return {"hipMemcpyHtoDAsync": "h2d", "hipMemcpyDtoHAsync": "d2h"}.get(host_call, "d2d")
    known = {"MemcpyH2D": "h2d", "MemcpyD2H": "d2h", "MemcpyD2D": "d2d", "MemcpyP2P": "d2d"}
    if name.startswith("Memset") or "__amd_rocclr_fillBuffer" in name:
        return "memset"
    return known.get(name, "collective" if name.startswith(("nccl", "void rccl")) else "compute")


def _correlation_id(plane: Any, event: Any) -> int | None:
    for stat in event.stats:
        if plane.stat_metadata[stat.metadata_id].name == b"correlation_id":
            return int(stat.uint64_value or stat.int64_value)
    return None


def _launches(space: Any) -> dict[int | None, str]:
    found: dict[int | None, str] = {}
    for plane in space.planes:
        if plane.name == b"/host:CPU":
            for event in (event for line in plane.lines for event in line.events):
                number = _correlation_id(plane, event)
                name = plane.event_metadata[event.metadata_id].name
                found[number] = name.decode(errors="replace")
    return found


def _start_ns(space: Any) -> int | None:
    for plane in space.planes:
        for stat in plane.stats:
            if plane.stat_metadata[stat.metadata_id].name == b"profile_start_time":
                return int(stat.uint64_value)
    return None


def _stream_events(space: Any, ordinal: int) -> Iterator[Interval]:
    """Every launched event of a stream: class, start and end after the profile's start."""
    launches = _launches(space)
    stamps = [line.timestamp_ns for plane in space.planes for line in plane.lines]
    origin_ns = (_start_ns(space) or min(stamps)) if min(stamps) > ABSOLUTE_NS else 0
    for plane in space.planes:
        if plane.name != b"/device:GPU:%d" % ordinal:
            continue
        for line in plane.lines:
            if not line.name.startswith((b"Stream #", b"CUPTI overhead")):
                continue
            for event in line.events:
                number = _correlation_id(plane, event)
                name = plane.event_metadata[event.metadata_id].name.decode(errors="replace")
                if number is not None and name not in ("MemoryAlloc", "MemoryFree"):
                    start = (line.timestamp_ns - origin_ns) * 1000 + event.offset_ps
                    yield _class(name, launches.get(number, "")), start, start + event.duration_ps


def _exclusive(events: list[Interval], start: int, end: int) -> dict[str, int]:
    """Time per class, each instant given to the first active class: by looking at every slice."""
    bounds = {start, end, *(moment for event in events for moment in event[1:])}
    cuts = sorted(bound for bound in bounds if start <= bound <= end)
    parts = dict.fromkeys((*CLASSES, "idle"), 0)
    for left, right in pairwise(cuts):
        active = {name for name, begin, stop in events if begin <= left and right <= stop}
        first = next((name for name in CLASSES if name in active), "idle")
        parts[first] += right - left
    return parts


def _load(scenario: Scenario) -> list[Any]:
    return [
        XSpace.FromString(trace.space().SerializeToString()) for trace in scenario.traces.values()
    ]


def _clock_shift(scenario: Scenario, host: str) -> int:
    """What is added to the times of a host by the truth about its clock, and by the origin that moves with it."""
    offset = {name: row["offset_ps"] for name, row in scenario.truth.get("clocks", {}).items()}
    starts = {name: _start_ns(trace.space()) or 0 for name, trace in scenario.traces.items()}
    first_ns = min(starts.values())
    moved = [(start - first_ns) * 1000 + offset.get(name, 0) for name, start in starts.items()]
    shift: int = offset.get(host, 0) - min(moved)
    return shift


def test_device_times_are_those_of_the_events(scenario: Scenario) -> None:
    spaces = _load(scenario)
    origin_ns = min(_start_ns(space) or 0 for space in spaces)
    for device, truth in scenario.truth["device_time"].items():
        if truth["busy_ps"] is None or "GPU" not in device:
            # A replica has no plane of its own, and a TPU its times elsewhere.
            continue
        host, _, name = device.rpartition("/")
        host = host or next(iter(scenario.traces))
        space = spaces[list(scenario.traces).index(host)]
        window = scenario.truth["windows"][host]
        shift = ((_start_ns(space) or 0) - origin_ns) * 1000 + _clock_shift(scenario, host)
        events = list(_stream_events(space, int(name.removeprefix("GPU:"))))
        begin = window["start_ps"] - shift
        parts = _exclusive(events, begin, begin + window["window_ps"])
        expected = {name: truth[f"exposed_{name}_ps"] for name in CLASSES[1:]}
        assert parts == {
            "compute": truth["compute_ps"],
            **expected,
            "idle": truth["idle_ps"],
        }, device
        counts = [sum(event[0] == name for event in events) for name in CLASSES]
        assert counts[0] == truth["kernel_count"]
        assert counts[1] == truth["collective_count"]
        assert sum(counts[2:5]) == truth["copy_count"]
        assert counts[5] == truth["memset_count"]


def test_truth_agrees_with_itself(scenario: Scenario) -> None:
    truth = scenario.truth
    for device in truth["device_time"].values():
        if device["busy_ps"] is not None:
            assert device["busy_ps"] + device["idle_ps"] == device["window_ps"]
            for name in CLASSES[1:]:
                assert device["total_ps"][name] >= device[f"exposed_{name}_ps"]
    for device, idle in truth.get("idle", {}).items():
        assert sum(idle["states"].values()) <= truth["device_time"][device]["idle_ps"]
    steps = truth.get("steps", {})
    starts, durations = steps.get("start_ps", []), steps.get("duration_ps", [])
    assert len(starts) == len(durations)
    assert (
        starts[1:]
        == [start + duration for start, duration in zip(starts, durations, strict=True)][:-1]
    )
    findings = truth.get("findings", {"must": [], "must_not": []})
    assert not set(findings["must"]) & set(findings["must_not"])


def test_every_launched_event_has_its_launch(scenario: Scenario) -> None:
    for space in _load(scenario):
        launches = _launches(space)
        for plane in space.planes:
            for event in (event for line in plane.lines for event in line.events):
                name = plane.event_metadata[event.metadata_id].name
                if name not in (b"MemoryAlloc", b"MemoryFree"):
                    assert _correlation_id(plane, event) in {None, *launches}


def test_name_is_that_of_the_registry() -> None:
    for name, build in SCENARIOS.items():
        assert build().name == name
        assert (build.__doc__ or "").strip()


def test_files_are_written_below_the_log_directory_and_repeat(tmp_path: Path) -> None:
    first = SCENARIOS["duplicate_files"]().write(tmp_path / "a")
    again = SCENARIOS["duplicate_files"]().write(tmp_path / "b", "later")
    folder = Path("plugins/profile/run1")
    assert first == [tmp_path / "a" / folder / f"host{n}.xplane.pb" for n in (0, 1)]
    assert len({path.read_bytes() for path in (*first, *again)}) == 1


def test_command_line_writes_and_lists(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scripts.scenarios"]
    written = subprocess.run(
        [*command, "A", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert Path(written.stdout.strip()).exists()
    listed = subprocess.run(
        [*command, "--list"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert len(listed.stdout.splitlines()) == len(SCENARIOS)
