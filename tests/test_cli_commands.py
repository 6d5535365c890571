"""The small commands answer, and the command line behaves in pipes and odd terminals."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
import typer.main

from scripts.scenarios import SCENARIOS
from tests.command import Command
from traceview import __version__
from traceview.base.timing import Stages, followed, stage
from traceview.cli import report_source
from traceview.cli.app import app
from traceview.cli.output import Target

pytestmark = pytest.mark.usefixtures("no_terminal")
ROOT = Path(__file__).resolve().parent.parent
FIXTURE = str(ROOT / "fixtures" / "custom-loop-2")
PROGRAM = ("-m", "traceview")


def started(
    *arguments: str, stdout: int = subprocess.PIPE, **environment: str
) -> subprocess.Popen[bytes]:
    """Python with these arguments, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    out, errors = process.communicate()
    return process.returncode, out or b"", errors


def test_the_version_has_what_a_bug_report_needs(command: Command) -> None:
    done = command("--version")
    lines = done.out.splitlines()
    assert (done.code, done.err, lines[0].split()) == (0, "", ["traceview", __version__])
    assert {"python", "numpy", "pandas"} < {line.split()[0] for line in lines}
    assert lines[-1].split()[1].rstrip(":") in ("compiled", "reference")


@pytest.mark.parametrize("name", ["", *typer.main.get_group(app).commands])
def test_help_fits_one_screen_and_has_an_example(
    command: Command, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = command(*filter(None, [name]), "--help")
    assert (done.code, done.err) == (0, "")
    assert f"Example: traceview {name}" in done.out
    assert len(done.out.splitlines()) <= 40
    assert max(map(len, done.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "meant"), [("re", "report"), ("show g", "gaps"), ("show gaps --st", "--state")]
)
def test_a_shell_completes_commands_tables_and_options(words: str, meant: str) -> None:
    line = f"traceview {words}"
    place = str(line.count(" "))
    _, out, _ = ended(
        started(*PROGRAM, _TRACEVIEW_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=place)
    )
    assert meant in out.decode().split()


@pytest.fixture
def two_runs(tmp_path: Path) -> str:
    SCENARIOS["D"]().write(tmp_path, "run1")
    SCENARIOS["two_hosts"]().write(tmp_path, "run2")
    return str(tmp_path)


def test_runs_marks_what_analyze_takes(command: Command, two_runs: str) -> None:
    report = json.loads(command("analyze", two_runs, "--format", "json").out)
    listed = json.loads(command("show", "runs", two_runs, "--format", "json").out)["rows"]
    assert {row["run"] for row in listed if row["is_default"]} == {report["source"]["run"]}
    assert [row["run"] for row in listed] == ["run1", "run2", "run2"]
    assert len(listed[0]["devices"].split()) == 8
    for width in (40, 60, 80):
        narrow = command("show", "runs", two_runs, "--width", str(width)).out
        assert max(map(len, narrow.splitlines())) <= width
    out = command("show", "runs", two_runs).out
    assert f"* {report['source']['run']}" in out
    assert "8 GPUs, 1 with events" in out


def test_runs_that_cannot_be_read_are_an_error(command: Command, two_runs: str) -> None:
    for content in (b"<!DOCTYPE html>", b"\x0a\x7f\x12\x01a"):
        for path in Path(two_runs).rglob("*.xplane.pb"):
            path.write_bytes(content)
        done = command("show", "runs", two_runs)
        assert done.code == (4 if content.startswith(b"<") else 0)
        assert ("not a trace  " if done.code else "damaged  ") in done.out
        assert ("No run can be read." in done.out) is bool(done.code)
    assert command("show", "runs", FIXTURE).out.count("no GPU") == 1


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (RuntimeError("x"), 1, "RuntimeError: x\ntraceview: this is a bug in traceview"),
        (
            MemoryError(),
            4,
            "traceview: error: not enough memory for this trace\nhint: record fewer",
        ),
    ],
)
def test_a_bug_of_ours_and_too_little_memory(
    error: Exception, code: int, said: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("traceview.report.build.analyze", fail)
    done = command("analyze", FIXTURE)
    assert (done.code, done.out) == (code, "")
    assert said in done.err


INTERRUPTED_AT = """
import sys
place = sys.argv.pop(1)

class Interrupt:
    def find_spec(self, name, *_):
        if name == place:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
from traceview.cli import main
main()
"""


@pytest.mark.parametrize("module", ["typer", "traceview.cli.app", "traceview.report.build"])
def test_an_interrupt_while_modules_are_imported_is_one_line(module: str) -> None:
    process = started("-c", INTERRUPTED_AT, module, "analyze", FIXTURE)
    assert ended(process) == (130, b"", b"traceview: interrupted; nothing was written\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is none here")
@pytest.mark.parametrize("arguments", [("analyze", FIXTURE), ("--help",)])
def test_a_full_disk_is_one_line(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        code, _, errors = ended(started(*PROGRAM, *arguments, stdout=full.fileno()))
    assert code == 2
    assert errors == (
        b"traceview: error: cannot write to standard output: No space left on device\n"
    )


@pytest.mark.skipif(os.name != "posix", reason="closed by a POSIX shell")
def test_closed_standard_streams(tmp_path: Path) -> None:
    def run(redirection: str, *more: str) -> subprocess.CompletedProcess[bytes]:
        command = shlex.join([sys.executable, *PROGRAM, "analyze", FIXTURE, *more])
        return subprocess.run(
            ["sh", "-c", f"{command} {redirection}"], cwd=ROOT, capture_output=True, check=False
        )

    done = run(">&-")
    assert (done.returncode, done.stderr) == (2, b"traceview: error: standard output is closed\n")
    assert run(">&-", "-o", str(tmp_path / "report.txt")).returncode == 0
    assert (tmp_path / "report.txt").stat().st_size > 0
    assert run("2>&-").returncode == 0
    failed = run("--no-such-option 2>&-")
    assert (failed.returncode, failed.stdout) == (2, b"")


def test_a_closed_pipe_is_silent() -> None:
    process = started(*PROGRAM, "analyze", FIXTURE, "--format", "json")
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), errors) == (128 + signal.SIGPIPE, b"")


