"""What a command refuses it says in one line and a hint, with an exit code, before it writes anything."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command import Command
from tests.reports import GOLDEN, full_report
from traceview.report.saved import to_json

pytestmark = pytest.mark.usefixtures("no_terminal")
TOPICS = sorted(path.stem for path in (GOLDEN / "refusals").iterdir())


@pytest.fixture
def folder(tmp_path: Path, fixtures: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: the recorded runs, one report, and files that are neither."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fixtures").symlink_to(fixtures)
    for name in ("empty", "damaged", "other"):
        (tmp_path / name).mkdir()
    for name, text in {
        "file": "",
        "broken.xplane.pb": "<!DOCTYPE html>",
        "damaged/a.json": "{",
        "other/newer.json": '{"schema_version": 3, "source": 0, "results": 0}',
        "report.json": to_json(full_report()),
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("topic", TOPICS)
def test_refusals(
    topic: str, command: Command, folder: Path, golden: Callable[[str, str], None]
) -> None:
    """A golden has command lines, each with its exit code and what it said; a new one needs its line only."""
    file = f"refusals/{topic}.txt"
    lines = re.findall(r"^\$ traceview (.+)$", (GOLDEN / file).read_text("utf-8"), re.MULTILINE)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    told = []
    for line in lines:
        done = command(*shlex.split(line))
        told.append(f"$ traceview {line}\n{done.err}exit code {done.code}\n")
        assert done.code, line
        assert done.out == "", line
        assert done.err.startswith("traceview: "), line
        assert done.err.count("\n") <= 2, line
        assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before, line
    golden(file, "\n".join(told))
