"""How is a viewer started, and when does it show the run?

It runs in a process of its own, whose flood of messages goes into a file and is shown only if it fails.
"""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

from traceview.errors import UsageError, ViewerError
from traceview.viewers.launch import LOOPBACK
from traceview.viewers.run_copy import RunCopy

PORTS: Final = {"xprof": 8791, "tensorboard": 6006}
"""The port that each one uses where no other is asked for: its own default."""

_NAMES: Final = {"xprof": "XProf", "tensorboard": "TensorBoard"}
_TRIED_PORTS: Final = 100
_PATIENCE_SECONDS: Final = 120.0
"""TensorBoard imports TensorFlow where it is there, which takes ten seconds and more."""

_POLL_SECONDS: Final = 0.1
_STOP_SECONDS: Final = 5.0
_RUNS: Final = "/data/plugin/profile/runs"


@dataclass(frozen=True)
class Serving:
    """A viewer that answers: its name, its address for the run, the process, and the file with its messages."""

    name: str
    address: str
    process: subprocess.Popen[bytes]
    log: Path

    def wait(self) -> None:
        """Wait until the viewer ends, which it should not do by itself: raises `ViewerError`."""
        self.process.wait()
        raise ViewerError(f"{self.name} ended: {last_words(self.log)}")


def free_port(wanted: int) -> int:
    """The first port from `wanted` on that nobody listens at, any for 0; raises `UsageError` if there is none."""
    for port in range(wanted, min(wanted + _TRIED_PORTS, 1 << 16)):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            if os.name == "posix":
                # Else a port stays taken for a minute after whoever listened there is gone.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise UsageError(f"--port {wanted}: no port can be had from there on")


@contextmanager
def serving(viewer: str, copy: RunCopy, port: int) -> Iterator[Serving]:
    """The viewer `xprof` or `tensorboard` while it serves a run at a free port of this machine.

    Raises `ViewerError`, with its last words, if it does not come to answer.
    """
    log = copy.scratch / "log.txt"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "traceview.viewers.launch", viewer, copy.logdir, str(port)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            cwd=copy.scratch,
            env=environment(copy.scratch),
            # Ctrl-C is for us; we end it when we are done.
            start_new_session=True,
        )
    try:
        _await(viewer, copy, port, process, log)
        yield Serving(_NAMES[viewer], _address(viewer, port, copy.run), process, log)
    finally:
        _end(process)


def environment(scratch: Path) -> dict[str, str]:
    """Variables for a process that imports what we can import, from wherever it runs, and keeps its caches there."""
    found = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": found, "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1"}


def _address(viewer: str, port: int, run: str) -> str:
    if viewer == "tensorboard":
        return f"http://localhost:{port}/?{urlencode({'run': run})}#profile"
    return f"http://localhost:{port}/?{urlencode({'run': run})}"


def _await(
    viewer: str, copy: RunCopy, port: int, process: subprocess.Popen[bytes], log: Path
) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise ViewerError(
                f"{_NAMES[viewer]} ended with {process.returncode} before it answered: {last_words(log)}"
            )
        if copy.run in _runs(port):
            return
        time.sleep(_POLL_SECONDS)
    raise ViewerError(
        f"{_NAMES[viewer]} did not show the run within {_PATIENCE_SECONDS:.0f} s: {last_words(log)}"
    )


def _runs(port: int) -> list[str]:
    """The runs that a viewer has found so far; TensorBoard looks for them after it answers."""
    try:
        # Not through a proxy: it would look for its own machine.
        with build_opener(ProxyHandler({})).open(
            f"http://{LOOPBACK}:{port}{_RUNS}", timeout=5
        ) as answer:
            content: bytes = answer.read()
        found = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    except (URLError, OSError, ValueError):
        return []
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def last_words(log: Path) -> str:
    """The last line that a program wrote, which says why it failed if it was a Python exception."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
