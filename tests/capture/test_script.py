from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import traceview
from tests.capture.conftest import Capture, environment_with, run_command
from tests.capture.fake_tensorflow import SCRIPT_START
from traceview.base.errors import UsageError
from traceview.capture.record.destination import output_folder

FACTS = """
import json, os, sys
early = sorted({"tensorflow", "numpy", "pandas", "keras"} & set(sys.modules))
def inner(): pass
print(json.dumps({
    "name": __name__, "file": __file__, "package": __package__, "spec": getattr(__spec__, "name", None),
    "argv": sys.argv, "path": sys.path[0], "cwd": os.getcwd(), "early": early,
    "main": sys.modules["__main__"].__dict__ is globals(), "variable": os.environ.get("SOME"),
    "pickled": __import__("pickle").dumps(inner).decode("latin-1"), "doc": __doc__,
    "names": sorted(globals()),
}))
"""


def as_python(folder: Path, *arguments: str, fake: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment_with(fake, SOME="thing"),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A script as file, package, module and directory."""
    for name in ("work", "work/package", "work/directory", "work/scripts_of_mine"):
        (tmp_path / name).mkdir()
    work = tmp_path / "work"
    for name in ("package/__main__.py", "package/tool.py", "directory/__main__.py"):
        (work / name).write_text(FACTS, encoding="utf-8")
    (work / "scripts_of_mine" / "train.py").write_text(FACTS, encoding="utf-8")
    (work / "package" / "__init__.py").touch()
    with ZipFile(work / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", FACTS)
    (work / "linked.py").symlink_to(work / "scripts_of_mine" / "train.py")
    return work


@pytest.mark.parametrize(
    "arguments",
    [
        ["scripts_of_mine/train.py", "--steps", "3", "-m", "-h"],
        ["linked.py"],
        ["directory", "x"],
        ["app.pyz", "x"],
        ["-m", "package", "--out", "y"],
        ["-m", "package.tool"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_a_script_sees_what_python_would_show_it(
    folder: Path, fake: Path, arguments: list[str]
) -> None:
    expected = as_python(folder, *arguments, fake=fake)
    done = run_command(folder, arguments, environment_with(fake, SOME="thing"))
    assert json.loads(done.out) == json.loads(expected.stdout)
    assert "did not import TensorFlow" in done.err
    assert done.code == 5
    assert not (folder / "logs").exists()


STEPS = (
    SCRIPT_START
    + """
import os, signal, sys
for number, batch in enumerate(batches(30)):
    if number == 12:
        ENDS
    train_step(batch)
"""
)


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ("sys.exit(3)", 3),
        ("sys.exit()", 0),
        ("sys.exit('no more')", 1),
        ("raise ValueError('wrong') from KeyError('cause')", 1),
        ("os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("os.kill(os.getpid(), signal.SIGHUP)", -1),
        ("os.kill(os.getpid(), signal.SIGINT)", -2),
    ],
)
def test_however_a_script_ends_its_trace_is_kept(
    capture: Capture, tmp_path: Path, fake: Path, ends: str, code: int
) -> None:
    done = capture(STEPS.replace("ENDS", ends))
    assert done.code == code
    assert done.numbers() == [9, 10, 11]
    assert done.window["got"] == [10, 12]
    assert not done.window["is_whole"]
    assert "only steps 10:12 of the requested 10:15 were recorded" in done.err
    alone = as_python(tmp_path, "train.py", fake=fake)
    assert alone.returncode == code
    # What Python says comes first and unchanged: without frames of ours.
    assert done.err.startswith(alone.stderr)


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", -15), ("SIGHUP", -1)])
def test_a_signal_before_the_window_is_an_interruption(
    capture: Capture, name: str, code: int
) -> None:
    sends = f"if number == 3: os.kill(os.getpid(), signal.{name})"
    done = capture(STEPS.replace("if number == 12:\n        ENDS", sends))
    assert done.code == code
    assert done.err.splitlines()[-1] == (
        "traceview: nothing was captured: the script was interrupted after 3 steps, before the window 10:15 "
        "opened"
    )


@pytest.mark.parametrize(
    "does",
    [
        "sys.stdout.close()",
        "sys.stdout = None",
        "sys.stdout = sys.stderr = io.StringIO()",
    ],
)
def test_what_a_script_does_to_its_streams_is_not_done_to_ours(capture: Capture, does: str) -> None:
    done = capture(STEPS.replace("ENDS", f"import io; {does}"), "--analyze")
    assert done.code == 0, done.err
    assert "Traceback" not in done.err
    assert done.numbers() == [*range(9, 16)]
    is_closed = does.endswith("close()")
    assert ("5 steps used" in done.out) is not is_closed
    assert ("note: no report: " in done.err) is is_closed


@pytest.mark.parametrize("has_terminal", [True, False])
def test_who_reads_along_is_told_what_comes_next(
    tmp_path: Path, fake: Path, has_terminal: bool
) -> None:
    (tmp_path / "train.py").write_text(STEPS.replace("ENDS", "pass"), encoding="utf-8")
    reading, writing = os.openpty() if has_terminal else os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as said, os.fdopen(writing, "wb") as terminal:
        done = subprocess.run(
            [sys.executable, "-m", "traceview", "capture", "train.py"],
            cwd=tmp_path,
            env=environment_with(fake),
            stderr=terminal,
            check=False,
        )
        lines = said.read(10_000).decode().splitlines()
    assert done.returncode == 0, lines
    assert lines[-1].startswith(str(tmp_path / "logs"))
    assert ("pass this run to traceview analyze" in lines[-2]) is has_terminal


def test_a_script_without_standard_error_keeps_its_exit_code(capture: Capture) -> None:
    done = capture(STEPS.replace("ENDS", "sys.stderr.close()"), "--analyze")
    assert (done.code, done.err) == (0, "")
    assert "5 steps used" in done.out
    assert capture("import sys; sys.stderr.close()").code == 5


def test_a_child_that_a_script_forks_leaves_the_capture_alone(capture: Capture) -> None:
    ends = "if not os.fork(): sys.exit(7)\n        print(os.waitstatus_to_exitcode(os.wait()[1]))"
    done = capture(STEPS.replace("ENDS", ends))
    assert (done.code, done.out) == (0, "7\n")
    assert done.numbers() == [*range(9, 16)]
    assert done.window["is_whole"]
    assert list(done.run.parent.iterdir()) == [done.run]
    *_, sampling, run = done.err.splitlines()
    assert (sampling[:19], run) == ("traceview: Python: ", str(done.run))


def test_a_child_that_a_script_forks_dies_of_signals(capture: Capture) -> None:
    script = """
import os, signal, sys, time
reading, writing = os.pipe()
child = os.fork()
if not child:
    os.write(writing, b"!")
    for _ in range(300):
        time.sleep(0.1)
    sys.exit()
# Python forgets signals that come before it is ready in the child.
os.read(reading, 1)
os.kill(child, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert capture(script).out == "-15\n"


def test_an_exception_inside_a_step_shows_no_frame_of_ours(
    capture: Capture, tmp_path: Path, fake: Path
) -> None:
    script = SCRIPT_START + (
        "@tf.function\ndef train_step(batch):\n"
        "    if len(seen) == 1: raise ValueError('in the step')\n"
        "    seen.append(batch)\n    tf.GradientTape().gradient(0, 0)\n"
        "seen = []\nfor batch in (1, 2, 3, 4, 'traced again'): train_step(batch)\n"
    )
    done = capture(script, "--steps", "2:9")
    alone = as_python(tmp_path, "train.py", fake=fake)
    assert alone.returncode == done.code == 1
    assert done.err.startswith(alone.stderr)
    assert (done.window["got"], done.window["cut_steps"]) == ([2, 4], [4])
    assert "step 4 is left out: it ended with ValueError" in done.err
    assert done.numbers() == [1, 2, 3, 4]


@pytest.mark.parametrize("calls", ["strategy.run(warn)", "train_step(number)"])
def test_a_warning_names_the_line_that_it_names_without_capture(
    capture: Capture, tmp_path: Path, fake: Path, calls: str
) -> None:
    script = SCRIPT_START + (
        "import warnings\n"
        "def warn(*_):\n"
        "    tf.GradientTape().gradient(0, 0)\n"
        # Its own caller in TensorFlow, one more there, and the script.
        "    warnings.warn('slow', stacklevel=4)\n"
        "strategy, train_step = tf.Strategy(), tf.function(warn)\n"
        f"for number in range(20):\n    {calls}\n"
    )
    done = capture(script)
    alone = as_python(tmp_path, "train.py", fake=fake)
    assert "train.py:20: UserWarning: slow" in alone.stderr
    assert done.window["is_whole"]
    assert done.err.startswith(alone.stderr)


@pytest.mark.parametrize("is_module", [False, True])
def test_modules_beside_the_script_are_its_own(tmp_path: Path, fake: Path, is_module: bool) -> None:
    names = ["typer", "click", "rich", "msgspec", "jinja2", "markdown_it", "pynvml", "statistics"]
    for name in names:
        (tmp_path / f"{name}.py").write_text(f"mark = 'own {name}'\n", encoding="utf-8")
    listed = ", ".join(names)
    script = SCRIPT_START + (
        "import atexit\n"
        "def marks():\n"
        f"    import {listed}\n"
        f"    return {{module.mark for module in ({listed})}}\n"
        "print(len(marks()))\n"
        "for number in range(30): train_step(number)\n"
        "atexit.register(lambda: print('at the end', len(marks())))\n"
    )
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    arguments = ["-m", "train"] if is_module else ["train.py"]
    alone = as_python(tmp_path, *arguments, fake=fake)
    done = run_command(tmp_path, ["--analyze", *arguments], environment_with(fake))
    assert alone.stdout == f"{len(names)}\nat the end {len(names)}\n"
    assert done.code == 0, done.err
    first, *report, last = done.out.splitlines()
    assert [first, last] == alone.stdout.splitlines()
    assert any("5 steps used" in line for line in report)
    assert done.numbers() == [*range(9, 16)]


@pytest.mark.parametrize(
    "call", ["execv(sys.executable, ", "execlp('python', *", "execve(sys.executable, "]
)
def test_a_script_that_replaces_its_process_keeps_its_trace(capture: Capture, call: str) -> None:
    more = ", os.environ" if "execve" in call else ""
    program = [sys.executable, "-c", "print('another program')"]
    ends = f"os.{call}{program!r}{more})".replace("'python'", "sys.executable")
    done = capture(STEPS.replace("ENDS", ends))
    assert (done.code, done.out) == (0, "another program\n")
    assert done.numbers() == [9, 10, 11]
    assert "note: the script replaces its process by another program" in done.err


def test_a_child_that_replaces_its_process_leaves_the_capture_alone(capture: Capture) -> None:
    program = [sys.executable, "-c", "print('another program')"]
    ends = f"if not os.fork(): os.execv(sys.executable, {program!r})\n        os.wait()"
    done = capture(STEPS.replace("ENDS", ends))
    assert (done.code, done.out) == (0, "another program\n")
    assert done.window["is_whole"]
    assert "os.exec" not in done.err


def test_a_script_that_cannot_be_compiled(capture: Capture, tmp_path: Path, fake: Path) -> None:
    done = capture("def f(:\n")
    alone = as_python(tmp_path, "train.py", fake=fake)
    assert done.code == alone.returncode == 1
    assert done.err.startswith(alone.stderr)


def test_a_handler_of_the_script_stays_in_charge(capture: Capture) -> None:
    script = STEPS.replace(
        "ENDS", "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9)); os.kill(os.getpid(), 15)"
    )
    assert capture(script).code == 9


def test_what_a_script_leaves_for_its_end_still_runs(capture: Capture) -> None:
    script = "import atexit, sys\natexit.register(lambda: print('bye', __name__))\nsys.exit(4)\n"
    done = capture(script)
    assert (done.code, done.out) == (4, "bye __main__\n")
    assert "did not import TensorFlow" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["nosuch.py"], 2, "script not found: nosuch.py"),
        (["json"], 2, "hint: to run a module: traceview capture -m json"),
        (["-m", "nosuch.module"], 2, "module not found, or not runnable: nosuch.module"),
        (["."], 2, "without a __main__.py"),
        (["--steps", "0:5", "x.py"], 2, "step 0 cannot be captured"),
        (["--out", "no/such", "x.py"], 5, "does not exist"),
        (["--out", "x.py", "x.py"], 5, "Not a directory"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    tmp_path: Path, arguments: list[str], code: int, line: str
) -> None:
    (tmp_path / "x.py").touch()
    done = run_command(tmp_path, arguments, environment_with())
    assert done.code == code
    assert line in done.err
    assert len(done.err.splitlines()) <= 2
    assert "Traceback" not in done.err
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("out", "line"),
    [
        ("", "--out is empty"),
        ("gs://bucket/logs", "--out gs://bucket/logs: traceview captures into a local or mounted"),
        ("s3://bucket/logs?token=hunter2", "--out s3://bucket/logs?token=***: traceview captures"),
        ("file:///tmp/logs", "--out file:///tmp/logs: traceview captures into a local or mounted"),
    ],
)
@pytest.mark.parametrize("command", ["capture", "demo", "remote", "check"])
def test_an_output_that_is_no_folder_is_said_before_anything_runs(
    tmp_path: Path, command: str, out: str, line: str
) -> None:
    (tmp_path / "x.py").write_text("print('ran')", encoding="utf-8")
    ways = {
        "capture": ["capture", "--out", out, "x.py"],
        "demo": ["capture", "--out", out, "--demo"],
        "remote": ["capture", "--out", out, "--remote", "host:1"],
        "check": ["capture", "--check", "--out", out, "x.py"],
    }
    done = as_python(tmp_path, "-m", "traceview", *ways[command], fake=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"traceview: error: {line}")
    assert len(done.stderr.splitlines()) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["x.py"]


@pytest.mark.parametrize("logdir", ["", "gs://bucket/logs", Path("gs://bucket/logs")])
def test_a_loop_is_refused_such_an_output_before_it_begins(logdir: str | Path) -> None:
    with pytest.raises(UsageError, match="--out"), traceview.capture_steps(logdir, range(3, 5)):
        raise AssertionError("the loop has begun")


def test_a_drive_is_a_folder() -> None:
    assert output_folder(r"C:\logs") == Path(r"C:\logs")
    assert output_folder("exp:1/logs") == Path("exp:1/logs")


def test_profiling_that_is_disabled_is_said_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("print('ran')", encoding="utf-8")
    done = run_command(tmp_path, ["x.py"], environment_with(TF_DISABLE_PROFILING="1"))
    assert (done.code, done.out) == (5, "")
    assert done.err.count("TF_DISABLE_PROFILING is set") == 1
