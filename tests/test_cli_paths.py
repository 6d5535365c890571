"""Where a command reads and writes: odd places are used or refused in one line, and no trace is lost."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from tests.command import Command
from traceview.base.text import shell_command, shell_path, shell_word
from traceview.cli.output import Target, write_folder

pytestmark = pytest.mark.usefixtures("no_terminal")


@pytest.fixture
def logs(fixtures: Path, tmp_path: Path) -> Path:
    """A copy of a run of two replicas."""
    shutil.copytree(fixtures / "custom-loop-2", tmp_path / "logs")
    return tmp_path / "logs"


def trace_of(logs: Path) -> Path:
    (path,) = logs.rglob("*.xplane.pb")
    return path


WRITTEN = {
    "analyze {} -o report.txt": b"run ",
    "analyze {} -o report.JSON": b"{",
    "report {} -o page.html": b"<!DOCTYPE html>",
    "report {} -o out": b"",
    "show gaps {} -o gaps.csv": b"device,",
    "export {}": b"\n",
    "export {} --to csv -o .": b"",
    "export {} --to parquet -o tables": b"",
    "compare {0} {0} -o same.md": b"## Both sides are one run",
    "gate {} --require 'step_time_ms <= 500' -o gate.md": b"## Gate passed",
    "gate {} --save main": b"\x1f\x8b",
}
"""Commands, and how the file begins that they write; nothing where they write several."""


@pytest.mark.parametrize("line", WRITTEN)
def test_what_is_there_is_replaced_only_if_asked(
    line: str, command: Command, loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes").write_text("mine")
    words = shlex.split(line.format(loop))

    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}

    assert command(*words).code == 0
    written = files()
    assert written.pop(Path("notes")) == b"mine"
    assert all(content.startswith(WRITTEN[line]) for content in written.values())
    assert (len(written) == 1) == bool(WRITTEN[line])
    for path in written:
        path.write_text("mine")
    refused = command(*words)
    assert (refused.code, refused.out) == (6, "")
    assert refused.err.endswith("exists\nhint: --force replaces it\n")
    assert {*files().values()} == {b"mine"}
    assert command(*words, "--force").code == 0
    assert files() == {Path("notes"): b"mine", **written}


@pytest.mark.parametrize(
    "part", ["plugins", "plugins/profile", "plugins/profile/2026_11_21_03_25_11", "."]
)
def test_a_link_in_a_log_directory(part: str, command: Command, logs: Path, tmp_path: Path) -> None:
    linked, place = logs / part, logs.parent / "elsewhere"
    if part == ".":
        logs.rename(place)
        logs.mkdir()
        (logs / "train").symlink_to(place)
    else:
        linked.rename(place)
        linked.symlink_to(place)
    done = command("show", "runs", str(logs))
    assert done.code == 0, done.err
    assert "host-a" in done.out


def test_a_newer_run_that_cannot_be_read_is_named(command: Command, logs: Path) -> None:
    newer = trace_of(logs).parent.parent / "2027_01_01_00_00_00"
    newer.mkdir()
    (newer / "host-a.xplane.pb").write_bytes(b"")
    older = trace_of(logs.parent / "logs" / "plugins" / "profile" / "2026_11_21_03_25_11")
    assert older.exists()
    done = command("analyze", str(logs), "--full")
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    assert "a newer run is not readable, so this one was read: 2027_01_01_00_00_00: " in text
    assert "the file is empty" in text
    report = json.loads(command("analyze", str(logs), "--format", "json").out)
    assert report["capture"]["quality"] == "ok"


@pytest.mark.parametrize("command_line", ["export", "analyze", "show gaps --format csv"])
@pytest.mark.parametrize("by", ["file", "folder", "link", "other name"])
def test_no_output_replaces_the_trace(
    command_line: str, by: str, command: Command, logs: Path, tmp_path: Path
) -> None:
    path = trace_of(logs)
    before = path.read_bytes()
    source, output = path, path
    if by == "folder":
        source = logs
    elif by == "link":
        source, output = logs, tmp_path / "out"
        output.symlink_to(path)
    elif by == "other name":
        source = output = path.rename(tmp_path / "trace.pb")
    done = command(*command_line.split(), str(source), "--force", "-o", str(output))
    assert done.code == 2, done.err
    assert "choose another place" in done.err
    assert output.read_bytes() == before


def test_output_goes_to_whatever_stands_for_stdout() -> None:
    """A cell of a notebook may have its output captured as text, which has no bytes below it."""
    captured = io.StringIO()
    with redirect_stdout(captured):
        Target(None).write("4 × GPU\n")
    assert captured.getvalue() == "4 × GPU\n"


# Where nobody else can put a file, and after a signal


def test_what_is_written_has_the_usual_permissions(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_folder(tmp_path / "report", {"report.md": [b"text"]})
        Target(tmp_path / "ops.csv").write(b"a,b\n")
    finally:
        os.umask(before)
    modes = [
        stat.S_IMODE((tmp_path / name).stat().st_mode)
        for name in ("report", "report/report.md", "ops.csv")
    ]
    assert modes == [0o755, 0o644, 0o644]


WRITES = """
import time
from pathlib import Path
from traceview.cli.output import Target

