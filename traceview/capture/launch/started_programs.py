"""Captures the Python programs that a script starts (`subprocess`, `os.system`), through TRACEVIEW_CAPTURE.

The variable is in the environment of the script until its own window opens, so that from there on the script runs as
without traceview. A journal in a temporary folder returns what each program recorded. A program whose environment has no
traceview, or which starts without the variable, cannot be captured this way: a message says how it can.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from traceview.base.errors import CaptureError
from traceview.capture.launch.environment_variable import VARIABLE
from traceview.capture.launch.journal import (
    Entry,
    Journal,
    has_variable,
    is_other_python,
    process_ids,
    processes,
    reason,
    why_no_trace,
)
from traceview.capture.launch.variable import Request
from traceview.capture.sampling.other_processes import OwnProcesses
from traceview.capture.sidecar.file import Sidecar, WindowListener

INSTEAD: Final = "traceview capture -- python SCRIPT captures every Python program below it"
_LEAST_PROCESSOR_S: Final = 1.0
"""Of programs that might have trained: importing TensorFlow alone takes more."""
_SWITCHED_OFF: Final = "0"


class StartedPrograms(WindowListener):
    """The programs that this process starts, from `install` to `forget`. `request`: what to capture of each."""

    def __init__(self, request: Request) -> None:
        # The port of the profiler server is that of the script itself.
        self._request = replace(request, serve=None)
        self._process = os.getpid()
        self._journal: Journal | None = None
        self._value: str | None = None
        self._before: str | None = None
        self._processor_s = _processor_s()

    def install(self) -> None:
        """Put the variable into the environment, unless the user has switched it off there."""
        self._before = os.environ.get(VARIABLE)
        if self._before == _SWITCHED_OFF:
            return
        folder = Path(tempfile.mkdtemp(prefix="traceview-"))
        self._journal = Journal(folder)
        self._value = replace(self._request, journal=folder).as_variable()
        os.environ[VARIABLE] = self._value

    def leave(self) -> None:
        """The environment is the script's again, unless the script has set the variable itself."""
        if self._value is None or os.environ.get(VARIABLE) != self._value:
            return
        if self._before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = self._before

    def opening(self, sidecar: Sidecar) -> None:
        """The window of the script itself opens."""
        self.leave()

    def forget(self) -> None:
        """Remove the journal; programs that still run end their captures without it."""
        self.leave()
        if self._journal is not None:
            shutil.rmtree(self._journal.folder, ignore_errors=True)

    def entries(self) -> list[Entry]:
        """What the programs that imported TensorFlow have written so far."""
        return [] if self._journal is None else self._journal.entries()

    @property
    def has_training(self) -> bool:
        """Whether TensorFlow runs, or has run, in one of the programs: then this process may just wait for it."""
        return any(entry.state != "imported" for entry in self.entries())

    def why_no_trace(self, own: CaptureError, *, is_training: bool) -> CaptureError:
        """Why there is no trace of this process or of a program. `own`: why there is none of this process.

        `is_training`: TensorFlow has run something in this process.
        """
        entries = [entry for entry in self.entries() if entry.state != "imported"]
        if entries and not is_training:
            return why_no_trace(entries)
        if entries:
            reasons = "; ".join(f"{entry.place}: {reason(entry)}" for entry in entries[:3])
            return CaptureError(f"{own.message}; started by it, {reasons}", hint=own.hint)
        spent_s = _processor_s() - self._processor_s
        if is_training or spent_s < _LEAST_PROCESSOR_S:
            return own
        return CaptureError(
            f"{own.message}, and no program that it started was captured; those took {spent_s:.0f} s of processor time",
            hint=f"if they train, {INSTEAD}",
        )

    def without_step(self) -> Iterator[str]:
        """What to say where TensorFlow runs nothing in this process itself for long."""
        entries = [entry for entry in self.entries() if entry.state != "imported"]
        for entry in entries[:3]:
            yield f"note: TensorFlow runs in {entry.place}, which captures itself"
        if entries:
            return
        count = len(self._unreached())
        if count:
            are = "is" if count == 1 else "are"
            yield f"note: {processes(count)} of Python that the script started {are} not captured"
            yield f"hint: if they train, {INSTEAD}"

    def _unreached(self) -> Sequence[int]:
        """Python programs below this process that cannot read the variable, where the system lists processes."""
        journal = self._journal
        is_reached = journal is not None and journal.is_reached
        own = OwnProcesses()
        return [
            pid
            for pid in process_ids()
            if pid != self._process
            and own.has(pid)
            and is_other_python(pid, self._process)
            # A copy that `multiprocessing` has forked has its parent's arguments, and is followed another way.
            and not (is_reached and has_variable(pid, VARIABLE))
        ]


def _processor_s() -> float:
    """Processor time of the processes that this one has started and waited for."""
    times = os.times()
    return times.children_user + times.children_system
