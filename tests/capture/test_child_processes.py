"""Processes that a script forks or spawns are captured where they train, and nothing else of the script changes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.capture.conftest import Capture, Captured
from tests.capture.fake_tensorflow import SCRIPT_START

TRAIN = (
    SCRIPT_START
    + """
import multiprocessing, os, sys, time

def train(steps=30, code=0):
    for number in batches(steps): train_step(number)
    if code: sys.exit(code)
"""
)
IN_MAIN = "if __name__ == '__main__':\n    "
FORK = """
child = os.fork()
if not child:
    train()
    sys.exit(7)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def runs(done: Captured) -> list[Path]:
    """All runs of a log directory, which holds nothing else."""
    if not done.logdir.exists():
        return []
    assert [path.name for path in done.logdir.iterdir()] == ["plugins"]
    found = sorted((done.logdir / "plugins" / "profile").iterdir())
    for run in found:
        for trace in run.glob("*.xplane.pb"):
            sidecar = run / trace.name.replace(".xplane.pb", ".traceview.json")
            groups = json.loads(sidecar.read_text("utf-8"))
            assert (groups["state"], groups["window"]["got"]) == ("saved", [10, 15])
    return found


def recorded(done: Captured) -> dict[int, Path]:
    """The processes that said what they recorded, and where."""
    lines = re.findall(r"traceview: process (\d+): recorded steps 10:15 into (.*)", done.err)
    return {int(pid): Path(run) for pid, run in lines}


def test_a_forked_child_that_trains_is_captured(capture: Capture) -> None:
    done = capture(TRAIN + FORK)
    assert done.code == 7, done.err
    assert runs(done) == [done.run] == list(recorded(done).values())
    assert done.numbers() == [*range(9, 16)]
    (pid,) = recorded(done)
    assert done.sidecar["process"]["pid"] == pid
    assert f"traceview: process {pid}: Python: " in done.err


def test_a_child_that_ends_without_a_word_is_captured(capture: Capture) -> None:
    done = capture(TRAIN + FORK.replace("sys.exit(7)", "os._exit(7)"))
    assert done.code == 7, done.err
    assert runs(done) == [done.run] == list(recorded(done).values())


def test_parent_and_child_are_captured(capture: Capture) -> None:
    done = capture(TRAIN + FORK.replace("sys.exit(os", "train()\nsys.exit(os"))
    assert done.code == 7, done.err
    assert len(runs(done)) == 2
    (child,) = recorded(done).values()
    assert {child, done.run} == {*runs(done)}
    assert child != done.run