def wait():
    yield b"some"
    yield b"more"
    print("writing", flush=True)
    time.sleep(60)
    yield b"text"

Target(Path("ops.csv")).write_parts(wait())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITES],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        assert len(list(tmp_path.iterdir())) == 1
        begun_s = time.monotonic()
        process.send_signal(number)
        assert process.wait(30) != 0
        assert time.monotonic() - begun_s < 30
    assert list(tmp_path.iterdir()) == []


# A shell reads back what commands are made of, and runs nothing in it


NAMES = (
    "run",
    "a b",
    'it\'s "x"',
    "$(touch HIT)",
    "`touch HIT`; touch HIT & #",
    "new\nline",
    "-dash",
    "--run",
    "clear\x1b[2J",
    "back\\slash'\n",
    "über",
    "\u202ereversed",
    "\udce9 of another encoding",
    "*?[a]{b,c}~!",
)


def read_back(command: str, folder: Path) -> list[str]:
    """The words that bash makes of a command of traceview."""
    script = f"traceview() {{ printf '%s\\0' \"$@\"; }}\n{command}"
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, check=True)
    assert done.stderr == b""
    assert not (folder / "HIT").exists()
    return done.stdout.decode(errors="surrogateescape").split("\0")[:-1]


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_reads_back_the_same_words(name: str, tmp_path: Path) -> None:
    assert read_back(f"traceview --run {shell_word(name)}", tmp_path) == ["--run", name]
    assert shell_word(name).isprintable()
    path = f"./{name}" if name.startswith("-") else name
    assert read_back(f"traceview analyze {shell_path(name)}", tmp_path) == ["analyze", path]
    words = ("traceview", "analyze", name, "--run", name)
    assert read_back(shell_command(words), tmp_path) == ["analyze", path, "--run", name]


@pytest.mark.parametrize("name", NAMES[1::3])
@pytest.mark.usefixtures("no_terminal")
def test_the_commands_of_a_report_reach_the_same_run(
    name: str, command: Command, fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where log directory and run have a hostile name, and the page is narrow."""
    monkeypatch.chdir(tmp_path)
    (source,) = (fixtures / "slow-input-2").rglob("*.xplane.pb")
    logs = Path(name)
    for run in (name, "2026_01_01_00_00_00"):
        folder = logs / "plugins" / "profile" / run
        folder.mkdir(parents=True)
        shutil.copy(source, folder / "host.xplane.pb")
    said = command("analyze", f"./{name}", "--run", name, "--width", "60").out.splitlines()
    printed = [line[line.index("traceview") :] for line in said if "traceview " in line]
    assert len(printed) == 2
    for line in printed:
        _, *words = words_of = read_back(line, tmp_path)
        again = command(*words_of)
        assert (again.code, again.err) == (0, "")
        assert words[words.index("--run") + 1] == name
