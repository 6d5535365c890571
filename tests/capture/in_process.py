"""Captures scripts one after another in this process, or in forked ones, so that TensorFlow is imported once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from tests.capture.conftest import Captured, environment_with
from traceview.capture.record.outcome import End
from traceview.capture.record.settings import Settings
from traceview.capture.record.step_watch import StepWatch
from traceview.capture.sidecar.file import WindowListener
from traceview.capture.window.ranges import StepRange


@dataclass
class Done:
    """How a script ended, and what its capture said."""

    code: int = 0
    run: Path | None = None
    problem: str | None = None
    said: list[str] = field(default_factory=list)


def captured(
    path: str,
    steps: str,
    step_functions: Iterable[str] = (),
    *,
    listeners: Sequence[WindowListener] = (),
    out: str = "logs",
    without: Collection[str] = (),
) -> Done:
    """Run a script as `__main__`, and capture its steps below `out`."""
    done = Done()
    settings = Settings(
        Path(out),
        StepRange.parse(steps),
        without=frozenset(without),
        step_functions=tuple(step_functions),
    )
    capture = StepWatch(settings, done.said.append, listeners)
    capture.capture.prepare()
    capture.hooks.install()
    capture.start_clocks()
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__file__ = str(Path(path).resolve())
    sys.argv = [str(path), *sys.argv[1:]]
    end: End = "ended"
    try:
        exec(compile(Path(path).read_text("utf-8"), module.__file__, "exec"), vars(module))
    except SystemExit as error:
        done.code = int(error.code or 0)
    except BaseException as error:
        end, done.code = "failed", 1
        traceback.print_exc()
        if isinstance(error, KeyboardInterrupt):
            end, done.code = "interrupted", 130
    capture.finish(end)
    problem = capture.outcome(end)
    capture.remove()
    done.run = capture.run
    done.problem = None if problem is None else problem.message
    return done


@dataclass(frozen=True)
class Script:
    """A script, the steps of it to record, what to record them without, its arguments, and the text of its module `model`."""

    text: str
    steps: str
    without: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    model: str = ""


def captured_in_children(
    folder: Path, scripts: Mapping[str, Script], **variables: str
) -> dict[str, Captured]:
    """Capture each script in a process of its own, forked from one that has imported TensorFlow and run nothing."""
    rows = []
    for number, (name, script) in enumerate(scripts.items()):
        place = folder / str(number)
        place.mkdir()
        (place / "train.py").write_text(script.text, encoding="utf-8")
        (place / "model.py").write_text(script.model, encoding="utf-8")
        rows.append((name, str(place), script.steps, script.without, script.arguments))
    environment = environment_with(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1", **variables)
    done = subprocess.run(
        [sys.executable, "-m", "tests.capture.in_process"],
        input=json.dumps(rows),
        env=environment,
        capture_output=True,
        text=True,
        timeout=60 * len(rows),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = {}
    for line in done.stdout.splitlines():
        if line.startswith("ROW "):
            name, code, place, run = json.loads(line.removeprefix("ROW "))
            found[name] = Captured(code, "", f"{Path(place) / run}\n", Path(place) / "logs")
    assert list(found) == list(scripts), done.stderr[-3000:]
    assert [name for name, run in found.items() if run.code] == [], done.stderr[-3000:]
    return found


def main() -> None:
    """Fork a child for each script of the list on standard input, one after the other."""
    import tensorflow as tf

    assert tf.keras
    for name, place, steps, without, arguments in json.load(sys.stdin):
        child = os.fork()
        if not child:
            os.chdir(place)
            sys.path.insert(0, place)
            sys.argv[1:] = arguments
            done = captured("train.py", steps, without=without)
            sys.stdout.write(f"\nROW {json.dumps([name, done.code, place, str(done.run)])}\n")
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
