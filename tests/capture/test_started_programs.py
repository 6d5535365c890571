"""Python programs that a script starts are captured where they train; where that is impossible the user is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.capture.conftest import Capture, Captured
from tests.capture.fake_tensorflow import SCRIPT_START
from traceview.base.errors import CaptureError
from traceview.capture.launch.command import STARTUP
from traceview.capture.launch.environment_variable import VARIABLE
from traceview.capture.launch.started_programs import StartedPrograms
from traceview.capture.launch.variable import Request
from traceview.capture.record.capture import Settings
from traceview.capture.window.ranges import StepRange

WORKER = SCRIPT_START + "for number in batches(30): train_step(number)\n"
RUN = "import os, subprocess, sys\nworker = [sys.executable, 'worker.py']\n"
START = RUN + "code = subprocess.call(worker)\n"
WINDOW = [*range(9, 16)]


@pytest.fixture
def worker(tmp_path: Path, fake: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that trains, for a Python that reads the variable: this folder may be no installed traceview."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    path = tmp_path / "worker.py"
    path.write_text(WORKER, encoding="utf-8")
    return path


@pytest.fixture
def armed(fake: Path) -> dict[str, str]:
    root = STARTUP.parent.parent.parent
    return {"PYTHONPATH": os.pathsep.join(map(str, (STARTUP, root, fake)))}


def runs(done: Captured) -> list[Path]:
    assert [path.name for path in done.logdir.iterdir()] == ["plugins"]
    return sorted((done.logdir / "plugins" / "profile").iterdir())


@pytest.mark.parametrize(
    "call", ["subprocess.call(worker)", "os.waitstatus_to_exitcode(os.system(' '.join(worker)))"]
)
def test_a_program_that_trains_is_captured(
    capture: Capture, worker: Path, armed: dict[str, str], call: str
) -> None:
    worker.write_text(f"{WORKER}\nimport sys; sys.exit(7)\n", encoding="utf-8")
    done = capture(f"{RUN}sys.exit({call})", environment=armed)
    assert done.code == 7, done.err
    assert runs(done) == [done.run]
    assert done.numbers() == WINDOW
    assert sorted(path.name for path in worker.parent.glob("traceview-*")) == []


def test_each_program_is_named_with_its_run(
    capture: Capture, worker: Path, armed: dict[str, str]
) -> None:
    done = capture(START + START, environment=armed)
    first, second = sorted(runs(done), key=lambda run: run.stat().st_mtime_ns)
    assert done.run == first
    lines = done.err.splitlines()
    assert [line for line in lines if "worker.py, process " in line] == [lines[-2]]
    assert lines[-2].endswith(f": the trace is in {second}")


def test_the_variable_is_gone_when_the_window_of_the_script_opens(
    capture: Capture, worker: Path, armed: dict[str, str]
) -> None:
    """And a program that starts later runs as without traceview."""
    script = f"{WORKER}{START}\nprint('variable', os.environ.get('{VARIABLE}'), code)"
    done = capture(script, environment=armed)
    assert (done.code, done.out.splitlines()[-1]) == (0, "variable None 0"), done.err
    assert runs(done) == [done.run]
    assert done.numbers() == WINDOW


@pytest.mark.parametrize(("value", "count"), [("0", 0), ("--steps 3:4 --out other", 1)])
def test_the_options_of_the_command_count_and_a_capture_switched_off_stays_off(
    capture: Capture, worker: Path, armed: dict[str, str], value: str, count: int
) -> None:
    script = f"{START}{SCRIPT_START}for number in batches(30): train_step(number)\n"
    done = capture(
        f"{script}print(os.environ['{VARIABLE}'])", environment={**armed, VARIABLE: value}
    )
    assert done.out.splitlines()[-1] == value
    assert len(runs(done)) == 1 + count
    assert not (worker.parent / "other").exists()


def test_a_program_whose_window_never_opens_says_so(
    capture: Capture, worker: Path, armed: dict[str, str]
) -> None:
    done = capture(START, "--steps", "100:110", environment=armed)
    assert done.code == 5
    assert "error: nothing was captured in 1 process: the script ran 30 steps, and" in done.err
    assert "hint: --steps 19:29" in done.err


def test_one_port_is_for_the_script_alone(
    capture: Capture, worker: Path, armed: dict[str, str]
) -> None:
    done = capture(START, "--serve", "6009", environment=armed)
    assert runs(done) == [done.run], done.err


def test_a_parent_that_waits_for_a_program_that_trains_does_not_hang(
    capture: Capture, worker: Path, armed: dict[str, str]
) -> None:
    worker.write_text(f"{WORKER}\nimport time; time.sleep(4)\n", encoding="utf-8")
    done = capture(START, "--on-hang", "3s", "--steps", "10:15", environment=armed)
    assert done.code == 0, done.err
    said = [line for line in done.err.splitlines() if "No step has ended for" in line]
    assert len(said) == 1
    assert said[0].startswith("traceview[")


UNREACHED = "environment = {k: v for k, v in os.environ.items() if k != 'TRACEVIEW_CAPTURE'}\n"
BUSY = "import time\nwhile time.process_time() < 2.2: pass"


def test_programs_that_cannot_be_captured_are_mentioned(
    capture: Capture, worker: Path, armed: dict[str, str]
) -> None:
    start = f"{RUN}{UNREACHED}subprocess.call([sys.executable, '-c', {BUSY!r}], env=environment)"
    done = capture(start, environment=armed)
    assert done.code == 5
    assert "no program that it started was captured; those took 2 s of processor time" in done.err
    assert "hint: if they train, traceview capture -- python SCRIPT" in done.err


def test_short_programs_are_not_mentioned(capture: Capture, armed: dict[str, str]) -> None:
    done = capture("import os; os.system('true')", environment=armed)
    assert "the script did not import TensorFlow" in done.err
    assert "processor time" not in done.err


def test_programs_that_do_not_read_the_variable_are_counted_while_they_run(tmp_path: Path) -> None:
    programs = StartedPrograms(Request(Settings(tmp_path, StepRange(10, 15))))
    variables = {name: text for name, text in os.environ.items() if name != VARIABLE}
    command = [sys.executable, "-c", "print(flush=True); input()"]
    programs.install()
    try:
        with subprocess.Popen(
            command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            note, hint = programs.without_step()
            process.communicate(b"\n")
        assert note == "note: 1 process of Python that the script started is not captured"
        assert hint.startswith("hint: if they train, traceview capture -- python SCRIPT")
        assert list(programs.without_step()) == []
    finally:
        programs.forget()
    assert VARIABLE not in os.environ


def test_a_script_that_trains_itself_keeps_its_own_reason(tmp_path: Path) -> None:
    programs = StartedPrograms(Request(Settings(tmp_path, StepRange(10, 15))))
    own = CaptureError("nothing was captured: no tf.function was called")
    assert programs.why_no_trace(own, is_training=True) is own
