"""Baselines are small, are read back as they were saved, and compare as the whole reports do."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.command import Command
from tests.reports import bare_report, full_report
from traceview.base.errors import TraceFormatError
from traceview.comparison.build import compare
from traceview.comparison.history import baseline_at, file_content
from traceview.report import saved
from traceview.report.build import analyze
from traceview.report.saved import load_report

pytestmark = pytest.mark.usefixtures("no_terminal")
MOST_BYTES = 30_000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default folder below a working directory of the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".traceview" / "baselines"


@pytest.mark.parametrize("name", ["slow-input-2", "no-markers-2"])
def test_a_baseline_compares_as_its_run(name: str, fixtures: Path, tmp_path: Path) -> None:
    whole = analyze(fixtures / name, lanes=True)
    path = tmp_path / "small.json.gz"
    path.write_bytes(file_content(whole))
    assert path.stat().st_size <= MOST_BYTES
    again = load_report(path)
    assert file_content(again) == file_content(whole)
    other = analyze(fixtures / "custom-loop-2")
    assert compare([again], [other], force=True) == compare([whole], [other], force=True)
    assert compare([other], [again], force=True) == compare([other], [whole], force=True)


def test_a_damaged_compressed_report_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = file_content(full_report())
    path = tmp_path / "r.json.gz"
    for damaged, problem in (
        (content[:-30], "ends too early"),
        (content[:20] + b"\xff" * 20 + content[40:], "cannot be decompressed"),
        (gzip.compress(b"{}"), "not a saved report"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(TraceFormatError, match=problem):
            load_report(path)
    path.write_bytes(content)
    monkeypatch.setattr(saved, "MOST_DECOMPRESSED_BYTES", 1000)
    with pytest.raises(TraceFormatError, match="is too large"):
        load_report(path)


def test_a_baseline_of_several_captures(
    command: Command, fixtures: Path, folder: Path, tmp_path: Path
) -> None:
    """Each capture has a file; fewer captures leave none behind; one that is given again counts once."""
    captures = [str(fixtures / name) for name in ("slow-input-2", "plain-1", "custom-loop-2")]
    assert command("gate", *captures, captures[0], "--save", "main").code == 0
    names = ["1.json.gz", "2.json.gz", "3.json.gz"]
    assert sorted(path.name for path in (folder / "main").iterdir()) == names
    runs = [report.source.run for report in baseline_at("main")]
    assert runs == [analyze(capture).source.run for capture in captures]
    (folder / "main" / "2.json.gz").write_text("{")
    assert command("gate", captures[0], "--baseline", "main").code == 4
    assert command("gate", *captures[:2], "--save", "main", "--force", "--redact").code == 0
    assert sorted(path.name for path in (folder / "main").iterdir()) == names[:2]
    assert not any(
        b"vm-" in gzip.decompress(path.read_bytes()) for path in (folder / "main").iterdir()
    )


def test_a_run_without_steps_is_no_baseline(command: Command, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "bare.json"
    path.write_text(saved.to_json(bare_report()), encoding="utf-8")
    done = command("gate", str(path), "--save", "main")
    assert done.code == 7
    assert "no step times to compare with: no steps: nothing repeats" in done.err
    assert not folder.exists()


def test_a_name_with_a_slash_is_a_path(command: Command, fixtures: Path, folder: Path) -> None:
    run = str(fixtures / "plain-1")
    assert command("gate", run, "--save", "a b").code == 0
    assert (folder / "a b" / "1.json.gz").is_file()
    assert command("gate", run, "--save", "./elsewhere/main").code == 0
    assert Path("elsewhere/main/1.json.gz").is_file()
    for name in ("a b", "elsewhere/main", "./elsewhere/main/1.json.gz"):
        assert command("gate", run, "--baseline", name).code == 0
    assert command("gate", run, "--save", ".").code == 0
    assert Path("1.json.gz").is_file()
    assert command("gate", run, "--save", "").code == 2
    assert command("gate", run, "--save", "memory://main").code == 2
