from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.capture.conftest import Capture, environment_with, run_python
from tests.capture.fake_tensorflow import SCRIPT_START
from traceview.capture.sampling.nvml import NOT_ASKED

NO_GPU = "this process uses no GPU: CUDA is not loaded"
LOOP = SCRIPT_START + "for batch in batches(30): train_step(batch)\n"


def test_a_plain_loop(capture: Capture) -> None:
    done = capture(LOOP + "print(tf.raw_ops.synchronised)\n")
    assert (done.code, done.out) == (0, "2\n"), "devices are waited for before and after it"
    assert done.numbers() == [*range(9, 16)]
    assert done.window["edge_steps"] == [9, 15]
    assert done.run.parent == done.logdir / "plugins" / "profile"
    assert sorted(path.name for path in done.logdir.iterdir()) == ["plugins"]
    assert sorted(path.name for path in done.run.iterdir()) == [
        *("fake-host.traceview.json", "fake-host.xplane.pb")
    ]
    sidecar = done.sidecar
    assert sidecar["state"] == "saved"
    assert sidecar["outside_view"] == {"reason": NO_GPU, "devices": []}
    assert sidecar["versions"]["tensorflow"] == "2.21.0"
    # Of 8 and 5 steps of microseconds each; one that waits for its input is not compared with the others.
    assert 3 <= sidecar["overhead"]["unprofiled_count"] <= 8
    assert 3 <= sidecar["overhead"]["profiled_count"] <= 5
    assert sidecar["hooks"]["missing"] == []
    assert "cost of recording: " in done.err


def test_a_step_that_raises_is_left_out_and_the_others_keep_their_numbers(capture: Capture) -> None:
    script = SCRIPT_START + (
        "bad = False\n"
        "@tf.function\ndef step(batch):\n"
        "    if bad: raise ValueError\n"
        "    tf.GradientTape().gradient(0, 0)\n"
        "for n in range(20):\n"
        "    bad = n in (3, 12)\n"
        "    try: step('traced' if bad else n)\n"
        "    except ValueError: pass\n"
    )
    done = capture(script)
    assert (done.code, done.numbers()) == (0, [*range(9, 16)])
    assert (done.window["got"], done.window["cut_steps"]) == ([10, 15], [12])
    assert "step 12 is left out: it ended with ValueError" in done.err
    assert "only steps" not in done.err
    assert [call["number"] for call in done.window["calls"] if call["error"]] == [12]


SEVEN = "for n in range(7): "


@pytest.mark.parametrize(
    ("script", "line", "hint", "option"),
    [
        (SEVEN + "train_step(n)", "ran 7 steps, and the window 10:15", "--steps 1:6", ""),
        ("train_step(1)", "ran 1 step, and the window", "let the script run more steps", ""),
        (SEVEN + "evaluate(n)", "evaluate (tf.function) × 7", "--step-function evaluate", ""),
        (SEVEN + "tf.GradientTape().gradient(0, 0)", "any function × 7", "capture_steps", ""),
        ("", "no tf.function was called", "capture_steps", ""),
        (
            SEVEN + "train_step(n)",
            "trian_step was not called. Called: train_step (tf.function, trains) × 7",
            "--step-function train_step",
            "--step-function=trian_step",
        ),
    ],
)
def test_why_nothing_was_captured(
    capture: Capture, script: str, line: str, hint: str, option: str
) -> None:
    done = capture(f"{SCRIPT_START}{script}\nraise SystemExit(7)", *filter(None, [option]))
    assert done.code == 7, "it is the script's"
    said, hinted = done.err.splitlines()
    assert line in said
    assert hint in hinted
    assert not done.logdir.exists()


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ("raise ValueError('PerReplica')", "failed before its first step ended"),
        ("tf.GradientTape().gradient(0, 0); raise KeyboardInterrupt", "was interrupted before its"),
        (
            "[train_step(n) for n in range(7)]; raise ValueError",
            "failed after 7 steps, before the window 10:15 opened",
        ),
    ],
)
def test_a_script_that_failed_before_the_window_is_not_told_to_mark_steps(
    capture: Capture, ends: str, said: str
) -> None:
    done = capture(SCRIPT_START + ends)
    assert done.code in {1, -2}
    assert f"traceview: nothing was captured: the script {said}" in done.err
    assert "hint: " not in done.err


