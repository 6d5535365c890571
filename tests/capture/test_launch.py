"""Processes that traceview did not start capture themselves, and end as they would without it."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.capture.conftest import CAPTURE, Captured, environment_with, run_process
from tests.capture.fake_tensorflow import SCRIPT_START
from traceview.capture.process.saying import VARIABLE
from traceview.capture.sampling import nvml

TRAIN = (
    SCRIPT_START
    + """
import os, signal, sys, time
for number, batch in enumerate(batches(30)):
    if number == 12:
        pass  # ENDS
    train_step(batch)
print("trained", *sys.argv[1:])
"""
)


Start = Callable[..., Captured]


@pytest.fixture
def start(tmp_path: Path, fake: Path) -> Start:
    """Run a command in a folder with `train.py`, by default with the variable set."""
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")

    def run(
        *command: str,
        value: str | None = "--steps 10:15",
        environment: Mapping[str, str] | None = None,
    ) -> Captured:
        variables = environment_with(fake, **(environment or {}))
        if value is not None:
            variables[VARIABLE] = value
        return run_process(tmp_path, *command, environment=variables)

    return run


@pytest.fixture
def launch(start: Start) -> Start:
    """Run `traceview capture OPTIONS -- COMMAND`."""

    def run(*arguments: str, environment: Mapping[str, str] | None = None) -> Captured:
        return start(sys.executable, *CAPTURE, *arguments, value=None, environment=environment)

    return run


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")


# The variable alone


def test_a_process_that_trains_captures_itself(start: Start) -> None:
    done = start(sys.executable, "train.py", "a")
    assert (done.code, done.out) == (0, "trained a\n")
    assert done.numbers() == [*range(9, 16)]
    assert done.window["got"] == [10, 15]
    assert done.said[-1] == f"the trace is in {done.runs[0]}; the script goes on"
    assert sorted(path.name for path in done.logdir.iterdir()) == ["plugins"]


@pytest.mark.parametrize("value", ["", " ", "0", None])
def test_without_a_value_nothing_is_imported_or_captured(start: Start, value: str | None) -> None:
    code = "import sys; print('traceview.capture.process.imports' in sys.modules)"
    assert start(sys.executable, "-c", code, value=value).out == "False\n"
    done = start(sys.executable, "train.py", value=value)
    assert (done.code, done.err, done.runs) == (0, "", [])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("--step 10:15", f"{VARIABLE}: unrecognized arguments: --step 10:15; nothing is captured"),
        (
            "--output /dev/null/logs",
            "nothing is captured: --output /dev/null/logs: Not a directory",
        ),
    ],
)
def test_a_wrong_value_is_said_once_and_training_goes_on(
    start: Start, value: str, said: str
) -> None:
    done = start(sys.executable, "train.py", value=value)
    assert (done.code, done.out) == (0, "trained\n")
    assert [line for line in done.said if "nothing" in line] == [said]
    assert len(done.said) == 2  # and a hint
    assert done.runs == []


def test_a_process_that_does_not_train_leaves_nothing(start: Start, tmp_path: Path) -> None:
    done = start(sys.executable, "-c", "import json")
    assert (done.code, done.err) == (0, "")
    done = start(sys.executable, "-c", "import tensorflow")
    assert (done.code, done.said) == (0, ["nothing was captured: no tf.function was called"])
    done = start(sys.executable, "-c", "import importlib.util as u; u.find_spec('tensorflow')")
    assert (done.code, done.err) == (0, "")
    assert not (tmp_path / "logs").exists()


SPAWNS = """
import multiprocessing, sys
def reads():
    import tensorflow
if __name__ == "__main__":
    import tensorflow
    import runpy
    spawn = multiprocessing.get_context("spawn")
    targets = [spawn.Process(target=reads), spawn.Process(target=runpy.run_path, args=("train.py",))]
    for process in targets: process.start()
    for process in targets: process.join()
