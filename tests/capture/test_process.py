"""A captured script runs in its own process: what it sees, says and leaves is what it does without a capture."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.capture.conftest import CAPTURE, Captured, environment_with, run_process
from tests.capture.fake_tensorflow import SCRIPT_START

LOOP = "for number, batch in enumerate(batches(30)):\n    train_step(batch)\n"
IN_WINDOW = f"{LOOP}    if number == 12: "


@dataclass(frozen=True)
class Both:
    """A script without a capture and with one."""

    alone: Captured
    captured: Captured

    def check(self, code: int = 0) -> Both:
        """Both end alike and print the same, but for what traceview says."""
        assert (self.alone.code, self.captured.code) == (code, code), self.captured
        assert self.captured.out == self.alone.out
        runs = [str(run) for run in self.captured.runs]
        lines = self.captured.err.splitlines()
        kept = [line for line in lines if line not in runs and not line.startswith("traceview")]
        assert kept == self.alone.err.splitlines()
        return self

    def numbers(self) -> list[int]:
        (_,) = self.captured.runs
        assert sorted(path.name for path in self.captured.logdir.iterdir()) == ["plugins"]
        return self.captured.numbers()


def both(
    folder: Path, fake: Path, script: str, *arguments: str, before: Sequence[str] = ()
) -> Both:
    """`before`: a command that runs another."""
    commands = (
        (*before, sys.executable, *capture, "train.py", *arguments)
        for capture in ((), (*CAPTURE, "--steps", "10:15"))
    )
    options: Any = {"environment": environment_with(fake), "script": SCRIPT_START + script}
    return Both(*(run_process(folder, *command, **options) for command in commands))


LOOK = """
import inspect, sys, warnings, __main__
import numpy  # as TensorFlow does: it adds filters of warnings
def old(): warnings.warn("old", DeprecationWarning, stacklevel=2)
def look():
    print(sys.argv, __name__, __main__.__file__, __spec__, sys.path[0], __main__.train_step is train_step)
    print([(frame.filename, frame.function) for frame in inspect.stack()])
    old()
    warnings.warn("here", stacklevel=2)
look()
@tf.function
def train_step(batch):
    tf.GradientTape().gradient(0, 0)
    print([frame.function for frame in inspect.stack()])
"""


def test_the_script_is_itself(tmp_path: Path, fake: Path) -> None:
    done = both(tmp_path, fake, f"{LOOK}{LOOP}look()\n", "--epochs", "3").check()
    assert done.numbers() == [*range(9, 16)]
    assert done.captured.err.splitlines()[-1] == str(done.captured.run)


FAILS = {
    "an error": "raise ValueError('wrong')",
    "an error in a step": "train_step(*range(9), nosuch=undefined)",
    "an error with a hook that fails": "import sys; sys.excepthook = lambda *_: 1 / 0; raise ValueError('wrong')",
}


@pytest.mark.parametrize("fails", FAILS.values(), ids=FAILS)
def test_an_error_is_shown_as_without_a_capture(tmp_path: Path, fake: Path, fails: str) -> None:
    assert both(tmp_path, fake, IN_WINDOW + fails).check(1).numbers()[:4] == [9, 10, 11, 12]


ENDS = {
    "sys.exit": ("import sys; sys.exit(3)", 3),
    "SIGINT": ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", -2),
    "os._exit": ("import os; os._exit(7)", 7),
    "os._exit in a thread": (
        "import os, threading; threading.Thread(target=os._exit, args=(7,)).start(); import time; time.sleep(9)",
        7,
    ),
    "os.execv": (
        "import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'print(1); raise SystemExit(4)'])",
        4,
    ),
    "os.execve": (
        "import os, sys; os.execve(sys.executable, [sys.executable, '-c', 'raise SystemExit(4)'], {**os.environ})",
        4,
    ),
    "SIGTERM": ("import os, signal; os.kill(os.getpid(), signal.SIGTERM); signal.pause()", -15),
    "SIGTERM after closing all": (
        "import os, signal; os.closerange(3, 65536); os.kill(os.getpid(), signal.SIGTERM); signal.pause()",
        -15,
    ),
    "a handler of SIGTERM that calls the one before": (
        """
        import os, signal, sys
        before = signal.getsignal(signal.SIGTERM)
        def handle(number, frame):
            if callable(before): before(number, frame)
            sys.exit(8)
        signal.signal(signal.SIGTERM, handle)
        os.kill(os.getpid(), signal.SIGTERM)
