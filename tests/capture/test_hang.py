"""The watch for hangs, without TensorFlow: each hang has one report, and a script is never disturbed."""

from __future__ import annotations

import faulthandler
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.capture.conftest import Capture
from tests.capture.fake_tensorflow import SCRIPT_START
from traceview.base.stack_dump import FILE_PREFIX
from traceview.capture.hang.watch import (
    HangWatch,
    KernelThread,
    Look,
    Peers,
    PythonThread,
    Silence,
    described,
    python_threads,
)
from traceview.capture.process.python_code import CodePlaces
from traceview.capture.record.capture import Capture as OfProcess
from traceview.capture.record.settings import Settings
from traceview.capture.window.step_window import StepRange

LOOP = """
import time
for number in range(10):
    train_step(number)
    if number in {pauses}: time.sleep(2)
"""


def reports(folder: Path) -> list[dict[str, Any]]:
    paths = sorted(folder.glob("plugins/profile/*/*.hang*.json"))
    return [json.loads(path.read_text("utf-8")) for path in paths]


def test_each_pause_has_its_report_which_is_completed(capture: Capture) -> None:
    """Before the window, after it, and where the script ends in it."""
    script = SCRIPT_START + LOOP.format(pauses=(3, 8)) + "time.sleep(2)\nraise SystemExit(7)"
    done = capture(script, "--on-hang", "1s", "--steps", "5:7")
    assert done.code == 7
    first, *others = reports(done.logdir)
    states = [(report["step_count"], report["state"]) for report in (first, *others)]
    assert states == [(4, "went-on"), (9, "went-on"), (10, "ended")]
    assert 1.5 < first["total_ns"] / 1e9 < 5
    assert first["findings"][0]["code"] == "hang"
    assert "training went on after 2 s" in done.err
    # The trace follows into the run of the first report.
    suffixes = [*[".json"] * 4, *[".md"] * 3, ".pb"]
    assert sorted(path.suffix for path in done.run.iterdir()) == suffixes
    assert sorted(path.name for path in done.logdir.iterdir()) == ["plugins"]


def test_a_report_that_takes_long_does_not_look_as_if_no_python_could_run(tmp_path: Path) -> None:
    def write_up(_facts: object) -> tuple[dict[str, bytes], list[str]]:
        time.sleep(0.9)
        return {".json": b"{}"}, []

    steps = OfProcess(Settings(tmp_path, StepRange(10, 15)), print)
    watch = HangWatch(0.5, write_up, steps, print)
    watch.start()
    try:
        end_s = time.monotonic() + 60
        while not any(tmp_path.rglob("*.hang.json")) and time.monotonic() < end_s:
            time.sleep(0.05)
        time.sleep(0.2)
        stacks = [path.read_text() for path in tmp_path.glob(f"{FILE_PREFIX}*")]
    finally:
        watch.stop()
    assert any(tmp_path.rglob("*.hang.json"))
    assert stacks == [""]


def test_a_watch_that_never_began_ends_in_silence(tmp_path: Path) -> None:
    """As that of a framework that is imported and runs nothing."""
    said: list[str] = []
    steps = OfProcess(Settings(tmp_path, StepRange(10, 15)), said.append)
    HangWatch(0.5, None, steps, said.append).stop()
    assert (said, list(tmp_path.iterdir())) == ([], [])


# Threads


def test_a_stack_has_no_frames_of_the_capture(tmp_path: Path) -> None:
    main = next(python_threads(CodePlaces([tmp_path])))
    assert main.frames[0].startswith("test_hang.py:")
    assert not [line for line in main.frames if "traceview/capture" in line]


