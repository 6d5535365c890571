"""Starts and stops one profile, keeps it, and writes its sidecar."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from traceview.base.errors import CaptureError
from traceview.capture.process.endings import interrupts_held
from traceview.capture.record.destination import (
    TRACE_SUFFIX,
    Destination,
    Kept,
    NameTakenError,
    has_trace,
    kept_name,
)
from traceview.capture.record.framework import Framework
from traceview.capture.record.run_choice import RunChoice
from traceview.capture.record.settings import Settings
from traceview.capture.sidecar.file import Sidecar, WindowListener, reason_of
from traceview.capture.window.step_window import StepWindow


class Capture:
    """One profile of a process. `say` gets one line per message for the user.

    `framework`: what the script trains with. `listeners`: add groups to the sidecar.
    """

    def __init__(
        self, settings: Settings, say: Callable[[str], None], framework: Framework
    ) -> None:
        self.settings = settings
        self.listeners: list[WindowListener] = []
        self.sidecar = Sidecar()
        self.kept: Kept | None = None
        self._is_prepared = False
        self._say = say
        self._modules = framework.modules
        self._notes: dict[str, list[str]] = {}
        self._destination = Destination(settings.out)
        self._choice = RunChoice(self._destination, settings.run, say)
        self._profiler = framework.profiler(self._note_script)
        self.marker = self._profiler.marker

    def prepare(self) -> None:
        """Check all that can be checked before the run, once; raises `CaptureError`.

        A capture that nobody has prepared prepares itself when its window is near.
        """
        if self._is_prepared:
            return
        self._choice.check()
        self._destination.prepare()
        process = {"pid": os.getpid(), "host": socket.gethostname()}
        self.sidecar.add("process", {**process, "launch": self.settings.launch})
        if hasattr(os, "sched_getaffinity"):
            # A quota of a container does not show in it.
            self.sidecar.add("cores", {"usable_count": len(os.sched_getaffinity(0))})
        self._write()
        for folder in self._destination.left_behind():
            if has_trace(folder):
                self._say(f"note: {folder} was left by a capture that was killed")
            else:
                shutil.rmtree(folder, ignore_errors=True)
        self._is_prepared = True

    @property
    def is_profiling(self) -> bool:
        """Whether a profile of this capture runs."""
        return self._profiler.is_running

    def finish(self, window: StepWindow) -> None:
        """The run has ended: keep what there is and leave nothing else behind.

        What went wrong is in `window.failures`.
        """
        if self._profiler.is_running:
            # An interruption came while the window was closed.
            with suppress(CaptureError):
                self.close(window)
        self._notify("finished")
        if self.kept is None:
            self._choice.abandon()
        private = getattr(self._destination, "private", None)
        if self.kept is None and has_trace(private):
            self._say(f"note: the unfinished trace is in {private}")
        else:
            self._destination.clean()

    def report_place(self) -> tuple[Path, str]:
        """The folder of the run and the name of this host's files in it, for what is written beside a trace.

        A run that the window has not begun yet begins here, and the trace follows into it. Raises `OSError`.
        """
        if self.kept is None:
            folder = self._choice.begin(self.settings.steps)
            return folder, f"{socket.gethostname()}{self._choice.suffix}"
        return self.kept.run, self.kept.trace.name.removesuffix(TRACE_SUFFIX)

    # Called by the window

    def open(self) -> None:
        """Start the profile, after warming it up and waiting for the devices."""
        self.prepare()
        self._choice.settle(self.settings.steps)
        self._notify("opening", self.sidecar)
        self._profiler.warm_up()
        self.synchronise()
        starting = _clocks()
        self._profiler.start(self._destination.private / "profile")
        self.sidecar.state = "recording"
        # TensorFlow 2.15 writes no times of the profile. Newer ones read the first before they start any tracer.
        self.sidecar.add("clock", {"starting": starting, "started": _clocks()})
        self.sidecar.add("versions", _versions(self._modules))
        self._notify("opened", self.sidecar)

    def synchronise(self) -> None:
        """Wait for the devices, before the profile starts and before it stops."""
        try:
            self._profiler.synchronise()
        except CaptureError as error:
            self._note("profiler", error.message)

    def close(self, window: StepWindow) -> None:
        """Stop the profile and move it to its place; Ctrl-C waits until that is done."""
        with interrupts_held():
            self._close(window)

    def _close(self, window: StepWindow) -> None:
        self.sidecar.add("clock", {"stopped": _clocks()})
        try:
            self._profiler.stop()
            self._keep(window)
        finally:
            if self.kept is None:
                self.sidecar.state = "failed"
            self._notify("finished")

    # Inside

    def _keep(self, window: StepWindow) -> None:
        trace = self._destination.written(self._destination.private / "profile")
        self.sidecar.add("window", window.as_json())
        self.sidecar.add("overhead", window.times().as_json())
        self._choice.say_absent()
        self._notify("closed", self.sidecar, trace)
        # After the listeners, whose failures are among them.
        self.sidecar.add("notes", self._notes)
        self.sidecar.state = "saved"
        self.kept = self._moved(trace)
        # The script may go on for days; a kill in between should not leave the folder behind.
        self._destination.clean()

    def _moved(self, trace: Path) -> Kept:
        """Move both files to the run, under the first name that no process beside this one has taken."""
        suffix = self._choice.suffix
        while True:
            self.sidecar.add("file", {"name": kept_name(trace, suffix)})
            self._write()
            try:
                return self._destination.keep(
                    trace, self._destination.sidecar, run=self._choice.run, suffix=suffix
                )
            except NameTakenError as taken:
                suffix = self._choice.next_suffix(taken)

    def _notify(self, moment: str, *arguments: Any) -> None:
        for listener in self.listeners:
            try:
                getattr(listener, moment)(*arguments)
            except Exception as error:
                self._note("listeners", f"{type(listener).__name__}.{moment}: {reason_of(error)}")

    def _note(self, about: str, text: str) -> None:
        notes = self._notes.setdefault(about, [])
        if text not in notes:
            notes.append(text)

    def _note_script(self, text: str) -> None:
        self._note("script", text)
        self._say(f"note: {text}")

    def _write(self) -> None:
        try:
            self.sidecar.write(self._destination.sidecar)
        except OSError as error:
            raise self._destination.error(error) from error


def _clocks() -> dict[str, int]:
    return {"wall_ns": time.time_ns(), "monotonic_ns": time.perf_counter_ns()}


def _versions(names: Sequence[str]) -> dict[str, str | None]:
    """Versions of what the script has imported; an installed package need not be the one that runs."""
    imported = {
        name: getattr(sys.modules[name], "__version__", None)
        for name in names
        if name in sys.modules
    }
    return {"python": platform.python_version(), **imported}
