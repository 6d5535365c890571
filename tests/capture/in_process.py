"""Captures scripts one after another in this process, as a notebook captures its cells: TensorFlow is imported once."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

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
) -> Done:
    """Run a script as `__main__`, and capture its steps below `out`."""
    done = Done()
    settings = Settings(Path(out), StepRange.parse(steps), step_functions=tuple(step_functions))
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