"""


@pytest.mark.parametrize("is_launched", [True, False])
def test_a_spawned_child_that_trains_is_captured_once(
    launch: Start, tmp_path: Path, is_launched: bool
) -> None:
    """The variable and what `multiprocessing` sends could both begin a capture in it; one that only reads has none."""
    write(tmp_path, "spawns.py", SPAWNS)
    program = ("--", sys.executable) if is_launched else ()
    # Otherwise the explicit command, with the variable in its environment.
    variable = {} if is_launched else {VARIABLE: "--steps 10:15"}
    done = launch("--steps", "10:15", *program, "spawns.py", environment=variable)
    assert done.code == 0
    assert done.numbers() == list(range(9, 16))
    assert [path.suffix for path in sorted(done.runs[0].iterdir())] == [".json", ".pb"]
    assert sorted(path.name for path in done.logdir.iterdir()) == ["plugins"]


# Below a launcher


@pytest.mark.parametrize("ends", ["sys.exit(3)", "os.kill(os.getpid(), 9)", "os.abort()"])
def test_who_waits_for_the_command_ends_as_it_does(
    launch: Start, start: Start, tmp_path: Path, ends: str
) -> None:
    write(tmp_path, "train.py", TRAIN.replace("pass  # ENDS", ends))
    alone = start(sys.executable, "train.py", value=None)
    done = launch("--analyze", "--", sys.executable, "train.py")
    assert done.code == alone.code != 0


def test_the_first_program_names_the_runs_of_all(launch: Start, tmp_path: Path) -> None:
    two = "for name in '12': subprocess.run([sys.executable, 'train.py', name])\n"
    write(tmp_path, "two.py", f"import subprocess, sys\n{two}")
    done = launch("two.py")
    assert (done.code, done.out) == (0, "trained 1\ntrained 2\n")
    assert done.err.splitlines()[-3:] == ["traceview: 2 runs were recorded:", *map(str, done.runs)]


@pytest.mark.parametrize(("ends", "code"), [("", 5), ("sys.exit()", 5), ("sys.exit(3)", 3)])
def test_why_nothing_was_captured_and_an_exit_code_that_says_so(
    launch: Start, tmp_path: Path, ends: str, code: int
) -> None:
    """The functions that the script has left for its end are called all the same."""
    left = "import atexit, sys\natexit.register(print, 'left')\nprint('said', end=' ')\n"
    write(tmp_path, "train.py", left + ends)
    done = launch("--steps", "90:95", "train.py")
    said = "nothing was captured: no process imported TensorFlow or JAX"
    assert (done.code, done.said, done.out) == (code, [said], "said left\n")
    assert not done.logdir.exists()


def test_a_script_that_started_others_hears_where_nothing_is_captured(
    launch: Start, tmp_path: Path
) -> None:
    write(
        tmp_path, "train.py", "import subprocess, sys\nsubprocess.run([sys.executable, '-c', ''])\n"
    )
    assert "in an environment without traceview or a container" in launch("train.py").said[1]


def test_a_python_that_reads_nothing_is_refused(launch: Start) -> None:
    done = launch("--", sys.executable, "-S", "train.py")
    assert (done.code, done.out) == (2, "")
    assert "-S reads no environment or no installed packages" in done.err


def test_options_reach_the_processes(launch: Start, tmp_path: Path) -> None:
    both = "    train_step(batch); evaluate(batch)\n"
    write(tmp_path, "named.py", TRAIN.replace("    train_step(batch)\n", both))
    options = "--steps 4:6 --step-function evaluate --run mine --without nvml,python"
    done = launch(*options.split(), sys.executable, "named.py")
    assert done.run.name == "mine"
    assert done.window["got"] == [4, 6]
    assert [f["name"] for f in done.sidecar["steps"]["functions"] if f["is_step"]] == ["evaluate"]
    assert "python" not in done.sidecar
    assert done.sidecar["outside_view"]["reason"] == nvml.NOT_ASKED


def test_a_run_that_exists_is_refused_before_anything_runs(launch: Start, tmp_path: Path) -> None:
    run = tmp_path / "logs" / "plugins" / "profile" / "mine"
    run.mkdir(parents=True)
    (run / f"{socket.gethostname()}.xplane.pb").touch()
    os.utime(run / f"{socket.gethostname()}.xplane.pb", (0, 0))
    done = launch("--run", "mine", "--", sys.executable, "train.py")
    assert (done.code, done.out) == (5, "")
    assert "already exists and is not replaced\nhint: choose another --run" in done.err


def test_a_wrong_option_or_folder_is_refused_before_anything_runs(launch: Start) -> None:
    for arguments, code, said in (
        (["--steps", "5"], 2, "--steps 5: not a range"),
        (["--output", "/dev/null/logs"], 5, "--output /dev/null/logs: Not a directory"),
    ):
        done = launch(*arguments, "--", sys.executable, "train.py")
        assert (done.code, done.out) == (code, "")
        assert said in done.err
