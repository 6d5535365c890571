"""The generated traces hold what their truths say, as far as that shows without traceview."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.scenarios import SCENARIOS, Scenario
from scripts.xspace import XSpace

ROOT = Path(__file__).resolve().parent.parent
CLASSES = ("compute", "collective", "h2d", "d2h", "d2d", "memset")
Interval = tuple[str, int, int]


@pytest.fixture(scope="module", params=sorted(SCENARIOS))
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return SCENARIOS[request.param]()


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


def _load(scenario: Scenario) -> list[Any]:
    return [
        XSpace.FromString(trace.space().SerializeToString()) for trace in scenario.traces.values()
    ]


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
