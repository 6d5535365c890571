"""`traceview gate`: exit codes, formats, and what GitHub's environment gets."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from scripts.shapes import write_hosts
from tests.command import Command
from traceview.report.saved import load_report

pytestmark = pytest.mark.usefixtures("no_terminal")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Baselines and files of a test are its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


def test_files(command: Command, slow: str, tmp_path: Path) -> None:
    asked = ("gate", slow, "--require", "step_time_ms <= 60", "--junit", "gate.xml")
    assert command(*asked, "-o", "gate.md").code == 10
    assert Path("gate.md").read_text("utf-8").startswith("## Gate failed: ")
    suite = ET.parse("gate.xml").getroot()[0]
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("1", "1")
    assert command(*asked, "-o", "gate.md").code == 6
    assert command(*asked, "-o", "gate.json").code == 10
    assert json.loads(Path("gate.json").read_text("utf-8"))["outcome"] == "failed"


def test_github(
    command: Command, slow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    done = command("gate", slow, "--require", "step_time_ms <= 60", "--github")
    assert done.code == 10
    lines = done.out.splitlines()
    token = lines[0].removeprefix("::stop-commands::")
    assert re.fullmatch(r"[0-9a-f]{32}", token)
    assert lines[-2] == f"::{token}::"
    assert lines[-1].startswith("::error title=traceview gate%3A step_time_ms <= 60::65.4 ms, ")
    assert summary.read_text("utf-8").startswith("before\n## Gate failed: ")


@pytest.mark.parametrize("way", ["junit", "github"])
def test_a_file_beside_that_cannot_be_written_does_not_change_a_verdict(
    command: Command, slow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    place = str(tmp_path / "nowhere" / "file")
    asked: tuple[str, ...] = ("--github",)
    if way == "junit":
        asked = ("--junit", place)
    else:
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", place)
    for condition, code in (
        ("step_time_ms <= 65", 10),
        ("memory_peak_gb <= 300", 7),
        ("step_time_ms <= 66", 2),
    ):
        done = command("gate", slow, "--require", condition, *asked)
        assert done.code == code
        assert condition in done.out
        (line,) = done.err.splitlines()
        assert line.startswith(f"traceview: error: cannot write {place}: ")


def test_the_verdict_as_junit_never_replaces_what_is_judged(command: Command, slow: str) -> None:
    assert command("analyze", slow, "-o", "report.json").code == 0
    before = Path("report.json").read_bytes()
    done = command(
        *("gate", "report.json", "--require", "step_time_ms <= 65", "--junit", "report.json")
    )
    assert (done.code, "is what the command reads" in done.err) == (10, True)
    assert Path("report.json").read_bytes() == before


def test_a_report_of_some_hosts_says_of_how_many_and_fails_unless_that_is_allowed(
    command: Command, tmp_path: Path
) -> None:
    logdir = write_hosts(tmp_path / "hosts", 3)
    asked = ["gate", str(logdir), "--require", "step_time_ms <= 1000"]
    assert command(*asked).code == 0
    sorted(logdir.rglob("*.xplane.pb"))[1].write_bytes(b"no trace")
    done = command("analyze", str(logdir))
    assert (done.code, "2 of 3 hosts: " in done.out) == (0, True)
    assert command(*asked).code == 10
    assert command(*asked, "--require", "absent_hosts <= 1").code == 0
    saved = tmp_path / "report.json"
    command("analyze", str(logdir), "-o", str(saved))
    assert load_report(saved).verdict.headline.startswith("2 of 3 hosts: ")