def test_parent_and_child_share_a_run_that_is_named(capture: Capture) -> None:
    script = FORK.replace("sys.exit(os", "train()\nsys.exit(os")
    script = script.replace("child = os.fork()", "parent = os.getpid()\nchild = os.fork()")
    # Both have recorded before either ends.
    done = capture(
        TRAIN + script.replace("sys.exit(7)", "time.sleep(1); sys.exit(7)"), "--run", "a"
    )
    assert done.code == 7, done.err
    names = sorted(path.name for path in done.run.glob("*.pb"))
    assert names == ["fake-host.xplane.pb", "fake-host_p2.xplane.pb"]
    assert runs(done) == [done.run]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing_are_captured(capture: Capture, method: str) -> None:
    done = capture(
        TRAIN
        + IN_MAIN
        + f"""context = multiprocessing.get_context({method!r})
    children = [context.Process(target=train, args=(30, code)) for code in (0, 3)]
    for child in children: child.start()
    for child in children: child.join()
    sys.exit(sum(child.exitcode for child in children))
"""
    )
    assert done.code == 3, done.err
    assert len(recorded(done)) == 2
    assert {*recorded(done).values()} == {*runs(done)}
    assert len(runs(done)) == 2
    assert done.run in runs(done)
    said = [line for line in done.err.splitlines() if line.startswith("traceview: process ")]
    assert len(said) == len(done.err.splitlines()) - 1 == 6


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_that_ends_in_its_window_keeps_what_it_has(capture: Capture, method: str) -> None:
    done = capture(
        TRAIN
        + IN_MAIN
        + f"""child = multiprocessing.get_context({method!r}).Process(target=train, args=(13, 5))
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""
    )
    assert done.code == 5, done.err
    assert done.window["got"] == [10, 13]
    assert "only steps 10:13 of the requested 10:15 were recorded" in done.err


def test_children_that_nobody_waits_for_are_waited_for_as_python_does(capture: Capture) -> None:
    done = capture(
        TRAIN + IN_MAIN + "multiprocessing.get_context('fork').Process(target=train).start()\n"
    )
    assert done.code == 0, done.err
    assert runs(done) == [done.run] == list(recorded(done).values())


def test_a_signal_does_not_wait_for_children(capture: Capture) -> None:
    """Python's own end does, unless the script ends otherwise."""
    script = """import atexit, signal
    child = multiprocessing.get_context('fork').Process(target=time.sleep, args=(5,))
    child.start()
    atexit.register(lambda: print("end"))
    train()
    os.kill(os.getpid(), signal.SIGTERM)
"""
    done = capture(TRAIN + IN_MAIN + script)
    # The signal ends the process as without traceview: without `atexit`, and the child outlives it.
    assert (done.code, done.out) == (-15, ""), done.err
    (run,) = runs(done)
    assert f"the trace is saved in {run}; the script goes on" in done.err


def test_a_child_that_is_forked_in_the_window_leaves_the_capture_alone(capture: Capture) -> None:
    script = """
for number in batches(30):
    train_step(number)
    if number == 12:
        child = os.fork()
        if not child:
            # The graph of the other one is known, so that it computes no gradient any more.
            train_step = tf.function(train_step.python_function)
            train()
            sys.exit(7)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
sys.exit(code)
"""
    done = capture(TRAIN + script)
    assert done.code == 7, done.err
    assert runs(done) == [done.run]
    assert "traceview: process" not in done.err
    assert done.window["is_whole"]


def test_children_one_after_another_get_a_run_each(capture: Capture) -> None:
    done = capture(
        TRAIN
        + IN_MAIN
        + """for fold in range(2):
        child = multiprocessing.get_context('fork').Process(target=train)
        child.start()
        child.join()
"""
    )
    assert done.code == 0, done.err
    assert len(runs(done)) == len(recorded(done)) == 2


def test_a_child_of_a_child_is_captured(capture: Capture) -> None:
    inner = "child = os.fork()\nif not child:\n" + re.sub("^", "    ", FORK, flags=re.MULTILINE)
    done = capture(TRAIN + inner + "\nsys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))")
    assert done.code == 7, done.err
    assert runs(done) == [done.run] == list(recorded(done).values())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_readers_leave_nothing(capture: Capture, method: str) -> None:
    """A pool whose workers train nothing, which is then ended by force."""
    done = capture(
        TRAIN
        + IN_MAIN
        + f"""pool = multiprocessing.get_context({method!r}).Pool(2)
    print(sum(pool.map(abs, range(-9, 0))))
    train()
    pool.terminate()
    pool.join()
"""
    )
    assert (done.code, done.out) == (0, "45\n"), done.err
    assert runs(done) == [done.run]
    assert "process" not in done.err


def test_a_child_whose_window_never_opens_says_so(capture: Capture) -> None:
    done = capture(TRAIN + FORK.replace("train()", "train(5)"))
    assert done.code == 7
    assert re.search(
        r"traceview: process \d+: nothing was captured: it ran 5 steps, and the window 10:15 is later",
        done.err,
    )
    assert runs(done) == []


def test_without_a_step_anywhere_nothing_is_captured(capture: Capture) -> None:
    done = capture(TRAIN + FORK.replace("train()", "pass").replace("sys.exit(7)", "sys.exit(0)"))
    assert done.code == 5
    assert "nothing was captured: no tf.function was called" in done.err
    assert runs(done) == []


def test_a_script_that_changes_its_folder(capture: Capture, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    done = capture(TRAIN + "os.chdir('elsewhere')\n" + FORK)
    assert done.code == 7, done.err
    assert runs(done) == [done.run]


def test_a_process_without_traceview_is_spawned_all_the_same(capture: Capture) -> None:
    """Another Python, for instance, which `multiprocessing.set_executable` chose."""
    hides = "import sys; sys.modules['traceview.capture.launch.child_processes'] = None\n"
    done = capture(
        TRAIN
        + IN_MAIN
        + f"""from multiprocessing import spawn, util
    command_line = spawn.get_command_line
    def get_command_line(**names):
        *head, code, last = command_line(**names)
        return [*head, {hides!r} + code, last]
    spawn.get_command_line = get_command_line
    child = multiprocessing.get_context('spawn').Process(target=train, args=(30, 4))
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""
    )
    assert done.code == 4, done.err
    assert "Traceback" not in done.err
    assert recorded(done) == {}


def test_nothing_is_left_of_the_list(
    capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    assert capture(TRAIN + FORK).code == 7
    assert capture("import sys; sys.exit(3)").code == 3
    assert list(temporary.iterdir()) == []


HANG = """def hang():
    train(20)
    time.sleep(5)
    train(5)

"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_that_hangs_is_reported_and_not_the_parent_that_waits(
    capture: Capture, method: str
) -> None:
    script = f"""child = multiprocessing.get_context({method!r}).Process(target=hang)
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""
    done = capture(TRAIN + HANG + IN_MAIN + script, "--on-hang", "3s", "--steps", "10:15")
    assert done.code == 0, done.err
    ((pid, run),) = recorded(done).items()
    assert list(runs(done)) == [run]
    (path,) = run.glob("*.hang.json")
    report = json.loads(path.read_text("utf-8"))
    assert (report["step_count"], report["state"]) == (20, "went-on")
    assert (
        f"traceview: process {pid}: hang-python: The main thread has been in hang, train.py:"
        in done.err
    )
    assert done.err.count("No step has ended for") == 1


@pytest.mark.parametrize(
    "end", ["os.kill(os.getpid(), 15)", "os.execv('/bin/true', ['true'])", "sys.exit(3)"]
)
def test_no_list_of_captures_is_left(capture: Capture, tmp_path: Path, end: str) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    script = f"for number in batches(12): train_step(number)\n{end}\n"
    done = capture(TRAIN + script, environment={"TMPDIR": str(folder)})
    assert done.window["got"] == [10, 12], done.err
    assert list(folder.iterdir()) == []
