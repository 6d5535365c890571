"""Runs a script that knows nothing of traceview, and captures some of its steps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from threading import Lock
from typing import Any, Final

from traceview.base.errors import CaptureError
from traceview.capture.hang.watch import HangSettings, HangWatch
from traceview.capture.launch.child_processes import ChildProcesses, say_on_stderr
from traceview.capture.launch.process_capture import ProcessCapture
from traceview.capture.launch.started_programs import StartedPrograms
from traceview.capture.launch.variable import Request
from traceview.capture.process.hidden_frames import HiddenFrames, running_files
from traceview.capture.process.script import FILE as SCRIPT_FILE
from traceview.capture.process.script import Script, ScriptEnd
from traceview.capture.process.termination import LONGEST_WAIT_SECONDS, Termination
from traceview.capture.record.capture import Settings
from traceview.capture.sidecar.file import WindowListener


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
    ends = _Ends(say, before_death)
    functions = tuple(step_functions)
    children = ChildProcesses.of_script(
        settings, functions, say_in_children, None if on_hang is None else on_hang.after_s
    )
    request = Request(settings, functions, serve, None if on_hang is None else on_hang.after_s)
    programs = StartedPrograms(request)
    capture = ProcessCapture(
        request,
        say,
        [*listeners, programs, children, ends],
        counts_on=on_hang is not None,
    )
    capture.check()
    capture.prepare()
    children.install(capture.watch)
    programs.install()
    capture.watch.clock.elsewhere = programs.without_step
    capture.install()
    hangs = (
        []
        if on_hang is None
        else [
            HangWatch(
                on_hang,
                capture.watch,
                say,
                lambda: children.has_training or programs.has_training,
            )
        ]
    )
    for hang_watch in hangs:
        hang_watch.start()
    capture.start_clock()
    ends.install(capture, children, programs, hangs)
    # The script runs within our frames to its end, and not only in the window.
    frames = HiddenFrames([*running_files(), SCRIPT_FILE])
    frames.install()
    try:
        end = script.run(before_exit=ends.of_script, say=say)
    finally:
        # Also where the module was not found.
        frames.remove()
        ends.remove()
    return ends.captured(end.code, end.signal)


class _Ends(WindowListener):
    """What is done at each end that a script can come to, from `install` to `remove`.

    It ends by itself, by a signal, by another program in its place, or as a child that it has forked. The window may have
    closed long before: then the signals are the script's again.
    """

    def __init__(
        self, say: Callable[[str], None], before_death: Callable[[ScriptCapture], None]
    ) -> None:
        self._say = say
        self._before_death = before_death
        self._process = os.getpid()
        self._saving = Lock()
        self._is_ending = False
        self._problem: CaptureError | None = None
        self._runs_of_children: list[Path] = []
        self._termination = Termination(self._by_signal)
        self._execs = ExecWatch(self._by_exec)
        self._capture: ProcessCapture | None = None
        self._children: ChildProcesses | None = None
        self._programs: StartedPrograms | None = None
        self._hangs: Sequence[HangWatch] = ()

    def install(
        self,
        capture: ProcessCapture,
        children: ChildProcesses,
        programs: StartedPrograms,
        hangs: Sequence[HangWatch],
    ) -> None:
        """The script begins."""
        self._capture, self._children, self._hangs = capture, children, hangs
        self._programs = programs
        self._execs.install()
        self._termination.install()

    def remove(self) -> None:
        """The script has ended, or never began."""
        capture, children, programs = self._parts
        self._execs.remove()
        for hang_watch in self._hangs:
            hang_watch.stop()
        capture.remove()
        if os.getpid() == self._process:
            children.forget()
            programs.forget()
            if not capture.watch.is_finished:
                capture.drop()
            self._termination.remove()

    def captured(self, code: int, number: int | None = None) -> ScriptCapture:
        """What was captured of a script that ends with this exit code, or by a signal of this number."""
        capture, _, _ = self._parts
        if os.getpid() != self._process:
            return ScriptCapture(code, None, None)
        run = capture.run or next(iter(self._runs_of_children), None)
        return ScriptCapture(code, run, self._problem, number)

    def of_script(self, end: ScriptEnd) -> None:
        """The script has come to its end, in this process or in a child that it forked."""
        _, children, _ = self._parts
        if os.getpid() != self._process:
            children.finish_child(is_synchronised=not (end.is_failure or end.is_interrupted))
            return
        with self._saving:
            self._finish(end, is_waiting=not end.is_interrupted)
            self._termination.remove()

    def finished(self) -> None:
        """The window has closed: the signals are the script's again, and the trace is named if the script goes on."""
        if self._is_ending or self._capture is None:
            return
        self._termination.release()
        self._execs.remove()
        if self._capture.run is not None:
            self._say(f"the trace is saved in {self._capture.run}; the script goes on")

    # Inside

    @property
    def _parts(self) -> tuple[ProcessCapture, ChildProcesses, StartedPrograms]:
        assert self._capture is not None
        assert self._children is not None
        assert self._programs is not None
        return self._capture, self._children, self._programs

    def _by_signal(self, number: int) -> None:
        capture, children, programs = self._parts
        # The main thread may be saving too, or wait for the devices in vain.
        self._saving.acquire(timeout=LONGEST_WAIT_SECONDS)
        end = ScriptEnd.by_signal(number)
        if capture.run is None and self._problem is None:
            self._finish(end, is_waiting=False)
        self._before_death(self.captured(end.code, number))
        children.forget()
        programs.forget()

    def _by_exec(self) -> None:
        _, children, programs = self._parts
        programs.leave()
        self._say(
            "note: the script replaces its process by another program (os.exec); that one is not captured"
        )
        with self._saving:
            self._finish(ScriptEnd(0, is_failure=False), is_waiting=False)
        self._before_death(self.captured(0))
        children.forget()
        programs.forget()

    def _finish(self, end: ScriptEnd, *, is_waiting: bool) -> None:
        """Keep what was recorded, and what children recorded. `is_waiting`: wait for those that still run."""
        capture, children, programs = self._parts
        self._is_ending = True
        for hang_watch in self._hangs:
            hang_watch.stop()
        self._problem = capture.finish(end)
        self._runs_of_children.extend(children.runs(is_waiting=is_waiting))
        of_programs = {
            Path(entry.run): entry for entry in programs.entries() if entry.run is not None
        }
        self._runs_of_children.extend(of_programs)
        if self._runs_of_children:
            self._problem = None
        elif self._problem is not None and not (end.is_failure or end.is_interrupted):
            is_training = capture.watch.observer.began_s is not None
            self._problem = programs.why_no_trace(self._problem, is_training=is_training)
        named = capture.run or next(iter(self._runs_of_children), None)
        for run, entry in of_programs.items():
            if run != named:
                self._say(f"{entry.place}: the trace is in {run}")


_CALLS: Final = ("execv", "execve")
"""What all functions of the family call in the end (Lib/os.py)."""


class ExecWatch:
    """Calls `replaced` before `os.execv` and its family replace this process, but not a child that was forked."""

    def __init__(self, replaced: Callable[[], None]) -> None:
        self._replaced = replaced
        self._process = os.getpid()
        self._patched: list[tuple[str, Any, Any]] = []

    def install(self) -> None:
        """Begin to watch."""
        for name in _CALLS:
            original = getattr(os, name)
            replacement = self._watched(original)
            setattr(os, name, replacement)
            self._patched.append((name, original, replacement))

    def remove(self) -> None:
        """Watch no longer."""
        for name, original, replacement in self._patched:
            if getattr(os, name) is replacement:
                setattr(os, name, original)
        self._patched.clear()

    def _watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def execute(*args: Any, **kwargs: Any) -> Any:
            if os.getpid() == self._process:
                self.remove()
                self._replaced()
            return original(*args, **kwargs)

        return execute
