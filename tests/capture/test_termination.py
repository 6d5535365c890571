"""Signals end a captured script as they end it without traceview, and its trace is kept."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.capture.conftest import Capture, Captured, environment_with
from tests.capture.fake_tensorflow import SCRIPT_START
from traceview.capture.process.lock_watcher import GRACE_SECONDS

HANG = """
import ctypes, signal, sys, time

def hang():
    # Locks a mutex twice: the main thread never comes back from C code, whatever signal arrives.
    print("hangs", flush=True)
    mutex = ctypes.create_string_buffer(64)
    library = ctypes.CDLL(None)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)
"""
LOOP = SCRIPT_START + HANG + "for number in range(30):\n    BODY\n    train_step(number)\n"


CAPTURE = ("-m", "traceview", "capture")


@contextmanager
def started(
    script: str, folder: Path, fake: Path, by: Sequence[str] = CAPTURE
) -> Iterator[subprocess.Popen[str]]:
    """A capture of this script that has printed its first line."""
    (folder / "train.py").write_text(script, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, *by, "train.py"],
        cwd=folder,
        env=environment_with(fake),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            line_of(process.stdout)
            yield process
        finally:
            process.kill()


def line_of(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def ended(process: subprocess.Popen[str], folder: Path) -> Captured:
    out, err = process.communicate(timeout=30)
    return Captured(process.returncode, out, err, folder / "logs")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_script_that_hangs_in_the_window(
    tmp_path: Path, fake: Path, number: signal.Signals
) -> None:
    script = LOOP.replace("BODY", "number == 12 and hang()")
    with started(script, tmp_path, fake) as process:
        process.send_signal(number)
        done = ended(process, tmp_path)
    assert done.code == -number
    assert done.numbers() == [9, 10, 11]
    assert "only steps 10:12 of the requested 10:15 were recorded" in done.err


def test_a_signal_ends_a_process_that_captures_itself_and_hangs(tmp_path: Path, fake: Path) -> None:
    """As a launcher starts it, with the variable in its environment."""
    begin = f"from traceview.capture.launch.launched_capture import begin\nbegin('--out {tmp_path}/logs')\n"
    script = LOOP.replace("BODY", "number == 12 and hang()")
    with started(begin + script, tmp_path, fake, by=()) as process:
        process.send_signal(signal.SIGTERM)
        done = ended(process, tmp_path)
    assert done.code == -signal.SIGTERM
    (run,) = (tmp_path / "logs" / "plugins" / "profile").iterdir()
    assert f"the trace is in {run}" in done.err
    assert "only steps 10:12 of the requested 10:15 were recorded" in done.err


def test_a_signal_ends_a_script_whose_native_call_holds_the_lock_of_python(
    tmp_path: Path, fake: Path
) -> None:
    script = LOOP.replace("ctypes.CDLL", "ctypes.PyDLL").replace("BODY", "number == 12 and hang()")
    with started(script, tmp_path, fake) as process:
        time.sleep(1)  # from its line to the call that holds the lock
        process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        done = ended(process, tmp_path)
    assert done.code == -signal.SIGKILL
    assert time.monotonic() - begun < GRACE_SECONDS + 5
    (said,) = done.err.splitlines()
    assert said == (
        "traceview: SIGTERM came 10 s ago, and a native call has held Python's lock since then. "
        f"Process {process.pid} is killed, and what it has not saved is lost."
    )


WATCHERS = """
import glob
def watchers():
    # Of this process; one that ends takes a moment.
    time.sleep(1.5)
    lines = [open(path, 'rb').read().split(b'\\0') for path in glob.glob('/proc/[0-9]*/cmdline')]
    return sum(b'lock_watcher' in b' '.join(line) and b'%d' % os.getpid() in line for line in lines)
