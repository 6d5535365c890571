"""`report` and `analyze` write documents of a run and of a saved report, follow their options, and say in one line why they cannot."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import traceview
from scripts.scenarios import SCENARIOS
from tests.command import Command
from tests.hangs import STEP, hang, worker
from traceview.analysis.machine.hang import content_of, write_up
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


def test_a_saved_report_is_opened(
    command: Command, loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("traceview.export.viewers.show", lambda _: False)
    saved = tmp_path / "report.json"
    assert command("analyze", loop, "-o", str(saved)).code == 0
    assert command("report", str(saved), "--open", "report").out.startswith("file://")


def test_a_report_never_replaces_what_it_is_made_of(
    command: Command, tmp_path: Path, fixtures: Path
) -> None:
    logs, out = tmp_path / "logs", tmp_path / "logs" / "report-1.2"
    shutil.copytree(fixtures / "plain-1", logs)
    assert command("report", str(logs), "-o", str(out)).code == 0
    saved = out / "report.json"
    for read, place in ((logs, logs), (out, out), (saved, out), (out, saved), (saved, saved)):
        done = command("report", str(read), "-o", str(place), "--force")
        assert (done.code, "is what the command reads" in done.err) == (2, True)


# `traceview analyze`


def test_one_screen_or_everything(command: Command, loop: str, tmp_path: Path) -> None:
    """--full and a file have all of the report; a pipe has the screen."""
    done = command("analyze", loop)
    assert (done.code, done.err) == (0, "")
    screen, full = done.out, command("analyze", loop, "--full").out
    assert "\x1b" not in screen
    assert len(screen.splitlines()) <= 24 < len(full.splitlines())
    assert "Longest gaps" in full
    assert "Longest gaps" not in screen
    assert f"traceview analyze {loop} --full\n" in screen
    assert command("analyze", loop, "-o", "-").out.startswith("run ")
    command("analyze", loop, "-o", str(tmp_path / "report.txt"))
    assert (tmp_path / "report.txt").read_text("utf-8") == full
    saved = str(tmp_path / "report.json")
    command("analyze", loop, "-o", saved)
    again = command("analyze", saved).out
    assert again.endswith(f"traceview analyze {saved} --full\n")
    # A longer command takes a line more, for which a finding below says less of what to do.
    assert again.startswith(screen.partition("What each device")[0])


def test_commands_name_the_run_as_it_was_typed(command: Command, tmp_path: Path) -> None:
    """The folder of an older run is not the log directory, whose newest run is another one."""
    for name in ("run1", "run2"):
        SCENARIOS["D"]().write(tmp_path, name)
    run = tmp_path / "plugins" / "profile" / "run1"
    for arguments, shown in (
        ([str(run)], str(run)),
        ([str(tmp_path), "--run", "run1"], f"{tmp_path} --run run1"),
        ([str(tmp_path)], f"{tmp_path} --run run2"),
    ):
        out = command("analyze", *arguments).out
        assert f"traceview show devices {shown}\n" in out
        assert f"traceview analyze {shown} --full\n" in out


def test_damage_is_an_error_and_salvage_is_not(command: Command, loop: str, tmp_path: Path) -> None:
    (path,) = Path(loop).rglob("*.xplane.pb")
    cut = tmp_path / "cut.xplane.pb"
    cut.write_bytes(path.read_bytes()[:-1000])
    assert command("analyze", str(cut)).code == 4
    saved = command("analyze", str(cut), "--salvage", "--width", "200")
    assert saved.code == 0
    assert "Capture: degraded, " in saved.out
    assert f"traceview analyze {cut} --salvage --full\n" in saved.out
    assert "damaged" in command("analyze", str(cut), "--salvage", "--full").out
    # The names of its events come after them.
    cut.write_bytes(path.read_bytes()[:2000])
    for options in ((), ("--salvage",)):
        done = command("analyze", str(cut), *options)
        assert done.code == 4
        assert "hint: nothing of it can be saved: " in done.err
        assert "--salvage" not in done.err


@pytest.mark.parametrize(
    ("steps", "numbers"),
    [("4:6", [4, 5]), (":5", [3, 4]), ("7:", [7, 8]), (" 4 : 5 ", [4]), ("0:100", [*range(3, 9)])],
)
def test_steps_are_half_open(command: Command, loop: str, steps: str, numbers: list[int]) -> None:
    done = command("analyze", loop, "--format", "json", "--steps", steps)
    assert [step["number"] for step in json.loads(done.out)["results"]["steps"]["steps"]] == numbers


# Hangs


def write_hang(folder: Path) -> None:
    case = hang(STEP, task="worker 0", workers=(worker(),))
    (folder / "gpu1.hang.json").write_bytes(write_up(content_of(case))[0][".json"])


def test_a_hang_without_a_trace_is_shown(tmp_path: Path, command: Command) -> None:
    write_hang(tmp_path)
    shown = command("analyze", str(tmp_path), "--width", "160")
    assert (
        "No step has ended for 60.0 s since step 41 ended at 2027-01-15\n08:00:00 UTC." in shown.out
    )
    assert "worker 1 did not reach a collective" in shown.out
    data = json.loads(command("analyze", str(tmp_path), "--format", "json").out)
    assert data["hangs"][0]["findings"][0]["code"] == "hang"
    redacted = command("analyze", str(tmp_path), "--redact").out
    assert "worker 1 did not reach a collective" in redacted
    assert "write_summary" not in redacted
    assert "gpu1" not in redacted


def test_a_hang_beside_a_trace_is_a_finding_of_its_report(
    tmp_path: Path, loop: str, command: Command
) -> None:
    run = tmp_path / "run"
    shutil.copytree(loop, run)
    (trace,) = run.rglob("*.xplane.pb")
    write_hang(trace.parent)
    report = json.loads(command("analyze", str(run), "--format", "json").out)
    assert "hang" in [finding["code"] for finding in report["findings"]]
    assert report["results"]["hangs"]["hangs"][0]["step_function"] == "train_step"
    full = command("analyze", str(run), "--full", "--width", "160").out
    assert "No step has ended for 60.0 s since step 41 ended" in full
    (trace.parent / "gpu1.hang.json").write_text("{}", encoding="utf-8")
    damaged = json.loads(command("analyze", str(run), "--format", "json").out)
    assert "hang-unreadable" in [problem["code"] for problem in damaged["capture"]["problems"]]
