"""Runs a script that knows nothing of traceview, and captures some of its steps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from traceview.capture.capture import Settings
from traceview.capture.child_processes import ChildProcesses, say_on_stderr
from traceview.capture.exec_watch import ExecWatch
from traceview.capture.hang.watch import HangSettings, HangWatch
from traceview.capture.hidden_frames import HiddenFrames, running_files
from traceview.capture.process_capture import ProcessCapture
from traceview.capture.script import FILE as SCRIPT_FILE
from traceview.capture.script import Script, ScriptEnd
from traceview.capture.sidecar import WindowListener
from traceview.capture.termination import LONGEST_WAIT_SECONDS, Termination
from traceview.capture.variable import Request
from traceview.errors import CaptureError


@dataclass(frozen=True)
class ScriptCapture:
    """The exit code of a script, and the folder of its trace; without a trace, `problem` says why.

    `signal`: the number of the signal that ended the script, None if none did.
    """

    code: int
    run: Path | None
    problem: CaptureError | None
    signal: int | None = None


def capture_script(
    script: Script,
    settings: Settings,
    *,
    say: Callable[[str], None],
    step_functions: Iterable[str] = (),
    listeners: Sequence[WindowListener] = (),
    serve: int | None = None,
    say_in_children: Callable[[str], None] = say_on_stderr,
    before_death: Callable[[ScriptCapture], None] = lambda _: None,
    on_hang: HangSettings | None = None,
) -> ScriptCapture:
    """Run a script as Python would and record its steps `settings.steps`.

    The modules `hooks` and `observer` say how steps are recognized; `step_functions` names those to count. `say`
    gets lines for the user as things happen. `serve`: the port on which the script offers TensorFlow's profiler
    server. `say_in_children`: a function of a module that gets the lines of processes that the script forks or spawns.
    `on_hang`: also report where no step ends for long. Where SIGTERM or SIGHUP ends the process, this does not return:
    `before_death` is called with what was captured, in another thread. Raises `UsageError` if there is no such script,
    `CaptureError` if nothing could be written to `settings.out` or the port is taken; what the script raises is shown
    as Python shows it.
    """
    script.check()
    release = _Release(say)
    functions = tuple(step_functions)
    children = ChildProcesses.of_script(settings, functions, say_in_children)
    capture = ProcessCapture(
        Request(settings, functions, serve),
        say,
        [*listeners, children, release],
        counts_on=on_hang is not None,
    )
    capture.check()
    capture.prepare()
    children.install(capture.watch)
    capture.install()
    hangs = [] if on_hang is None else [HangWatch(on_hang, capture.watch, say)]
    for hang_watch in hangs:
        hang_watch.start()
    capture.start_clock()
    problem: CaptureError | None = None
    runs_of_children: list[Path] = []
    process = os.getpid()
    saving = Lock()

    def captured(code: int, number: int | None = None) -> ScriptCapture:
        return ScriptCapture(
            code, capture.run or next(iter(runs_of_children), None), problem, number
        )

    def save(number: int) -> None:
        # The main thread may be saving too, or wait for the devices in vain.
        saving.acquire(timeout=LONGEST_WAIT_SECONDS)
        end = ScriptEnd.by_signal(number)
        if capture.run is None and problem is None:
            finish(end, is_waiting=False)
        before_death(captured(end.code, number))

    def replaced() -> None:
        say(
            "note: the script replaces its process by another program (os.exec); that one is not captured"
        )
        with saving:
            finish(ScriptEnd(0, is_failure=False), is_waiting=False)
        before_death(captured(0))

    def end_with(end: ScriptEnd) -> None:
        if os.getpid() != process:
            # A child that the script forked has come to its end.
            children.finish_child(is_synchronised=not (end.is_failure or end.is_interrupted))
            return
        with saving:
            finish(end, is_waiting=not end.is_interrupted)
            termination.remove()

    def finish(end: ScriptEnd, *, is_waiting: bool) -> None:
        nonlocal problem
        release.is_ending = True
        for hang_watch in hangs:
            hang_watch.stop()
        problem = capture.finish(end)
        runs_of_children.extend(children.runs(is_waiting=is_waiting))
        if runs_of_children:
            problem = None

    # The script runs within our frames to its end, and not only in the window.
    frames = HiddenFrames([*running_files(), SCRIPT_FILE])
    frames.install()
    termination = Termination(save)
    execs = ExecWatch(replaced)
    release.bind(capture, termination, execs)
    execs.install()
    termination.install()
    try:
        end = script.run(before_exit=end_with, say=say)
    finally:
        # Also where the module was not found.
        frames.remove()
        execs.remove()
        for hang_watch in hangs:
            hang_watch.stop()
        capture.remove()
        if os.getpid() == process:
            children.forget()
            if not capture.watch.is_finished:
                capture.drop()
            termination.remove()
    if os.getpid() != process:
        return ScriptCapture(end.code, None, None)
    return captured(end.code, end.signal)


class _Release(WindowListener):
    """Gives the signals back to the script when the window has closed, and names the trace if the script goes on."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.is_ending = False
        self._say = say
        self._bound: tuple[ProcessCapture, Termination, ExecWatch] | None = None

    def bind(self, capture: ProcessCapture, termination: Termination, execs: ExecWatch) -> None:
        """What is known only after the window has been made."""
        self._bound = capture, termination, execs

    def finished(self) -> None:
        """Release the signals."""
        if self._bound is None or self.is_ending:
            return
        capture, termination, execs = self._bound
        termination.release()
        execs.remove()
        if capture.run is not None:
            self._say(f"the trace is saved in {capture.run}; the script goes on")
