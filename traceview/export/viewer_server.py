"""Starts a viewer, and waits until it shows the run.

The viewer runs in a process of its own; its many messages go into a file and are shown only if it fails.

Copies a run for programs that write beside it.

XProf and TensorBoard keep caches next to the files that they read. They get a folder of their own in the layout
that they expect, in which the files are links to those of the run, or copies of those in a store.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

from traceview.base.errors import TraceviewError, UsageError, ViewerError
from traceview.base.location import Location
from traceview.base.text import lazy_pattern
from traceview.export.viewers import LOOPBACK
from traceview.trace.reading.locate import SUFFIX, RunFiles, host_of
from traceview.xplane.read import read_summary

_UNSAFE: Final = lazy_pattern(r"[^A-Za-z0-9.+=@_-]")
_LONGEST: Final = 100
"""Characters of a name: with the ending and those of the caches it stays below the 255 bytes of file systems."""


@dataclass(frozen=True)
class RunCopy:
    """A log directory with one run: its name there, its files, and a folder for what else is written."""

    logdir: Path
    run: str
    files: tuple[Path, ...]
    scratch: Path


def check_readable(run: RunFiles) -> None:
    """Raise the problem of the first file of a run if none of its files is a trace."""
    problem: TraceviewError | None = None
    for path in run.paths:
        try:
            read_summary(path)
        except TraceviewError as error:
            problem = problem or error
        else:
            return
    if problem is not None:
        raise problem


@contextmanager
def copied_run(run: RunFiles) -> Iterator[RunCopy]:
    """The run as a log directory of its own, which is removed at the end with everything in it.

    Names of runs and hosts keep what a viewer can put into an address; the rest of their characters becomes `_`.
    """
    with tempfile.TemporaryDirectory(prefix="traceview-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        logdir, scratch = folder / "logs", folder / "scratch"
        scratch.mkdir()
        run_name = _plain(run.name.rpartition("/")[2])
        directory = logdir / "plugins" / "profile" / run_name
        directory.mkdir(parents=True)
        files: list[Path] = []
        for path in run.paths:
            file = directory / f"{_new_name(host_of(path), files)}{SUFFIX}"
            _link(path, file)
            files.append(file)
        yield RunCopy(logdir, run_name, tuple(files), scratch)


def _plain(name: str) -> str:
    return _UNSAFE.sub("_", name).lstrip(".")[:_LONGEST] or "run"


def _new_name(host: str, files: Sequence[Path]) -> str:
    """A plain name that no file has yet, even where file systems ignore the case of letters."""
    taken = {file.name.removesuffix(SUFFIX).casefold() for file in files}
    plain = _plain(host)
    names = chain([plain], (f"{plain}_{number}" for number in count(1)))
    return next(name for name in names if name.casefold() not in taken)


def _link(path: Location, link: Path) -> None:
    if not isinstance(path, Path):
        link.write_bytes(path.read_bytes())
        return
    try:
        link.symlink_to(path.absolute())
    except OSError:
        # Windows permits links to few users, and some file systems to none. Never write through a link into the run.
        with path.open("rb") as source, link.open("xb") as copy:
            shutil.copyfileobj(source, copy)


PORTS: Final = {"xprof": 8791, "tensorboard": 6006}
"""The default port of each viewer."""

_NAMES: Final = {"xprof": "XProf", "tensorboard": "TensorBoard"}
_TRIED_PORTS: Final = 100
"""That many viewers run on no machine; then something else is wrong."""
_START_SECONDS: Final = 120.0
"""TensorBoard imports TensorFlow if it is installed, which takes ten seconds and more."""

_POLL_SECONDS: Final = 0.1
"""How late a person sees that the server answers."""
_STOP_SECONDS: Final = 5.0
"""The server has nothing to save."""
_RUNS: Final = "/data/plugin/profile/runs"


@dataclass(frozen=True)
class Serving:
    """A viewer that answers: its name, its address for the run, the process, and the file with its messages."""

    name: str
    address: str
    process: subprocess.Popen[bytes]
    log: Path

    def wait(self) -> None:
        """Wait until the viewer ends, which it should not do: raises `ViewerError`."""
        self.process.wait()
        raise ViewerError(f"{self.name} ended: {last_words(self.log)}")


def free_port(wanted: int) -> int:
    """The first port from `wanted` on that nobody listens at, any for 0; raises `UsageError` if there is none."""
    for port in range(wanted, min(wanted + _TRIED_PORTS, 1 << 16)):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            if os.name == "posix":
                # Otherwise a port stays taken for a minute after its server has ended.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise UsageError(f"--port {wanted}: no port is free from there on")


@contextmanager
def serving(viewer: str, copy: RunCopy, port: int) -> Iterator[Serving]:
    """The viewer `xprof` or `tensorboard` while it serves a run at a free port of this machine.

    Raises `ViewerError`, with its last words, if it does not come to answer.
    """
    log = copy.scratch / "log.txt"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "traceview.export.viewers", viewer, copy.logdir, str(port)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            cwd=copy.scratch,
            env=environment(copy.scratch),
            # Ctrl-C is for this command, which ends the viewer itself.
            start_new_session=True,
        )
    try:
        _await(viewer, copy, port, process, log)
        yield Serving(_NAMES[viewer], _address(viewer, port, copy.run), process, log)
    finally:
        _end(process)


def environment(scratch: Path) -> dict[str, str]:
    """Variables for a process that imports from the same places as this one, and keeps its caches in `scratch`."""
    places = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": places, "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1"}


def _address(viewer: str, port: int, run: str) -> str:
    if viewer == "tensorboard":
        return f"http://localhost:{port}/?{urlencode({'run': run})}#profile"
    return f"http://localhost:{port}/?{urlencode({'run': run})}"


def _await(
    viewer: str, copy: RunCopy, port: int, process: subprocess.Popen[bytes], log: Path
) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise ViewerError(
                f"{_NAMES[viewer]} ended with {process.returncode} before it answered: {last_words(log)}"
            )
        if copy.run in _runs(port):
            return
        time.sleep(_POLL_SECONDS)
    raise ViewerError(
        f"{_NAMES[viewer]} did not show the run within {_START_SECONDS:.0f} s: {last_words(log)}"
    )


def _runs(port: int) -> list[str]:
    """The runs that a viewer lists so far; TensorBoard looks for them after it answers."""
    try:
        # Not through a proxy, which would look on its own machine.
        with build_opener(ProxyHandler({})).open(
            f"http://{LOOPBACK}:{port}{_RUNS}", timeout=5
        ) as answer:
            content: bytes = answer.read()
        runs = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    except (URLError, OSError, ValueError):
        return []
    return [name for name in runs if isinstance(name, str)] if isinstance(runs, list) else []


def last_words(log: Path) -> str:
    """The last line that a program wrote; of a Python exception it says what failed."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