"""


def test_the_watcher_is_no_child_of_the_script_and_ends_with_the_window(capture: Capture) -> None:
    body = (
        "if number == 12:\n"
        "        print(watchers())\n"
        "        try: os.wait()\n"
        "        except ChildProcessError: print('no child')\n"
        "    if number == 20: print(watchers())"
    )
    script = LOOP.replace("for number", "import os\n" + WATCHERS + "for number", 1)
    done = capture(script.replace("BODY", body))
    assert (done.code, done.out.split("\n")[:3]) == (0, ["1", "no child", "0"])


def test_a_signal_that_the_script_handles_kills_nothing(capture: Capture) -> None:
    body = (
        "if number == 12:\n"
        "        print(watchers())\n"
        "        for name in (signal.SIGTERM, signal.SIGHUP): signal.signal(name, lambda *_: None)\n"
        "        print(watchers())"
    )
    script = LOOP.replace("for number", "import os\n" + WATCHERS + "for number", 1)
    assert capture(script.replace("BODY", body)).out.split() == ["1", "0"]


def test_a_signal_ends_a_script_that_hangs_before_the_window(tmp_path: Path, fake: Path) -> None:
    with started(LOOP.replace("BODY", "number == 3 and hang()"), tmp_path, fake) as process:
        process.send_signal(signal.SIGTERM)
        done = ended(process, tmp_path)
    assert done.code == -signal.SIGTERM
    assert "the script was interrupted after 3 steps, before the window 10:15 opened" in done.err
    assert not done.logdir.exists()


def test_a_signal_ends_a_script_that_hangs_after_the_window(tmp_path: Path, fake: Path) -> None:
    script = LOOP.replace("BODY", "number == 20 and hang()")
    with started(script, tmp_path, fake) as process:
        process.send_signal(signal.SIGTERM)
        done = ended(process, tmp_path)
    assert done.code == -signal.SIGTERM
    (said,) = [line for line in done.err.splitlines() if "the script goes on" in line]
    kept = Captured(0, "", said.split(" in ")[1].split(";")[0], done.logdir)
    assert kept.numbers() == [*range(9, 16)]


def test_a_signal_ends_a_script_whose_devices_hang_when_the_window_closes(
    tmp_path: Path, fake: Path
) -> None:
    hangs = "if number == 12: tf.test.experimental.sync_devices = hang"
    with started(LOOP.replace("BODY", hangs), tmp_path, fake) as process:
        process.send_signal(signal.SIGTERM)
        done = ended(process, tmp_path)
    assert done.code == -signal.SIGTERM
    assert done.numbers() == [*range(9, 16)]


def test_a_signal_ends_a_script_with_a_wakeup_descriptor_of_its_own(
    tmp_path: Path, fake: Path
) -> None:
    script = (
        "import signal, socket, sys\n"
        "own, other = socket.socketpair()\nown.setblocking(False)\n"
        "signal.set_wakeup_fd(own.fileno())\n" + LOOP
    ).replace("BODY", "if number == 12: print(flush=True); time.sleep(60)")
    with started(script, tmp_path, fake) as process:
        process.send_signal(signal.SIGTERM)
        done = ended(process, tmp_path)
    assert done.code == -signal.SIGTERM
    assert done.numbers() == [9, 10, 11]


SLOW_STOP = """
from tensorflow.python.profiler.internal import _pywrap_profiler as native
export = native.ProfilerSession.export_to_tb
def slow(session):
    print("saves", flush=True)
    for _ in range(30):
        time.sleep(0.05)
    export(session)
"""


def test_a_second_interruption_does_not_lose_the_trace(tmp_path: Path, fake: Path) -> None:
    body = "if number == 12: native.ProfilerSession.export_to_tb = slow; raise KeyboardInterrupt"
    script = LOOP.replace("for number", SLOW_STOP + "for number", 1).replace("BODY", body)
    with started(script, tmp_path, fake) as process:
        process.send_signal(signal.SIGINT)
        done = ended(process, tmp_path)
    assert done.code == -signal.SIGINT
    assert done.numbers() == [9, 10, 11]
    assert "saving the trace; press Ctrl-C once more to give it up" in done.err
    assert done.err.count("Traceback") == 1


def test_an_interruption_while_the_window_closes_waits_for_the_trace(
    tmp_path: Path, fake: Path
) -> None:
    body = "if number == 12: native.ProfilerSession.export_to_tb = slow"
    script = LOOP.replace("for number", SLOW_STOP + "for number", 1).replace("BODY", body)
    with started(script, tmp_path, fake) as process:
        process.send_signal(signal.SIGINT)
        done = ended(process, tmp_path)
    assert done.code == -signal.SIGINT
    assert done.numbers() == [*range(9, 16)]
    assert done.err.count("KeyboardInterrupt") == 1


def test_a_shell_reports_the_signal(tmp_path: Path, fake: Path) -> None:
    script = LOOP.replace("BODY", "number == 12 and hang()")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    line = f"timeout --preserve-status 3 {sys.executable} -m traceview capture train.py; echo $?"
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=tmp_path,
        env=environment_with(fake),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == str(128 + signal.SIGTERM)


def test_the_handlers_of_the_script_are_its_own(capture: Capture) -> None:
    script = LOOP.replace(
        "BODY",
        "if number == 12: before = signal.signal(signal.SIGTERM, lambda *_: print('mine'))\n"
        "    if number in (13, 20): signal.raise_signal(signal.SIGTERM)",
    ) + ("print(signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGINT))\n")
    done = capture(script)
    assert (done.code, done.window["is_whole"]) == (0, True)
    mine, again, rest = done.out.splitlines()
    assert (mine, again) == ("mine", "mine")
    handler, interrupt = rest.split(maxsplit=1)
    assert handler == "0" or handler.endswith("SIG_DFL")
    assert "default_int_handler" in interrupt


def test_a_handler_given_back_after_the_window_ends_the_script(tmp_path: Path, fake: Path) -> None:
    body = (
        "if number == 12: before = signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    if number == 20: signal.signal(signal.SIGTERM, before); hang()"
    )
    with started(LOOP.replace("BODY", body), tmp_path, fake) as process:
        process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        done = ended(process, tmp_path)
    assert done.code == -signal.SIGTERM
    assert time.monotonic() - begun < 10


def test_children_do_not_share_the_signals_of_their_parent(capture: Capture) -> None:
    script = (
        SCRIPT_START
        + """
import multiprocessing, os, signal, time
def wait(): time.sleep(60)
for number in range(30):
    if number == 12:
        child = multiprocessing.get_context("fork").Process(target=wait)
        child.start()
        time.sleep(0.5)
        child.terminate()
        child.join(20)
        print(child.exitcode)
    train_step(number)
"""
    )
    done = capture(script)
    assert (done.code, done.out) == (0, "-15\n")
    assert done.window["is_whole"]