def test_an_ascii_terminal_gets_ascii() -> None:
    code, out, errors = ended(started(*PROGRAM, "analyze", FIXTURE, PYTHONIOENCODING="ascii"))
    assert (code, errors) == (0, b"")
    assert out.isascii()
    assert b"_" in out


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colour_is_for_terminals_that_want_it(
    command: Command, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], coloured: bool
) -> None:
    monkeypatch.setattr(Target, "is_terminal", True)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert bool(re.search(r"\x1b\[", command("analyze", FIXTURE).out)) is coloured


class _Terminal:
    encoding = "utf-8"

    def __init__(self) -> None:
        self.text = ""
        self.written = Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.text += text
        self.written.set()

    def flush(self) -> None:
        pass


def test_a_long_reading_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(report_source, "PATIENCE_SECONDS", 0.0)
    with report_source.reading():
        assert terminal.written.wait(30)
    assert terminal.text.startswith("\rreading...")
    assert terminal.text.endswith("\r")


# Stages are followed on their thread, the innermost last


def test_the_open_stages_are_those_of_one_thread() -> None:
    with followed() as stages:
        with stage("outer"), stage("inner", "1 of 2"):
            assert stages == [("outer", ""), ("inner", "1 of 2")]

            def elsewhere() -> Stages:
                with stage("beside"):
                    return list(stages)

            with ThreadPoolExecutor(1) as pool:
                assert pool.submit(elsewhere).result() == stages
        assert stages == []
    with stage("nobody asks"):
        assert stages == []
