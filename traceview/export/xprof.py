"""Starts XProf for a copy of a run, and serves it to this machine alone until the process that started it has ended.

    python -m traceview.export.xprof LOGDIR PORT

XProf's server and its second server of remote calls accept connections from every network, and no option of theirs
changes that, so it runs in a process of its own in which both are kept from it. Its many messages go into a file and are
shown only if it fails. XProf is the module `xprof` since 2.20, and was `tensorboard_plugin_profile` before.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any, Final
from urllib.parse import urlencode

from traceview.base.errors import UsageError, ViewerError
from traceview.export.browser import LOOPBACK
from traceview.export.run_copy import RunCopy

MODULES: Final = ("xprof", "tensorboard_plugin_profile")
"""Names of the module of XProf, the newest first."""

PORT: Final = 8791
"""Where it is served by default."""

_START_SECONDS: Final = 120.0
"""XProf imports TensorFlow if it is installed, which takes ten seconds and more."""

_POLL_SECONDS: Final = 0.1
"""How late a person sees that the server answers."""
_STOP_SECONDS: Final = 5.0
"""The server has nothing to save."""


def module() -> str:
    """The name of XProf's module; raises `UsageError` where it is not installed."""
    for name in MODULES:
        if find_spec(name) is not None:
            return name
    raise UsageError("XProf is not installed", hint="pip install 'traceview[xprof]'")


@dataclass(frozen=True)
class Serving:
    """XProf as it answers: its address for the run, the process, and the file with its messages."""

    address: str
    process: subprocess.Popen[bytes]
    log: Path

    def wait(self) -> None:
        """Wait until XProf ends, which it should not do: raises `ViewerError`."""
        self.process.wait()
        raise ViewerError(f"XProf ended: {last_words(self.log)}")


@contextmanager
def serving(copy: RunCopy, port: int) -> Iterator[Serving]:
    """XProf while it serves a run at a free port of this machine.

    Raises `ViewerError`, with its last words, if it does not come to answer.
    """
    log = copy.scratch / "log.txt"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "traceview.export.xprof", copy.logdir, str(port)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            cwd=copy.scratch,
            env=environment(copy.scratch),
            # Ctrl-C is for this command, which ends XProf itself.
            start_new_session=True,
        )
    try:
        _await(process, port, log)
        yield Serving(f"http://localhost:{port}/?{urlencode({'run': copy.run})}", process, log)
    finally:
        _end(process)


def environment(scratch: Path) -> dict[str, str]:
    """Variables for a process that imports from the same places as this one, and keeps its caches in `scratch`."""
    places = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": places, "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1"}


def last_words(log: Path) -> str:
    """The last line that a program wrote; of a Python exception it says what failed."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise ViewerError(
                f"XProf ended with {process.returncode} before it answered: {last_words(log)}"
            )
        try:
            socket.create_connection((LOOPBACK, port)).close()
        except OSError:
            time.sleep(_POLL_SECONDS)
        else:
            return
    raise ViewerError(f"XProf did not answer within {_START_SECONDS:.0f} s: {last_words(log)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# In the process of XProf


def _serve(logdir: str, port: str) -> None:
    """Run XProf's server; it returns when it is interrupted."""
    server: Any = import_module(f"{module()}.server")
    server._get_wildcard_address = lambda _: LOOPBACK
    converter = getattr(server, "_pywrap_profiler_plugin", None)
    if converter is not None and hasattr(converter, "start_grpc_server"):
        # For several machines that convert together; pages come without it.
        converter.start_grpc_server = lambda *_, **__: None
    if hasattr(server, "launch_server"):
        # Before 2.21, whose command line also changed.
        server.launch_server(logdir, int(port))
    else:
        sys.argv = ["xprof", "--logdir", logdir, "--port", port]
        sys.exit(server.main())


def _end_with_the_starter() -> None:
    """Standard input is a pipe that nobody writes to: when it closes, the starter has ended."""
    os.read(0, 1)
    os._exit(0)


if __name__ == "__main__":
    Thread(target=_end_with_the_starter, daemon=True).start()
    _serve(*sys.argv[1:])
