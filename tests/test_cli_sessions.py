"""What commands say of recorded runs, and what they refuse: in one line and a hint, with an exit code, before they write anything."""

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
SESSIONS = sorted(path.relative_to(GOLDEN).as_posix() for path in GOLDEN.glob("commands/*"))
REFUSALS = sorted(path.relative_to(GOLDEN).as_posix() for path in GOLDEN.glob("refusals/*"))


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
        "budget.toml": 'require = ["finding:unused-gpu absent"]',
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def lines_of(file: str) -> list[str]:
    """The commands in a golden, each of which is followed by what it said; a new one needs its line only."""
    return re.findall(r"^\$ traceview (.+)$", (GOLDEN / file).read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("file", SESSIONS)
def test_sessions(
    file: str, command: Command, folder: Path, golden: Callable[[str, str], None]
) -> None:
    """Each command goes on where the one before it ended."""
    told = []
    for line in lines_of(file):
        done = command(*shlex.split(line))
        # How small a file becomes depends on the version of zlib.
        said = re.sub(r"\(\S+ kB\)", "(… kB)", f"{done.out}{done.err}")
        told.append(f"$ traceview {line}\n{said}exit code {done.code}\n")
    golden(file, "\n".join(told))


@pytest.mark.parametrize("file", REFUSALS)
def test_refusals(
    file: str, command: Command, folder: Path, golden: Callable[[str, str], None]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    told = []
    for line in lines_of(file):
        done = command(*shlex.split(line))
        told.append(f"$ traceview {line}\n{done.err}exit code {done.code}\n")
        assert done.code, line
        assert done.out == "", line
        assert done.err.startswith("traceview: "), line
        assert done.err.count("\n") <= 2, line
        assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before, line
    golden(file, "\n".join(told))