PROFILED = (
    SCRIPT_START
    + """
for n in range(30):
    if n == 2: tf.profiler.experimental.start("own")
    if n == 12: tf.profiler.experimental.stop()
    with tf.profiler.experimental.Trace("train", step_num=n + 100, _r=1):
        train_step(n)
"""
)


def test_a_profile_of_the_script_that_reaches_into_the_window(
    capture: Capture, tmp_path: Path
) -> None:
    done = capture(PROFILED)
    assert done.code == 0
    assert (done.window["got"], done.window["edge_steps"]) == ([13, 15], [12, 15])
    assert "the script's own profile is running" in done.err
    assert len([*(tmp_path / "own").rglob("*.xplane.pb")]) == 1


def test_a_profiler_outside_python_is_left_alone(capture: Capture) -> None:
    script = SCRIPT_START + (
        "from tensorflow.python.profiler.internal._pywrap_profiler import ProfilerSession\n"
        "from tensorflow.python.profiler import profiler_v2\n"
        "remote = ProfilerSession()\n"
        "for n in range(30):\n"
        "    if n == 5: remote.start('remote', {})\n"
        "    train_step(n)\n"
        "    assert n < 5 or ProfilerSession.active == id(remote)\n"
        "assert profiler_v2._profiler is None\n"
    )
    done = capture(script)
    assert done.code == 5
    assert "another profile is running in this process" in done.err


def test_nothing_is_left_patched(capture: Capture) -> None:
    script = SCRIPT_START + (
        "import atexit, os, sys\n"
        "from tensorflow.python.profiler import profiler_v2\n"
        "from keras.src.backend.tensorflow.trainer import TensorFlowTrainer\n"
        "owners = [tf.Function, tf.GradientTape, tf.OwnedIterator, TensorFlowTrainer, tf.Strategy.__mro__[1],\n"
        "          tf.input_lib.DistributedIteratorBase, tf.profiler.experimental.Trace]\n"
        "def foreign():\n"
        "    found = [m for o in owners for m in vars(o).values() if type(m).__name__ == 'Around']\n"
        "    found += [f for f in sys.meta_path if 'traceview' in type(f).__module__]\n"
        "    found += [f for f in [profiler_v2._pywrap_profiler] if 'traceview' in repr(f)]\n"
        "    found += [f for f in [os._exit, os.execv, os.execve] if hasattr(f, '__wrapped__')]\n"
        "    found += [m for m in [vars(model).get('train_function')] if hasattr(m, '__wrapped__')]\n"
        "    found += [m for m in list(sys.modules.values()) if 'traceview' in\n"
        "              type(getattr(m, '__loader__', None)).__module__]\n"
        "    return len(found)\n"
        "model = TensorFlowTrainer()\n"
        "print(foreign() > 5)\n"
        "model.fit(20)\n"
        "print(foreign())\n"
        "atexit.register(lambda: print(foreign()))\n"
    )
    assert capture(script).out.split() == ["True", "0", "0"]


def test_a_place_that_a_version_lacks_is_said(capture: Capture) -> None:
    # As if a version had an empty module there.
    script = (
        "import importlib.machinery, importlib.util, sys\n"
        "class Older(importlib.machinery.SourceFileLoader):\n"
        "    def get_data(self, path): return b''\n"
        "class Finder:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name.endswith('input_lib'):\n"
        "            return importlib.util.spec_from_loader(name, Older(name, 'nowhere.py'))\n"
        "watches = [type(finder).__name__ for finder in sys.meta_path].count('ImportWatch')\n"
        "sys.meta_path.insert(watches, Finder())\n" + LOOP
    )
    done = capture(script)
    assert done.numbers() == list(range(9, 16))
    missing = ["tensorflow.python.distribute.input_lib.DistributedIteratorBase.__next__"]
    assert done.sidecar["hooks"]["missing"] == missing
    assert f"this TensorFlow or Keras lacks {missing[0]}" in done.err


