"""The recorded traces are the files that fixtures/README.md describes, and hold what it says."""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from scripts.xspace import XSpace

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"


def _tables() -> dict[str, dict[str, str]]:
    """One row per fixture, the columns of all tables of the README that start with `fixture`."""
    rows: dict[str, dict[str, str]] = {}
    head: list[str] = []
    for line in (FIXTURES / "README.md").read_text("utf-8").splitlines():
        if not line.startswith("|"):
            head = []
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not head:
            head = cells
        elif head[0] == "fixture" and not cells[0].startswith("---"):
            rows.setdefault(cells[0], {}).update(zip(head, cells, strict=True))
    return rows


ROWS = _tables()
CAPTURED = "slow-input-2"


@cache
def _space(name: str) -> Any:
    return XSpace.FromString((FIXTURES / ROWS[name]["path"]).read_bytes())


@cache
def _events(name: str) -> list[tuple[str, str, dict[str, int]]]:
    """(thread, event name, integer stats) of all events."""
    events = []
    for plane in _space(name).planes:
        for line in plane.lines:
            thread = line.name.decode().split("/")[0]
            for event in line.events:
                stats = {
                    plane.stat_metadata[stat.metadata_id].name.decode(): (
                        stat.int64_value or stat.uint64_value
                    )
                    for stat in event.stats
                }
                events.append(
                    (thread, plane.event_metadata[event.metadata_id].name.decode(), stats)
                )
    return events


def test_readme_lists_exactly_the_recorded_files() -> None:
    assert len(ROWS) == 8
    listed = sorted(row["path"] for row in ROWS.values())
    found = sorted(p.relative_to(FIXTURES).as_posix() for p in FIXTURES.rglob("*.xplane.pb"))
    assert found == listed


@pytest.mark.parametrize("name", ROWS)
class TestFixture:
    def test_size_and_hash(self, name: str) -> None:
        data = (FIXTURES / ROWS[name]["path"]).read_bytes()
        assert len(data) == int(ROWS[name]["bytes"])
        assert len(data) < 300_000
        assert hashlib.sha256(data).hexdigest() == ROWS[name]["sha256"]

    def test_planes_and_host(self, name: str) -> None:
        planes = [plane.name for plane in _space(name).planes]
        assert planes == [b"/host:CPU", b"Task Environment"]
        assert list(_space(name).hostnames) == [b"host-a"]
        assert not _space(name).errors
        assert not _space(name).warnings

    def test_no_path_of_the_recording_machine(self, name: str) -> None:
        data = (FIXTURES / ROWS[name]["path"]).read_bytes()
        for root in (b"/tmp/", b"/root/", b"/home/", b"/usr/", b"/var/"):
            assert root not in data

    @pytest.mark.parametrize("marker", ["train", "Profiled batch"])
    def test_markers(self, name: str, marker: str) -> None:
        column = "`train` markers" if marker == "train" else "`Profiled batch`"
        numbers = sorted(stats["step_num"] for _, event, stats in _events(name) if event == marker)
        assert (" ".join(map(str, numbers)) or "none") == ROWS[name][column]

    def test_counts(self, name: str) -> None:
        row = ROWS[name]
        events = _events(name)
        assert len(events) == int(row["events"])
        assert sum(len(plane.lines) for plane in _space(name).planes) == int(row["threads"])
        assert sum("tf_function_call" in stats for *_, stats in events) == int(row["step calls"])
        runs = Counter(thread for thread, event, _ in events if event == "FunctionRun")
        assert runs.total() == int(row["root `FunctionRun`"])
        assert runs["python"] == int(row["of them on `python`"])
        waits = [e for _, e, _ in events if e == "IteratorGetNextOp::DoCompute"]
        assert len(waits) == int(row["`IteratorGetNextOp::DoCompute`"])

    def test_one_run_and_one_collective_per_device_and_step(self, name: str) -> None:
        devices, steps = int(name[-1]), int(ROWS[name]["step calls"])
        # A capture begins between asking for the batch of its first step and running it.
        asked = steps - (name == CAPTURED)
        assert int(ROWS[name]["of them on `python`"]) == devices * steps
        assert int(ROWS[name]["`IteratorGetNextOp::DoCompute`"]) == devices * asked
        keys = Counter(
            (stats["group_key"], stats["instance_key"])
            for _, event, stats in _events(name)
            if event.endswith(":CollectiveReduceV2")
        )
        assert list(keys.values()) == ([devices] * steps if devices > 1 else [])
        assert keys.total() == int(ROWS[name]["`CollectiveReduceV2` ops"])
