"""Runs a command and captures every process below it that trains with TensorFlow.

The processes read the environment: TRACEVIEW_CAPTURE says what to capture, and PYTHONPATH begins with a folder that arms
those whose environment has no traceview. A journal returns what each of them recorded.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Final

from traceview.base.errors import CaptureError, UsageError
from traceview.capture.launch.environment_variable import VARIABLE
from traceview.capture.launch.journal import (
    Entry,
    Journal,
    has_variable,
    missing_traces,
    process_ids,
    why_no_trace,
)
from traceview.capture.launch.variable import Request
from traceview.capture.process.termination import ENDINGS
from traceview.capture.record.destination import Destination
from traceview.capture.sidecar.file import Sidecar

STARTUP: Final = Path(__file__).parent.parent / "startup"

_LOOKS: Final = 5
_BETWEEN_LOOKS_S: Final = 0.05
"""How often and after how long a program that is only being started is looked for again; a choice of ours."""


@dataclass(frozen=True)
class Launched:
    """How a command ended: its exit code, negative for the signal that ended it, and the folders of the traces."""

    code: int
    runs: Sequence[Path]
    problem: CaptureError | None


def capture_command(
    command: Sequence[str], request: Request, *, say: Callable[[str], None]
) -> Launched:
    """Run a command to its end, and capture what `request` asks of each process that trains.

    Without a trace, `problem` says why. Raises `UsageError` if there is no such command, `CaptureError` if nothing can
    be written to the folder of the traces.
    """
    destination = Destination(request.settings.out)
    destination.prepare()
    try:
        journal = _journal(destination)
        asked = replace(request, journal=destination.private)
        value = asked.as_variable()
        code = _run(command, _environment(os.environ, value))
        entries, is_reached = journal.entries(), journal.is_reached
        running = 0 if any(entry.run for entry in entries) else _count_running(value)
    finally:
        destination.clean()
    runs = list(dict.fromkeys(Path(entry.run) for entry in entries if entry.run is not None))
    if not runs and running:
        return Launched(code, runs, _still_running(running, request.settings.out))
    if not runs:
        return Launched(code, runs, _nothing_captured(entries, is_reached=is_reached))
    for line in missing_traces(entries):
        say(line)
    return Launched(code, runs, None)


def _journal(destination: Destination) -> Journal:
    """The journal in the private folder, and beside it what others see from whether this process runs."""
    sidecar = Sidecar(destination.sidecar)
    sidecar.add("process", {"pid": os.getpid(), "host": socket.gethostname()})
    journal = Journal(destination.private)
    try:
        sidecar.write()
        journal.offer_libraries()
    except OSError as error:
        raise destination.error(error) from error
    return journal


def _environment(environment: Mapping[str, str], value: str) -> dict[str, str]:
    folders = [str(STARTUP), environment.get("PYTHONPATH", "")]
    return {**environment, VARIABLE: value, "PYTHONPATH": os.pathsep.join(filter(None, folders))}


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    try:
        process = subprocess.Popen(list(command), env=dict(environment))
    except OSError as error:
        raise UsageError(f"{command[0]}: {error.strerror or error}") from error
    with _signals_to(process):
        return process.wait()


@contextmanager
def _signals_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """While the command runs, signals are the command's business."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        process.send_signal(number)

    def leave(_number: int, _frame: FrameType | None) -> None:
        return

    previous: dict[int, Any] = {}
    try:
        for number in (signal.SIGINT, *ENDINGS):
            # A terminal sends Ctrl-C to the command as well, others send their signal to this process alone.
            handler = leave if number == signal.SIGINT else pass_on
            # What `nohup` ignores stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                previous[number] = signal.signal(number, handler)
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _count_running(value: str) -> int:
    """How many processes have the variable. One that is just starting its program shows no environment: looked at again."""
    for _ in range(_LOOKS):
        count = sum(has_variable(pid, VARIABLE, value) for pid in process_ids())
        if count:
            return count
        time.sleep(_BETWEEN_LOOKS_S)
    return 0


def _still_running(count: int, out: Path) -> CaptureError:
    are = "1 process that it started is" if count == 1 else f"{count} processes that it started are"
    return CaptureError(
        f"nothing was captured so far: the command has ended, and {are} still running. Training there is captured into {out}, "
        "and the process that trains names its run",
        hint="to have the run named here, let the script wait for what it starts in the background: wait",
    )


def _nothing_captured(entries: Sequence[Entry], *, is_reached: bool) -> CaptureError:
    if not is_reached:
        return CaptureError(
            "nothing was captured: no Python below the command has read the environment",
            hint=f"in a container or on another host, set {VARIABLE} and install traceview there",
        )
    if not entries:
        return CaptureError(
            "nothing was captured: no Python below the command imported TensorFlow",
            hint=f"on other hosts, set {VARIABLE} there, for example mpirun -x {VARIABLE}",
        )
    return why_no_trace(entries)
