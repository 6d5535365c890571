"""`traceview analyze` follows its options, and says in one line why it cannot."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from scripts.scenarios import SCENARIOS
from tests.command import Command
from tests.hangs import STEP, hang, worker
from traceview.analysis.machine.hang import content_of, write_up

pytestmark = pytest.mark.usefixtures("no_terminal")


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


@pytest.mark.parametrize(("path", "code"), [("missing", 3), ("logs", 3), ("broken.xplane.pb", 4)])
def test_exit_codes_of_what_cannot_be_read(
    command: Command, tmp_path: Path, path: str, code: int
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "broken.xplane.pb").write_bytes(b"<!DOCTYPE html>")
    where = tmp_path / path
    done = command("analyze", str(where))
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith(f"traceview: error: {where}")


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


@pytest.mark.parametrize(
    ("steps", "numbers"),
    [("4:6", [4, 5]), (":5", [3, 4]), ("7:", [7, 8]), (" 4 : 5 ", [4]), ("0:100", [*range(3, 9)])],
)
def test_steps_are_half_open(command: Command, loop: str, steps: str, numbers: list[int]) -> None:
    done = command("analyze", loop, "--format", "json", "--steps", steps)
    assert [step["number"] for step in json.loads(done.out)["results"]["steps"]["steps"]] == numbers


@pytest.mark.parametrize(
    ("steps", "hint"),
    [
        ("5", "for step 5 alone: --steps 5:6"),
        *(
            (text, "2:5 is steps 2, 3 and 4")
            for text in (":", "a:b", "1:2:3", "-2:", "٣:", "9" * 30 + ":")
        ),
        *((text, "B is the first step left out") for text in ("5:5", "6:4")),
    ],
)
def test_bad_steps_say_how(command: Command, loop: str, steps: str, hint: str) -> None:
    done = command("analyze", loop, f"--steps={steps}")
    assert done.code == 2
    assert f"hint: {hint}" in done.err


@pytest.mark.parametrize("options", ["-o report.JSON", "-o report --format json"])
def test_the_ending_of_the_file_chooses_the_format(
    options: str, command: Command, loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("analyze", loop, *options.split()).code == 0
    (path,) = tmp_path.iterdir()
    json.loads(path.read_text("utf-8"))
    assert command("analyze", loop, "-o", "-").out.startswith("run ")


@pytest.mark.parametrize(
    ("command_name", "ending", "known"),
    [
        ("analyze", "csv", ".json, .txt"),
        ("analyze", "html", ".json, .txt"),
        ("show ops", "xlsx", ".csv, .json, .parquet, .txt"),
    ],
)
def test_an_ending_that_is_no_format(
    command: Command, loop: str, tmp_path: Path, command_name: str, ending: str, known: str
) -> None:
    path = tmp_path / f"report.{ending}"
    done = command(*command_name.split(), loop, "-o", str(path))
    assert (done.code, path.exists()) == (2, False)
    assert f"no format has the ending .{ending}" in done.err
    assert f"hint: known endings: {known};" in done.err
    assert command(*command_name.split(), loop, "-o", str(path), "--format", "json").code == 0
    assert command(*command_name.split(), loop, "-o", str(tmp_path / "report")).code == 0


@pytest.mark.parametrize("name", ["analyze", "show ops", "show runs"])
def test_an_empty_path_is_not_the_current_directory(command: Command, name: str) -> None:
    done = command(*name.split(), "")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("traceview: error: the path is empty\n")


def test_an_existing_file_stays(command: Command, loop: str, tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    path.write_text("mine")
    done = command("analyze", loop, "-o", str(path))
    assert (done.code, path.read_text()) == (6, "mine")
    assert "hint: --force replaces it" in done.err
    assert command("analyze", loop, "-o", str(path), "--force").code == 0
    assert path.read_text("utf-8").startswith("run ")
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.txt"]


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
