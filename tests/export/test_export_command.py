from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.command import Command
from tests.export.perfetto_reading import read


def test_of_several_runs_the_one_that_is_read_is_named(
    command: Command, fixtures: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "logs" / "plugins" / "profile"
    (recorded,) = (fixtures / "plain-1" / "plugins" / "profile").iterdir()
    for name in ("first", "second"):
        shutil.copytree(recorded, runs / name)
    out = str(tmp_path / "x.pftrace")
    shown = command("export", str(tmp_path / "logs"), "-o", out).err
    assert re.match(r"traceview: run (first|second) of 2 runs; --run NAME chooses another\n", shown)
    chosen = command("export", str(tmp_path / "logs"), "--run", "first", "-o", out, "--force").err
    assert "of 2 runs" not in chosen


def test_steps_narrow_the_window(command: Command, loop: str, tmp_path: Path) -> None:
    def steps(*arguments: str) -> list[str]:
        out = tmp_path / "x.pftrace"
        assert command("export", loop, "-o", str(out), "--force", *arguments).code == 0
        found = read(out.read_bytes())
        return [one.name for one in found.slices if found.track_name(one.track) == "steps"]

    assert steps("--steps", "4:6") == ["step 4", "step 5"]
    assert len(steps()) > 2


def test_nothing_is_left_of_a_trace_that_could_not_be_written(
    command: Command, loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> object:
        raise MemoryError

    monkeypatch.setattr("traceview.export.perfetto._events", fails)
    done = command("export", loop, "-o", str(tmp_path / "x.pftrace"))
    assert done.code == 4
    assert list(tmp_path.iterdir()) == []
