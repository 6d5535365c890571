"""Becomes the script or the command that is to be captured, or runs it and analyzes what it recorded.

All that a capture needs is in the environment: TRACEVIEW_CAPTURE says what to capture in each Python that starts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn
from uuid import uuid4

from traceview.base.errors import CaptureError, UsageError
from traceview.capture.launch.launched import VARIABLE
from traceview.capture.launch.variable import Request
from traceview.capture.remote.serve import check_free
from traceview.capture.record.destination import Destination, runs_of_launch

STARTUP_FILE: Final = "traceview.pth"
_PASSED_ON: Final = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGXCPU", "SIGCONT")
_IGNORED_BY_PYTHON: Final = ("SIGPIPE", "SIGXFSZ")
"""At its start, and so by all programs that it becomes."""


def become(command: Sequence[str], request: Request) -> NoReturn:
    """Let `command` take the place of this process; what trains in or below it captures itself as `request` asks.

    Raises `UsageError` if there is no such command, `CaptureError` if nothing can be written to the folder of the traces.
    """
    environment = _environment(command, request, os.getpid())
    sys.stdout.flush()
    sys.stderr.flush()
    for name in _IGNORED_BY_PYTHON:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), environment)
    except OSError as error:
        raise _no_command(command, error) from error


def run(command: Sequence[str], request: Request) -> tuple[int, list[Path]]:
    """Run `command` to its end: its exit code, negative for the signal that ended it, and the runs of its processes.

    Raises what `become` raises.
    """
    launch = f"0-{uuid4().hex[:12]}"
    begun_s = time.time()
    environment = _environment(command, replace(request, launch=launch), 0)
    try:
        process = subprocess.Popen(list(command), env=environment)
    except OSError as error:
        raise _no_command(command, error) from error

    def pass_on(number: int, _frame: FrameType | None) -> None:
        process.send_signal(number)

    # A terminal sends Ctrl-C to the command as well.
    handlers: dict[int, Any] = {signal.SIGINT: signal.SIG_IGN}
    for name in _PASSED_ON:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            handlers[number] = pass_on
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    code = process.wait()
    for number, handler in before.items():
        signal.signal(number, handler)
    return code, runs_of_launch(request.settings.out, launch, begun_s)


def end_as(code: int) -> NoReturn:
    """End as a command with this exit code, or as one that a signal ended."""
    if code < 0:
        with suppress(ImportError, OSError, ValueError):
            import resource

            # The core that matters is that of the command.
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError, ValueError):
            # SIGKILL has no handler to replace.
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def _environment(command: Sequence[str], request: Request, pid: int) -> dict[str, str]:
    """The environment of the command, after all that can be checked before."""
    if not any(Path(folder, STARTUP_FILE).is_file() for folder in sys.path):
        raise CaptureError(
            f"traceview is not installed for {sys.executable}: {STARTUP_FILE} is missing, by which each Python captures itself",
            hint=f"{sys.executable} -m pip install traceview",
        )
    for word in command[1:]:
        if not word.startswith("-"):
            break
        if Path(command[0]).name.startswith("python") and set(word[1:]) & set("SIE"):
            raise UsageError(
                f"{command[0]} {word} reads no environment or no installed packages, so it captures nothing",
                hint="omit -S, -I and -E for the capture",
            )
    if request.serve is not None:
        check_free(request.serve)
    destination = Destination(request.settings.out)
    destination.prepare()
    destination.clean()
    if request.launch is None:
        request = replace(request, launch=f"{pid}-{uuid4().hex[:12]}")
    return {**os.environ, VARIABLE: request.as_variable()}


def _no_command(command: Sequence[str], error: OSError) -> UsageError:
    return UsageError(f"{command[0]}: {error.strerror or error}")
