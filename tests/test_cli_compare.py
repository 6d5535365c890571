"""`traceview compare` says what changed between two sides, in every format, or in one line why it cannot."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import traceview
from scripts.scenarios import SCENARIOS
from scripts.scenarios.pairs import PAIRS
from tests.command import Command
from tests.reports import of_run
from traceview.comparison.model import Comparison
from traceview.report.saved import load_report, schema_of, to_json

pytestmark = pytest.mark.usefixtures("no_terminal")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A run before and after its wait for input became five times as long."""
    before, after = PAIRS["input_fivefold"]().write(tmp_path_factory.mktemp("runs"))
    return str(before[0]), str(after[0])


@pytest.fixture(scope="module")
def saved(runs: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Their reports."""
    folder = tmp_path_factory.mktemp("saved")
    paths = [folder / "before.json", folder / "after.json"]
    for run, path in zip(runs, paths, strict=True):
        path.write_text(traceview.analyze(run).to_json(), encoding="utf-8")
    return str(paths[0]), str(paths[1])


def test_a_cut_file_is_no_side(command: Command, runs: tuple[str, str], tmp_path: Path) -> None:
    """The hint is a command that works."""
    (source,) = Path(runs[0]).rglob("*.xplane.pb")
    cut = tmp_path / "it's.xplane.pb"
    cut.write_bytes(source.read_bytes()[:-100])
    done = command("compare", str(cut), runs[1])
    _, hint = done.err.splitlines()
    assert (done.code, done.out) == (4, "")
    salvage = shlex.split(hint.removeprefix("hint: what is readable of it: "))
    assert command(*salvage[1:]).code == 0


def test_every_format_says_the_same(
    command: Command, runs: tuple[str, str], tmp_path: Path
) -> None:
    screen = command("compare", *runs, "--width", "80").out.splitlines()
    assert len(screen) <= 24
    assert max(map(len, screen)) <= 80
    data = json.loads(command("compare", *runs, "--format", "json").out)
    schema = json.loads(schema_of(Comparison, "traceview comparison"))
    Draft202012Validator(schema).validate(data)
    markdown = command("compare", *runs, "--format", "markdown").out
    html = tmp_path / "c.html"
    assert command("compare", *runs, "-o", str(html)).code == 0
    text = tmp_path / "c.txt"
    assert command("compare", *runs, "-o", str(text)).code == 0
    assert markdown.startswith(f"## {data['verdict']}\n")
    assert html.read_text(encoding="utf-8") == traceview.compare(*runs).to_html()
    assert data["verdict"] in html.read_text(encoding="utf-8")
    joined = " ".join(text.read_text(encoding="utf-8").split())
    assert joined.startswith(data["verdict"])
    for shown in (markdown, joined, html.read_text(encoding="utf-8")):
        assert "input" in shown
        assert "+16.0 ms" in shown


def recorded_again(path: str, folder: Path, name: str) -> str:
    """A saved report as of another run with the same times."""
    again = folder / f"{name}.json"
    again.write_text(to_json(of_run(load_report(Path(path)), name)), encoding="utf-8")
    return str(again)


def test_several_captures_of_each_side(
    command: Command, runs: tuple[str, str], saved: tuple[str, str], tmp_path: Path
) -> None:
    before, after = runs
    more = [
        recorded_again(path, tmp_path, name)
        for path, name in zip(saved, ("before", "after"), strict=True)
    ]
    done = command(
        "compare", before, after, "--before", more[0], "--after", more[1], "--format", "json"
    )
    data = json.loads(done.out)
    assert [len(data[side]) for side in ("before", "after")] == [2, 2]
    assert data["step"]["basis"] == "captures"
    alone = json.loads(command("compare", *runs, "--format", "json").out)
    assert data["step"]["difference_ps"] == alone["step"]["difference_ps"]
    assert not any("One capture of a side" in limit for limit in data["limits"])


def test_a_run_on_both_sides(
    command: Command, runs: tuple[str, str], saved: tuple[str, str], tmp_path: Path
) -> None:
    before = runs[0]
    for other in (before, saved[0]):
        done = command("compare", before, other)
        words = "Both sides are one run, so nothing can differ: 29.1 ms per step"
        assert (done.code, done.out.splitlines()[0]) == (0, words)
    again = recorded_again(saved[0], tmp_path, "again")
    assert command("compare", before, again).out.startswith("No verdict: 29.1 → 29.1 ms")
    shared = json.loads(command("compare", *runs, "--after", before, "--format", "json").out)
    assert not shared["verdict"].startswith("Both")


def test_runs_without_steps_are_refused(command: Command, tmp_path: Path) -> None:
    for name in ("plain", "no_steps"):
        SCENARIOS[name]().write(tmp_path / name)
    done = command("compare", str(tmp_path / "plain"), str(tmp_path / "no_steps"), "--force")
    assert done.code == 7
    assert done.err.startswith("traceview: error: the run after, run1, has no step to compare: ")
    assert len(done.err.splitlines()) == 1


def test_redaction_leaves_no_name(command: Command, runs: tuple[str, str]) -> None:
    folder = Path(runs[0]).parent.name
    for format_ in ("terminal", "markdown", "json", "html"):
        shown = command("compare", *runs, "--redact", "--format", format_).out
        assert folder not in shown
        assert "model/dense" not in shown
        assert "The step takes 54% more time: 29.1 → 44.9 ms" in " ".join(shown.split())


def test_in_python(runs: tuple[str, str], tmp_path: Path) -> None:
    before = traceview.analyze(runs[0])
    comparison = traceview.compare(before, [runs[1]])
    assert comparison.frame("states")["difference_ps"].sum() == comparison.step.difference_ps
    assert set(comparison.frame("devices")["device"]) == {"GPU:0", "GPU:1", "GPU:2", "GPU:3"}
    assert "model/dense" in set(comparison.frame("ops")["op"])
    assert list(comparison.frame("findings")["status"]) == ["changed"]
    assert comparison.verdict in repr(comparison)
    assert comparison.to_json().startswith("{")
    assert comparison.to_markdown().startswith("## The step takes 54% more time")
    assert comparison.to_html().startswith("<!DOCTYPE html>")
    with pytest.raises(traceview.UsageError, match="no capture of the side after"):
        traceview.compare(before, [])
    SCENARIOS["plain"]().write(tmp_path)
    with pytest.raises(traceview.ComparisonError, match="devices: 4 before, 1 after"):
        traceview.compare(before, tmp_path)