def test_the_risk_of_a_workers_profile_is_said(capture: Capture) -> None:
    workers = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}
    place = {"TF_CONFIG": json.dumps(workers)}
    done = capture(LOOP, "--run=plain", environment=place)
    assert done.err.startswith("traceview: note: TensorFlow can crash a worker when its profile")
    # A library that cannot be loaded costs a line of the loader, no more.
    preload = {**place, "LD_PRELOAD": "libjemalloc.so.0"}
    preloaded = capture(LOOP, "--run=preloaded", environment=preload)
    assert preloaded.code == 0
    assert "can crash" not in preloaded.err
    by_script = f"import os; os.environ.update({place!r})\n"
    assert capture(by_script + LOOP, "--run=set").err.count("can crash a worker") == 1


def test_a_disk_that_fills_up_is_one_line_and_the_script_goes_on(capture: Capture) -> None:
    # No file may grow any more: what a full disk does to a write.
    script = SCRIPT_START + (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "for n in range(30):\n"
        "    if n == 12: resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))\n"
        "    train_step(n)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "print('trained')\n"
    )
    done = capture(script)
    assert (done.code, done.out) == (5, "trained\n")
    assert "the trace was not written" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(("encoding", "is_quoted"), [("utf-8", False), ("ascii", True)])
def test_the_last_line_is_the_run_whatever_its_name(
    capture: Capture, encoding: str, is_quoted: bool
) -> None:
    done = capture(LOOP, "--steps=2:4", "--output=a ü", environment={"PYTHONIOENCODING": encoding})
    last = done.err.splitlines()[-1]
    assert last.startswith("$'") is is_quoted
    if is_quoted:
        shell = ["bash", "-c", f"printf %s {last}"]
        last = os.fsdecode(subprocess.run(shell, capture_output=True, check=True).stdout)
    assert Path(last).is_dir()
    assert Path(last).parts[-4] == "a ü"


API = """
import warnings
import traceview.capture.api as s
from tests.capture.recorded_markers import markers_of

def loop(body, steps=range(5, 8)):
    with s.capture_steps("logs", steps, nvml=False) as session:
        body(session)
    return session.run

def by_number(session):
    data = batches(20)
    for n in range(20):
        with session.step(n):
            train_step(next(data))

def failing(session):
    for n in range(20):
        with session.step(n):
            if n == 6: raise ZeroDivisionError
            train_step(n)

def late(session):
    for n in range(100, 110):
        with session.step(n):
            train_step(n)

print(markers_of(loop(by_number)))
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    kept = []
    try:
        loop(lambda session: (kept.append(session), failing(session)))
    except ZeroDivisionError:
        print(markers_of(kept[0].run))
    print(loop(late))
    with s.capture_steps("logs", range(5, 8)) as outer, s.capture_steps("more", range(5, 8)) as inner:
        for n in range(20):
            with outer.step(n), inner.step(n):
                train_step(n)
    print(outer.run is not None, inner.run)
for warning in said:
    print(warning.category.__name__, warning.message)
"""


def test_the_session_in_a_loop(tmp_path: Path, fake: Path) -> None:
    variables = environment_with(fake)
    done = run_python(tmp_path, "-c", SCRIPT_START + API, environment=variables, code=0)
    *lines, late, nested = done.out.splitlines()
    assert lines == [
        "[4, 5, 6, 7, 8]",
        "[4, 5, 6]",
        "None",
        "True None",
        "CaptureWarning only steps 5:6 of the requested 5:8 were recorded",
        "CaptureWarning step 6 is left out: it ended with ZeroDivisionError",
    ]
    nothing = "CaptureWarning nothing was captured: "
    assert late.startswith(f"{nothing}the last step of the loop was 109")
    assert nested == f"{nothing}another traceview capture is running in this process"
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["plugins"]
    sidecars = [json.loads(path.read_text()) for path in tmp_path.rglob("*.traceview.json")]
    reasons = [sidecar["outside_view"]["reason"] for sidecar in sidecars]
    # Asked of the last capture alone.
    assert sorted(reasons) == sorted([NO_GPU, NOT_ASKED, NOT_ASKED])
