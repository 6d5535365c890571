"""`report` writes documents of a run and of a saved report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import traceview
from tests.command import Command
from traceview.report.formats import DOCUMENTS
from traceview.report.formats import FILES as NAMES

pytestmark = pytest.mark.usefixtures("no_terminal")
FILES = set(NAMES.values())


def written(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_with_every_document(command: Command, loop: str, tmp_path: Path) -> None:
    done = command("report", loop, "-o", str(tmp_path / "out"))
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("traceview: wrote report.html, report.md, report.json")
    assert written(tmp_path / "out") == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    data = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    assert data["command"][:3] == ["traceview", "report", loop]
    for name, make in DOCUMENTS.items():
        alone = make(traceview.analyze(loop, lanes=True))
        assert (tmp_path / "out" / NAMES[name]).read_text("utf-8") == alone
        saved = command("report", str(tmp_path / "out" / "report.json"), "--format", name)
        assert saved.out == alone


def test_the_command_on_the_page_makes_the_page_again(
    command: Command, loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--steps", "4:7", "--window", "steps"]
    assert command("report", loop, *options, "-o", str(tmp_path / "first")).code == 0
    saved = json.loads((tmp_path / "first" / "report.json").read_text("utf-8"))
    monkeypatch.chdir(tmp_path)
    assert command(*saved["command"][1:]).code == 0
    for name in FILES:
        again = (tmp_path / "report" / name).read_bytes()
        assert again == (tmp_path / "first" / name).read_bytes()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_one_document(command: Command, loop: str, tmp_path: Path, name: str) -> None:
    shown = command("report", loop, "--format", name)
    by_name = tmp_path / "any-name"
    by_ending = tmp_path / f"x{Path(NAMES[name]).suffix}"
    assert command("report", loop, "--format", name, "-o", str(by_name)).code == 0
    assert command("report", loop, "-o", str(by_ending)).code == 0
    assert by_name.read_bytes() == by_ending.read_bytes() == shown.out.encode()
    assert by_name.stat().st_size > 1000


def test_nothing_is_replaced_unless_asked(command: Command, loop: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    assert command("report", loop, "-o", str(out)).code == 0
    before = {name: (out / name).read_bytes() for name in written(out)}
    done = command("report", loop, "--steps", "4:6", "-o", str(out))
    assert done.code == 6
    assert (
        done.err == f"traceview: error: {out / 'report.html'} exists\nhint: --force replaces it\n"
    )
    assert {name: (out / name).read_bytes() for name in written(out)} == before
    assert command("report", loop, "--steps", "4:6", "--force", "-o", str(out)).code == 0
    assert written(out) == FILES | {"notes.txt"}
    assert (out / "report.md").read_bytes() != before["report.md"]


def test_a_full_disk_leaves_no_part_of_a_file(
    command: Command, loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, replace = tmp_path / "out", Path.replace

    def fills_up(path: Path, place: str) -> Path:
        if place.endswith(NAMES["json"]):
            raise OSError(28, "No space left on device")
        return replace(path, place)

    monkeypatch.setattr(Path, "replace", fills_up)
    done = command("report", loop, "-o", str(out))
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"traceview: error: cannot write {out / NAMES['json']}: No space left on device\n"
    )
    assert written(out) == FILES - {NAMES["json"]}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "no output is named"),
        (("--format", "yaml"), "--format yaml: no such choice"),
        (("--format", "markdwon"), "did you mean markdown?"),
        (("-o", "no/such/folder/out"), "there is no directory no/such/folder"),
        (("--open", "report", "-o", "out"), "--output cannot be combined with --open report"),
        (("--port", "1", "-o", "out"), "--port needs --open"),
        (("--open", "xprof", "--redact"), "--redact cannot be combined with --open xprof"),
        (("--steps", "100:", "-o", "out"), "step"),
    ],
)
def test_wrong_usage_is_said_before_anything_is_written(
    command: Command,
    loop: str,
    arguments: tuple[str, ...],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command("report", loop, *arguments)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [("--steps", "1:2"), ("--run", "a"), ("--salvage",)])
def test_a_saved_report_cannot_follow_options_of_traces(
    command: Command, loop: str, tmp_path: Path, options: tuple[str, ...]
) -> None:
    saved = tmp_path / "report.json"
    assert command("analyze", loop, "-o", str(saved)).code == 0
    for name in ("analyze", "report"):
        done = command(name, str(saved), *options)
        assert (done.code, done.out) == (2, "")
        assert f"{options[0]} needs a trace" in done.err


def test_a_saved_report_is_opened_in_no_viewer_of_traces(
    command: Command, loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("traceview.export.viewers.show", lambda _: False)
    saved = tmp_path / "report.json"
    assert command("analyze", loop, "-o", str(saved)).code == 0
    assert command("report", str(saved), "--open", "report").out.startswith("file://")
    done = command("report", str(saved), "--open", "perfetto")
    assert (done.code, done.out) == (2, "")
    assert "--open perfetto needs a trace" in done.err


def test_reports_are_not_written_among_the_runs_that_are_read(
    command: Command, tmp_path: Path, fixtures: Path
) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(fixtures / "plain-1", logs)
    trace = next(logs.rglob("*.xplane.pb"))
    for read in (logs, logs / "plugins", trace.parent, trace):
        for place in (logs, logs / "plugins" / "profile", trace.parent):
            done = command("report", str(read), "-o", str(place), "--force")
            assert (done.code, "the log directory that the command reads" in done.err) == (2, True)
    assert command("report", str(logs), "-o", str(logs / "report")).code == 0