@pytest.mark.parametrize(
    ("cpu_ns", "switches", "of_others_ns", "wait"),
    [
        (0, 1, 0, "lock"),
        (10**8, 1, 0, "computing"),
        # A loop of operations that other threads compute is woken by each of them.
        (0, 500, 10**9, "computing"),
        (0, 500, 0, "lock"),
    ],
    ids=["it hangs", "it runs Python", "it hands work to others", "it polls"],
)
def test_a_thread_that_works_does_not_wait_for_a_lock(
    cpu_ns: int, switches: int, of_others_ns: int, wait: str
) -> None:
    thread = PythonThread(1, "MainThread", 7, ("train.py:3 in loop",), None)
    first = Look(0, (thread,), {7: KernelThread("lock", 0, 0), 8: KernelThread("lock", 0, 0)})
    later = {7: KernelThread("lock", cpu_ns, switches), 8: KernelThread("lock", of_others_ns, 9)}
    (row,) = described(first, Look(10**9, (thread,), later))["threads"]
    assert row["wait"] == wait


# Where no Python can run


def test_the_timer_fires_only_where_it_is_not_armed_again(tmp_path: Path) -> None:
    silence = Silence(tmp_path, 0.5)
    silence.open()
    try:
        for _ in range(4):
            silence.beat()
            time.sleep(0.2)
        assert silence.text() == ""
        silence.beat()
        time.sleep(0.8)
        assert "test_the_timer_fires_only" in silence.text()
        assert silence.text() == ""
    finally:
        silence.close()
    assert list(tmp_path.iterdir()) == []


def test_a_script_keeps_the_timer_that_it_uses(tmp_path: Path) -> None:
    original = faulthandler.dump_traceback_later
    silence = Silence(tmp_path, 0.2)
    silence.open()
    silence.beat()
    with (tmp_path / "own.txt").open("w") as file:
        faulthandler.dump_traceback_later(0.3, file=file)
        silence.beat()
        time.sleep(0.7)
        silence.close()
    assert "Timeout" in (tmp_path / "own.txt").read_text()
    assert faulthandler.dump_traceback_later is original


# Workers


CLUSTER = {"cluster": {"worker": ["a:1", "b:1", "c:1"]}}


def peers(folder: Path, index: int) -> Peers:
    found = Peers(folder, StepRange(10, 15), 5.0)
    config = json.dumps({**CLUSTER, "task": {"type": "worker", "index": index}})
    assert found.find({"TF_CONFIG": config})
    return found


def beat(**changes: Any) -> dict[str, Any]:
    plain = {
        "is_ended": False,
        "is_in_step": False,
        "step_count": 42,
        "waited_ns": 9,
        "line": "train.py:50 in save",
    }
    return {**plain, **changes}


def test_a_worker_that_writes_no_more_is_silent(tmp_path: Path) -> None:
    peers(tmp_path, 1).write(beat())
    (path,) = tmp_path.rglob("beat-w1.json")
    first = peers(tmp_path, 0)
    first.write(beat())
    for seconds, state in ((10, "elsewhere"), (20, "silent")):
        moment = time.time() - seconds
        os.utime(path, (moment, moment))
        worker, never = first.read()
        assert worker["state"] == state
        assert worker["silent_ns"] == pytest.approx(seconds * 1e9, rel=0.1)
        assert never["state"] == "unknown"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"host": 1}', "x" * 100])
def test_a_damaged_file_of_a_worker_is_as_none(text: str, tmp_path: Path) -> None:
    peers(tmp_path, 1).write(beat())
    (path,) = tmp_path.rglob("beat-w1.json")
    path.write_text(text, encoding="utf-8")
    assert peers(tmp_path, 0).read()[0]["state"] == "unknown"


def test_empty_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    host = socket.gethostname()
    names = [f"{host}-999999999-a", f"{host}-{os.getpid()}-a", "elsewhere-999999999-a"]
    names.append(f"{host}-²-a")
    for name in names:
        (tmp_path / f"{FILE_PREFIX}{name}.txt").touch()
    kept = tmp_path / f"{FILE_PREFIX}{host}-999999998-a.txt"
    kept.write_text("stacks")
    silence = Silence(tmp_path, 9)
    silence.open()
    silence.close()
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted([kept.name, *(f"{FILE_PREFIX}{name}.txt" for name in names[1:])])
