"""Whoever gives another document of traceview than a report is told which one it is, and how to get a report."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import Command

HINT = "traceview report LOGDIR --format json -o FILE.json saves a report"
pytestmark = pytest.mark.usefixtures("no_terminal")


@pytest.fixture
def runs(fixtures: Path) -> tuple[str, str]:
    return str(fixtures / "slow-input-2"), str(fixtures / "custom-loop-2")


def written(path: Path, command: Command, *words: str) -> Path:
    done = command(*words)
    path.write_text(done.out, encoding="utf-8")
    assert done.out
    return path


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("gate", "RUN", "--require", "busy_ratio>=0"), "a verdict, written by traceview gate"),
        (("history", "REPORTS"), "a history, written by traceview history"),
        (("show", "devices", "RUN"), "a table of traceview"),
        (("show", "runs", "RUN"), "a table of traceview"),
    ],
)
def test_each_document_is_known(
    words: tuple[str, ...], name: str, command: Command, runs: tuple[str, str], tmp_path: Path
) -> None:
    reports = tmp_path / "reports"
    reports.mkdir()
    written(reports / "a.json", command, "report", runs[0], "--format", "json")
    places = {"RUN": runs[0], "REPORTS": str(reports)}
    filled = [places.get(word, word) for word in words]
    file = written(tmp_path / "x.json", command, *filled, "--format", "json")
    done = command("analyze", str(file))
    assert (done.code, f"{file}: this is {name}, and no saved report" in done.err) == (4, True)
    assert HINT in done.err
