"""Runs the capture of a process, from the import of its framework to its end; a child that it forks has one of its own."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from threading import Lock

from traceview.base.errors import CaptureError, UsageError
from traceview.capture.process.around import NATIVE, Endings
from traceview.capture.process.saying import VARIABLE, is_first, name_runs, say, say_problem
from traceview.capture.record.capture import Capture
from traceview.capture.record.destination import runs_of_launch
from traceview.capture.record.outcome import End, nothing_captured
from traceview.capture.record.settings import Settings
from traceview.capture.sidecar.file import Sidecar, WindowListener

_UTIL = "multiprocessing.util"
_captures: list[LaunchedCapture] = []


def begin(text: str, framework: str, wait_no_more: Callable[[], None]) -> None:
    """Capture this process as the variable asks; errors in it are reported. `wait_no_more`: called once the window has closed."""
    try:
        settings = Settings.read(text)
    except UsageError as error:
        problem = f"{VARIABLE}: {error.message}; nothing is captured"
        say_problem(UsageError(problem, hint=error.hint))
        return
    if find_spec("msgspec") is None:
        say(f"nothing is captured: traceview lacks its libraries in {sys.executable}")
        say(f"hint: {sys.executable} -m pip install traceview")
        return
    _captures.append(LaunchedCapture(settings, framework, wait_no_more))


def end_first(text: str, begun_s: float) -> None:
    """The program that the command has become ends: name all runs since `begun_s` below it, or say why there is none.

    Without a run a script that ends well has the exit code of a capture that failed, as the next command may read an older run.
    """
    try:
        settings = Settings.read(text)
    except UsageError:
        return
    runs = runs_of_launch(settings.out, settings.launch or "", begun_s)
    name_runs(runs)
    if not runs and hasattr(NATIVE, "set_exit_code"):
        NATIVE.set_exit_code(CaptureError.exit_code)
    if not runs and not _captures:
        if _end() == "failed":
            say("nothing was captured: the script failed before it imported TensorFlow or JAX")
            return
        say("nothing was captured: no process imported TensorFlow or JAX")
        # Time of processes that it started and waited for.
        if any(os.times()[2:4]):
            say("hint: in an environment without traceview or a container nothing is captured")
    elif not runs and not (_captures[-1].capture.is_prepared or _captures[-1].is_reported):
        capture = _captures[-1].capture
        say_problem(nothing_captured(capture.window, capture.observer, _end()))


class LaunchedCapture(WindowListener):
    """The capture of this process; it makes folders as that first runs something. `is_child`: of a fork of one with a capture."""

    def __init__(
        self,
        settings: Settings,
        framework: str,
        wait_no_more: Callable[[], None],
        *,
        is_child: bool = False,
    ) -> None:
        self._framework = framework
        self._wait_no_more = wait_no_more
        self._is_child = is_child
        self._process = os.getpid()
        self._is_over = self.is_reported = False
        self._ending = Lock()
        self._endings = Endings(self._end_early)
        self.capture = capture = Capture(settings, say, [self], framework=framework)
        if settings.on_hang_s is not None:
            # Not at the top: most captures watch for no hang.
            from traceview.capture.hang.watch import HangWatch

            # Now: a script that hangs in an import must not stop reports. By name: a capture does without the analysis.
            try:
                write_up = import_module("traceview.analysis.machine.hang").write_up
                capture.companion = HangWatch(settings.on_hang_s, write_up, capture, say)
            except ImportError as error:
                say(f"note: --on-hang is off in this process: {error}")
        capture.observer.on_begin.append(self._prepare)
        capture.hooks.install()
        atexit.register(self._finish)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin_again)

    def give_way(self) -> bool:
        """Let the capture of another framework go on alone, which runs something; False if this one has counted steps."""
        if self.capture.window.next_number:
            return False
        self._is_over = True
        self.capture.finish("ended")
        _captures.remove(self)
        return True

    def opening(self, sidecar: Sidecar) -> None:
        """From here on no end of the process may lose the trace, and nothing may end before it."""
        self._endings.install()
        atexit.unregister(self._finish)
        atexit.register(self._finish)

    def finished(self) -> None:
        """The process ends again as it did; what was recorded is named now, and no further framework is waited for."""
        self._wait_no_more()
        self._endings.remove()
        if self.capture.run is not None and not self._is_over:
            self._report(None)

    def _prepare(self) -> None:
        others = [other for other in _captures if other is not self]
        # TensorFlow may run something for a script that trains with JAX; JAX runs nothing for one that does not.
        if self._framework == "jax" and not all(other.give_way() for other in others):
            self.give_way()
            return
        try:
            self.capture.prepare()
        except CaptureError as error:
            self._is_over = self.is_reported = True
            self.capture.remove()
            say_problem(CaptureError(f"nothing is captured: {error.message}", hint=error.hint))
            return
        self.capture.start_clocks()
        if self._is_child and _UTIL in sys.modules:
            # What `multiprocessing` forks ends without coming to the functions of `atexit`. Its own finalizers have 15 at most.
            sys.modules[_UTIL].Finalize(None, self._finish, exitpriority=1000)

    def _begin_again(self) -> None:
        """This is a child: the capture so far is its parent's, and kept, because freeing it would stop its profile."""
        # Another thread may have held the one of the parent.
        self._ending = Lock()
        if self._is_over:
            return
        self._is_over = True
        self.capture.hooks.remove()
        self._endings.remove()
        # A copy of a profile that runs is of no use, and cannot be stopped.
        if not self.capture.profiler.is_running:
            given = self.capture.settings, self._framework, self._wait_no_more
            _captures[_captures.index(self)] = LaunchedCapture(*given, is_child=True)

    def _finish(self) -> None:
        with self._ending:
            self._end(_end())

    def _end_early(self, number: int | None) -> None:
        # The main thread may be saving, or wait for devices in vain.
        has_lock = self._ending.acquire(timeout=5.0)
        self._end("interrupted" if number else "ended")
        if number:
            if self.capture.run is not None and is_first(os.environ.get(VARIABLE, "")):
                name_runs([self.capture.run])
            NATIVE.end_by(number)
        if has_lock:
            self._ending.release()

    def _end(self, end: End) -> None:
        if self._is_over or self._process != os.getpid():
            return
        self._is_over = True
        try:
            self.capture.finish(end)
            if self.capture.is_prepared:
                self._report(end)
            elif self.capture.settings.launch is None and _captures[-1:] == [self]:
                # Nobody else says so.
                say(nothing_captured(self.capture.window, self.capture.observer, end).message)
        except Exception as error:
            say(f"the capture failed: {error!r}")

    def _report(self, end: End | None) -> None:
        """Say what was captured, once. `end`: how the process ends, None if it goes on."""
        if self.is_reported:
            return
        self.is_reported = True
        problem = self.capture.outcome(end or "ended")
        if problem is not None:
            say_problem(problem)
        else:
            say(f"the trace is in {self.capture.run}{'' if end else '; the script goes on'}")


def _end() -> End:
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is None or isinstance(error, SystemExit):
        return "ended"
    return "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
