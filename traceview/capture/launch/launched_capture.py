"""Runs the capture of a process that traceview did not start, from the import of TensorFlow to the end of the process.

A process that imports TensorFlow may never train, so folders are made only when TensorFlow first runs something. A
child that the process forks has a capture of its own, because it may be the one that trains.
"""

from __future__ import annotations

import atexit
import os
import sys
from importlib.util import find_spec
from threading import Lock

from traceview.base.errors import CaptureError, TraceviewError, UsageError
from traceview.capture.hang.watch import HangSettings, HangWatch, hang_settings
from traceview.capture.launch.environment_variable import VARIABLE
from traceview.capture.launch.journal import Entry, Journal
from traceview.capture.launch.process_capture import ProcessCapture
from traceview.capture.launch.variable import Request
from traceview.capture.process.script import ScriptEnd
from traceview.capture.process.stderr_lines import say
from traceview.capture.process.termination import (
    LONGEST_WAIT_SECONDS,
    Termination,
    finish_before_end,
)
from traceview.capture.sidecar.file import Sidecar, WindowListener


def begin(text: str) -> None:
    """Capture this process as the value of the variable asks; errors in it are reported."""
    try:
        request = Request.parse(text)
    except UsageError as error:
        say(f"{VARIABLE}: {error.message}; nothing is captured")
        if error.hint:
            say(f"hint: {error.hint}")
        return
    journal = None if request.journal is None else Journal(request.journal)
    if find_spec("msgspec") is None and (journal is None or not journal.lend_libraries()):
        problem = f"traceview is not installed for the Python that trains, {sys.executable}"
        hint = f"{sys.executable} -m pip install traceview"
        say(f"nothing is captured: {problem}")
        say(f"hint: {hint}")
        if journal is not None:
            journal.write(Entry("ended", problem=problem, hint=hint))
        return
    LaunchedCapture(request, journal, hang_settings(request.on_hang_s, say)).begin()


class LaunchedCapture(WindowListener):
    """The capture of this process, or of the child that it becomes by a fork."""

    def __init__(
        self, request: Request, journal: Journal | None, hangs: HangSettings | None
    ) -> None:
        self._request = request
        self._journal = journal
        self._hangs = hangs
        self._hang_watch: HangWatch | None = None
        self._process = os.getpid()
        self._is_prepared = False
        self._is_over = False
        self._is_child = False
        self._parents: list[ProcessCapture] = []
        """Those that this process has as a copy; kept, because freeing one would stop its profile."""
        self._ending = Lock()
        self._termination: Termination | None = None
        self._capture = self._new_capture()

    def begin(self) -> None:
        """Hook TensorFlow and wait for it to run something."""
        self._note("imported")
        self._capture.install()
        atexit.register(self._finish)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin_again)

    # Called by the capture

    def opening(self, sidecar: Sidecar) -> None:
        """From here on a signal must not lose the trace, and nothing may end before it."""
        self._termination = Termination(self._end_by_signal)
        self._termination.install()
        atexit.unregister(self._finish)
        atexit.register(self._finish)

    def finished(self) -> None:
        """Signals end the process again as they did. It may be killed later, so what it recorded is noted now."""
        if self._termination is not None and not self._is_over:
            self._termination.remove()
        if self._capture.run is not None:
            self._note("running")

    # Inside

    def _new_capture(self) -> ProcessCapture:
        capture = ProcessCapture(self._request, say, [self], counts_on=self._hangs is not None)
        capture.watch.observer.on_begin.append(self._prepare)
        return capture

    def _prepare(self) -> None:
        """TensorFlow runs something for the first time."""
        try:
            self._capture.check()
            self._capture.prepare()
        except CaptureError as error:
            self._give_up(error)
            return
        self._is_prepared = True
        self._note("running")
        self._capture.start_clock()
        if self._hangs is not None:
            self._hang_watch = HangWatch(self._hangs, self._capture.watch, say)
            self._hang_watch.start()
        if self._is_child:
            finish_before_end(self._finish)

    def _give_up(self, error: TraceviewError) -> None:
        self._is_over = True
        self._capture.remove()
        say(f"nothing is captured: {error.message}")
        if error.hint:
            say(f"hint: {error.hint}")
        self._note("ended", problem=error)

    def _begin_again(self) -> None:
        """This is a child: the capture so far is its parent's."""
        if self._process == os.getpid():
            return
        self._process = os.getpid()
        self._is_child = True
        self._ending = Lock()
        self._termination = None
        self._hang_watch = None
        self._parents.append(self._capture)
        self._capture.leave()
        # A copy of a profile that runs is of no use, and cannot be stopped.
        self._is_over |= self._capture.watch.window.state == "recording"
        if not self._is_over:
            self._is_prepared = False
            self._capture = self._new_capture()
            self._capture.install()

    def _finish(self) -> None:
        """The process ends, after its last line and before other functions of `atexit`."""
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        with self._ending:
            self._end(ScriptEnd.by_error(error))

    def _end_by_signal(self, number: int) -> None:
        """A signal ends the process, whatever its main thread is doing; called in another thread."""
        # The main thread may be saving too, or wait for the devices in vain.
        self._ending.acquire(timeout=LONGEST_WAIT_SECONDS)
        self._end(ScriptEnd.by_signal(number))

    def _end(self, end: ScriptEnd) -> None:
        if self._is_over or self._process != os.getpid():
            return
        self._is_over = True
        try:
            self._report(end)
        except Exception as error:
            say(f"the capture failed: {error!r}")

    def _report(self, end: ScriptEnd) -> None:
        capture = self._capture
        if not self._is_prepared:
            capture.remove()
            unused = capture.why_unused(end)
            self._note("imported", unused)
            # A launcher that waits for its processes reports on all of them.
            if self._journal is None:
                say(unused.message)
            return
        if self._hang_watch is not None:
            self._hang_watch.stop()
        problem = capture.finish(end)
        capture.remove()
        self._note("ended", problem)
        if problem is None:
            say(f"the trace is in {capture.run}")
            return
        say(problem.message)
        if problem.hint:
            say(f"hint: {problem.hint}")

    def _note(self, state: str, problem: TraceviewError | None = None) -> None:
        if self._journal is not None:
            run = self._capture.run
            shown = None if run is None else str(run)
            message, hint = (problem.message, problem.hint) if problem else (None, None)
            self._journal.write(Entry(state, shown, message, hint))
