"""Becomes the script or command to capture, or runs it to its end, with TRACEVIEW_CAPTURE set for each Python that starts."""

from __future__ import annotations

import os
import shutil
import signal
import site
import sys
import time
from argparse import REMAINDER
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn

from traceview.base.errors import CaptureError, TraceviewError, UsageError
from traceview.base.text import shell_path
from traceview.capture.process.saying import VARIABLE, say
from traceview.capture.record.destination import Destination, RunChoice, runs_of_launch
from traceview.capture.record.settings import Settings, option_parser

STARTUP_FILE: Final = "traceview.pth"
_PASSED_ON: Final = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGXCPU", "SIGCONT")


def command_of(name: str, arguments: Sequence[str], *, is_module: bool = False) -> list[str]:
    """The command to run for a script, program or module and its arguments; raises `UsageError` where there is none, and for a notebook."""
    if is_module:
        return [sys.executable, "-m", name, *arguments]
    path = Path(name)
    if path.suffix == ".ipynb" and (path.exists() or not shutil.which(name)):
        raise UsageError(
            f"{name} is a notebook",
            hint=f"traceview capture -- jupyter execute {shell_path(name)}; or, in the notebook, %load_ext traceview and "
            "%%traceview in the cell that trains",
        )
    if path.suffix not in (".py", ".pyw", ".pyz"):
        file = str(Path.cwd() / path)
        if path.is_file() and os.access(path, os.X_OK):
            # Also where it is Python: a launcher such as `bin/torchrun`, with an environment of its own.
            return [file, *arguments]
        if path.is_file() and path.suffix in (".sh", ".bash"):
            return ["bash", file, *arguments]
        if not path.is_file() and not (path / "__main__.py").is_file() and shutil.which(name):
            return [name, *arguments]
    if not path.exists():
        hint = "give the path of a Python file; put options of traceview capture before it"
        if not name.endswith(".py") and all(part.isidentifier() for part in name.split(".")):
            hint = f"to run a module: traceview capture -m {name}; no program of this name is installed"
        raise UsageError(f"script not found: {name}", hint=hint)
    return [sys.executable, name, *arguments]


def become(command: Sequence[str], settings: Settings) -> NoReturn:
    """Let `command` take the place of this process; raises `UsageError` if there is none, `CaptureError` if `out` cannot be written."""
    environment = _environment(command, settings, os.getpid())[1]
    sys.stdout.flush()
    sys.stderr.flush()
    for name in ("SIGPIPE", "SIGXFSZ"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), environment)
    except OSError as error:
        raise UsageError(f"{command[0]}: {error.strerror or error}") from error


def become_at_once(words: Sequence[str]) -> None:
    """Become what the words after `traceview capture` name; returns where the whole command line has to read them."""
    with suppress(TraceviewError):
        parser = option_parser()
        parser.add_argument("-m", "--module", action="store_true")
        parser.add_argument("command", nargs=REMAINDER)
        options = vars(parser.parse_args(words))
        is_module, command = options.pop("module"), options.pop("command")
        command = command[command[:1] == ["--"] :]
        if command:
            named = command_of(command[0], command[1:], is_module=is_module)
            become(named, Settings.of(**options))


def run(command: Sequence[str], settings: Settings) -> tuple[int, list[Path]]:
    """Run `command` to its end: its exit code, negative for a signal, and the runs of its processes; raises what `become` raises."""
    import subprocess

    begun_s = time.time()
    launch, environment = _environment(command, settings, 0)
    try:
        process = subprocess.Popen(list(command), env=environment)
    except OSError as error:
        raise UsageError(f"{command[0]}: {error.strerror or error}") from error

    # A terminal sends Ctrl-C to the command as well.
    handlers: dict[int, Any] = {signal.SIGINT: signal.SIG_IGN}
    for name in _PASSED_ON:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            handlers[number] = lambda number, _: process.send_signal(number)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    code = process.wait()
    for number, handler in before.items():
        signal.signal(number, handler)
    return code, runs_of_launch(settings.out, launch, begun_s)


def end_as(code: int) -> NoReturn:
    """End as a command with this exit code, or as one that a signal ended."""
    if code < 0:
        with suppress(ImportError, OSError, ValueError):
            import resource

            # The core that matters is that of the command.
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            # SIGKILL has no handler to replace.
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def _environment(
    command: Sequence[str], settings: Settings, pid: int
) -> tuple[str, dict[str, str]]:
    """What all processes below the command have in common, and its environment, after all that can be checked before."""
    # Python reads no `.pth` file on PYTHONPATH, nor in the folder that it is started in.
    sites = {*site.getsitepackages(), site.getusersitepackages()}
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    others = {Path(folder).resolve() for folder in (*given, "")}
    folders = (path for path in sys.path if path in sites or Path(path).resolve() not in others)
    if not any(Path(folder, STARTUP_FILE).is_file() for folder in folders):
        raise CaptureError(
            f"traceview is not installed for {sys.executable}: no site folder has {STARTUP_FILE}, by which each Python captures itself",
            hint=f"{sys.executable} -m pip install traceview; a folder on PYTHONPATH, as of pip install --target, is no site folder",
        )
    for word in command[1:]:
        if not word.startswith("-"):
            break
        if Path(command[0]).name.startswith("python") and set(word[1:]) & set("SIE"):
            reads = "reads no environment or no installed packages, so it captures nothing"
            hint = "omit -S, -I and -E for the capture"
            raise UsageError(f"{command[0]} {word} {reads}", hint=hint)
    destination = Destination(settings.out)
    RunChoice(destination, settings.run, say).check()
    destination.prepare()
    destination.clean()
    launch = f"{pid}-{os.urandom(6).hex()}"
    return launch, {**os.environ, VARIABLE: replace(settings, launch=launch).written()}
