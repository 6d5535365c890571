"""Captures scripts one after another in this process, or in forked ones, so that TensorFlow is imported once."""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tests.capture.conftest import QUIET, Captured, run_python
from traceview.capture.record.capture import Capture
from traceview.capture.record.outcome import End
from traceview.capture.record.settings import Settings
from traceview.capture.window.step_window import StepRange


def captured(steps: str, step_functions: Iterable[str]) -> tuple[End, Path | None, list[str]]:
    """Run `train.py` as `__main__`, and capture its steps: how it ended, the run, and what was said."""
    said: list[str] = []
    settings = Settings(Path("logs"), StepRange.parse(steps), step_functions=tuple(step_functions))
    capture = Capture(settings, said.append)
    capture.prepare()
    capture.hooks.install()
    capture.start_clocks()
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__file__, sys.argv[0] = str(Path("train.py").resolve()), "train.py"
    end: End = "ended"
    try:
        exec(compile(Path("train.py").read_text("utf-8"), module.__file__, "exec"), vars(module))
    except BaseException:
        end = "failed"
        traceback.print_exc()
    capture.finish(end)
    capture.outcome(end)
    return end, capture.run, said


@dataclass(frozen=True)
class Script:
    """A script and the steps of it to record, empty for a run without a capture; its arguments, and its module `model`."""

    text: str
    steps: str
    step_functions: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    model: str = ""


def captured_scripts(
    folder: Path, scripts: Mapping[str, Script], *, is_forked: bool = False, **variables: str
) -> dict[str, Captured]:
    """Capture scripts that share an import of TensorFlow, and what they do with it unless each `is_forked` after it."""
    rows = []
    for number, (name, script) in enumerate(scripts.items()):
        place = folder / str(number)
        place.mkdir(parents=True)
        (place / "train.py").write_text(script.text, encoding="utf-8")
        (place / "model.py").write_text(script.model, encoding="utf-8")
        choices = (script.steps, script.step_functions, script.arguments)
        rows.append((name, str(place), *choices))
    (folder / "scripts.json").write_text(json.dumps([is_forked, rows]), encoding="utf-8")
    command = ("-m", "tests.capture.in_process", "scripts.json")
    done = run_python(folder, *command, environment=QUIET(**variables), code=0)
    found: dict[str, Captured] = {}
    printed: list[str] = []
    for line in done.out.splitlines():
        if line.startswith("ROW "):
            name, end, place, run, said = json.loads(line.removeprefix("ROW "))
            assert end == "ended", done.err[-3000:]
            err = "\n".join([*said, str(Path(place) / run)])
            found[name] = Captured(0, "\n".join(printed), err, Path(place) / "logs")
            printed = []
        else:
            printed.append(line)
    assert list(found) == list(scripts), done.err[-3000:]
    return found


def main(path: str) -> None:
    """Run the scripts of a list."""
    import tensorflow as tf

    assert tf.keras
    is_forked, rows = json.loads(Path(path).read_text("utf-8"))
    for name, place, steps, step_functions, arguments in rows:
        child = os.fork() if is_forked else 0
        if child:
            os.waitpid(child, 0)
            continue
        os.chdir(place)
        sys.path[0], sys.argv[1:] = place, arguments
        if steps:
            end, run, said = captured(steps, step_functions)
        else:
            runpy.run_path(str(Path(place, "train.py")), run_name="__main__")
            end, run, said = "ended", None, []
        row = json.dumps([name, end, place, str(run), said])
        sys.stdout.write(f"\nROW {row}\n")
        sys.stdout.flush()
        if is_forked:
            os._exit(0)
    methods = (
        tf.GradientTape.__enter__,
        tf.GradientTape.gradient,
        type(tf.function(main)).__call__,
    )
    assert [method for method in methods if not hasattr(method, "__code__")] == [], "left hooked"


if __name__ == "__main__":
    main(sys.argv[1])