""",
        8,
    ),
}


@pytest.mark.parametrize(("ends", "code"), ENDS.values(), ids=ENDS)
def test_an_end_inside_the_window_keeps_the_trace(
    tmp_path: Path, fake: Path, ends: str, code: int
) -> None:
    done = both(tmp_path, fake, IN_WINDOW + ends).check(code)
    assert done.numbers() == [9, 10, 11, 12]
    if ends.endswith("sys.exit(3)"):
        note = "note: only steps 10:13 of the requested 10:15 were recorded"
        assert note in done.captured.said


FIRST_PROCESS = ("unshare", "--pid", "--fork", "--mount-proc")


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run([*FIRST_PROCESS, "true"], capture_output=True).returncode != 0,
    reason="needs the right to make a PID namespace",
)
def test_the_first_process_of_a_container_ignores_what_it_does_not_handle(
    tmp_path: Path, fake: Path
) -> None:
    ends = "import os, signal, time; os.kill(1, signal.SIGTERM); time.sleep(0.5); print(os.getpid(), flush=True)"
    done = both(tmp_path, fake, IN_WINDOW + ends, before=FIRST_PROCESS).check()
    assert done.captured.out == "1\n"
    assert done.numbers() == [9, 10, 11, 12]


TRAINS = {
    "a child has its own signals": f"""{IN_WINDOW}
        import os, signal
        child = os.fork()
        if not child:
            signal.pause()
        os.kill(child, signal.SIGTERM)
        print(os.waitpid(child, 0)[1], signal.getsignal(signal.SIGTERM))
        try: print(os.wait())
        except ChildProcessError: print("no other child")
""",
    "descriptors of the script get nothing": f"""{LOOP}
    if number == 9:
        import os, signal
        os.closerange(3, 256)
        files = [open(f"file{{n}}", "w+") for n in range(20)]
        signal.signal(signal.SIGUSR1, lambda *_: None)
        os.kill(os.getpid(), signal.SIGUSR1)
    if number == 20:
        print([os.fstat(file.fileno()).st_size for file in files])
""",
    "a working directory that is gone": f"""
import os; os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
{LOOP}""",
    "asyncio.to_thread": """
import asyncio
async def train():
    for batch in batches(30): await asyncio.to_thread(train_step, batch)
asyncio.run(train())
""",
    "a thread that outlives the main one": """
import threading, time
def train():
    time.sleep(0.2)
    for batch in batches(30): train_step(batch)
threading.Thread(target=train).start()
""",
    "two threads in turn": """
import threading
def train(): [train_step(batch) for batch in batches(6)]
for _ in range(5):
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
""",
}


@pytest.mark.parametrize("script", TRAINS.values(), ids=TRAINS)
def test_a_script_trains_as_without_a_capture(tmp_path: Path, fake: Path, script: str) -> None:
    assert both(tmp_path, fake, script).check().numbers() == [*range(9, 16)]


def test_where_steps_overlap_those_of_one_thread_count(tmp_path: Path, fake: Path) -> None:
    overlapping = """
import threading
def train(): [train_step(batch) for batch in batches(30)]
threads = [threading.Thread(target=train) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    done = both(tmp_path, fake, overlapping).check()
    assert done.numbers() == [*range(9, 16)]
    assert "meanwhile other threads called train_step" in done.captured.err


def test_a_killed_capture_leaves_a_folder_that_the_next_one_removes(
    tmp_path: Path, fake: Path
) -> None:
    done = both(tmp_path, fake, IN_WINDOW + "import os; os.kill(os.getpid(), 9)").check(-9)
    (left,) = done.captured.logdir.iterdir()
    assert left.name.startswith(".traceview-incomplete-")
    assert both(tmp_path, fake, LOOP).check().numbers() == [*range(9, 16)]
