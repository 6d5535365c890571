"""Shows a run in XProf, TensorBoard or Perfetto, and a report in the browser, to this machine alone.

    python -m traceview.export.viewers xprof|tensorboard LOGDIR PORT

XProf and TensorBoard run in a process of their own, whose many messages go into a file and are shown only if it fails. They
keep caches next to the files that they read, so they get a folder of their own in the layout that they expect, in which the
files are links to those of the run, or copies of those in a store.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO, Final
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

from traceview.base.errors import UsageError, ViewerError
from traceview.base.location import Location
from traceview.trace.reading.locate import SUFFIX, RunFiles, host_of

PORTS: Final = {"xprof": 8791, "tensorboard": 6006}
"""The default port of each viewer."""
LOOPBACK: Final = "127.0.0.1"
PERFETTO: Final = "https://ui.perfetto.dev"
PERFETTO_PORT: Final = 9001
"""The only port of this machine that the page of Perfetto may read from (its Content-Security-Policy)."""

_NAMES: Final = {"xprof": "XProf", "tensorboard": "TensorBoard"}
_HINT: Final = "pip install 'traceview[xprof]'"
_LOCAL_NAMES: Final = ("localhost", LOOPBACK, "[::1]")
_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
_UNSAFE: Final = r"[^A-Za-z0-9.+=@_-]"
_LONGEST: Final = 100
"""Characters of a name: with the ending and those of the caches it stays below the 255 bytes of file systems."""
_TRIED_PORTS: Final = 100
"""That many viewers run on no machine; then something else is wrong."""
_START_SECONDS: Final = 120.0
"""TensorBoard imports TensorFlow if it is installed, which takes ten seconds and more."""
_POLL_SECONDS: Final = 0.1
"""How late a person sees that the server answers."""


def check_installed(viewer: str) -> None:
    """Raise `UsageError` where XProf, which shows profiles in TensorBoard, too, or TensorBoard itself is not installed."""
    if find_spec("xprof") is None:
        raise UsageError("XProf is not installed", hint=_HINT)
    if viewer == "tensorboard" and find_spec("tensorboard") is None:
        raise UsageError(
            "TensorBoard is not installed",
            hint=f"pip install tensorboard {_HINT.rpartition(' ')[2]}; --open xprof needs no TensorBoard",
        )


# A copy of the run


@dataclass(frozen=True)
class RunCopy:
    """A log directory with one run: its name there, its files, and a folder for what else is written."""

    logdir: Path
    run: str
    files: tuple[Path, ...]
    scratch: Path


@contextmanager
def copied_run(run: RunFiles) -> Iterator[RunCopy]:
    """The run as a log directory of its own, which is removed at the end with everything in it.

    Names of runs and hosts keep what a viewer can put into an address; the rest of their characters becomes `_`.
    """
    with tempfile.TemporaryDirectory(prefix="traceview-", ignore_cleanup_errors=True) as name:
        logdir, scratch = Path(name) / "logs", Path(name) / "scratch"
        scratch.mkdir()
        run_name = _plain(run.name.rpartition("/")[2])
        directory = logdir / "plugins" / "profile" / run_name
        directory.mkdir(parents=True)
        files: dict[str, Path] = {}
        for path in run.paths:
            host = _plain(host_of(path))
            # Some file systems ignore the case of letters.
            while host.casefold() in files:
                host += "_"
            files[host.casefold()] = directory / f"{host}{SUFFIX}"
            _link(path, files[host.casefold()])
        yield RunCopy(logdir, run_name, tuple(files.values()), scratch)


def _plain(name: str) -> str:
    return re.sub(_UNSAFE, "_", name).lstrip(".")[:_LONGEST] or "run"


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


# XProf and TensorBoard


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


@contextmanager
def serving(viewer: str, copy: RunCopy, port: int) -> Iterator[Serving]:
    """The viewer `xprof` or `tensorboard` while it serves a run at a free port of this machine.

    Raises `ViewerError`, with its last words, if it does not come to answer.
    """
    log = copy.scratch / "log.txt"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, viewer, copy.logdir, str(port)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            cwd=copy.scratch,
            env=environment(copy.scratch),
            # Ctrl-C is for this command, which ends the viewer itself.
            start_new_session=True,
        )
    page = "#profile" if viewer == "tensorboard" else ""
    address = f"http://localhost:{port}/?{urlencode({'run': copy.run})}{page}"
    served = Serving(_NAMES[viewer], address, process, log)
    try:
        _await(served, copy.run, port)
        yield served
    finally:
        # It has nothing to save.
        process.kill()
        process.communicate()


def _await(served: Serving, run: str, port: int) -> None:
    """Wait until a viewer lists the run; TensorBoard looks for it after it answers."""
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        code = served.process.poll()
        if code is not None:
            raise ViewerError(
                f"{served.name} ended with {code} before it answered: {last_words(served.log)}"
            )
        if run in _runs(port):
            return
        time.sleep(_POLL_SECONDS)
    raise ViewerError(
        f"{served.name} did not show the run within {_START_SECONDS:.0f} s: {last_words(served.log)}"
    )


def _runs(port: int) -> list[str]:
    address = f"http://{LOOPBACK}:{port}/data/plugin/profile/runs"
    try:
        # Not through a proxy, which would look on its own machine.
        with build_opener(ProxyHandler({})).open(address, timeout=5) as answer:
            content: bytes = answer.read()
        runs = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    except (OSError, ValueError):
        return []
    return runs if isinstance(runs, list) else []


def environment(scratch: Path) -> dict[str, str]:
    """Variables for a process that imports from the same places as this one, and keeps its caches in `scratch`."""
    places = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": places, "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1"}


def last_words(log: Path) -> str:
    """The last line that a program wrote; of a Python exception it says what failed."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")


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


# A single page or trace


@contextmanager
def serving_page(content: bytes, port: int) -> Iterator[str]:
    """The address of an HTML page on this machine alone, while it is served."""
    headers = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(content))}
    with _serving("/", lambda: BytesIO(content), headers, port):
        yield f"http://localhost:{port}/"


@contextmanager
def serving_to_perfetto(trace: Path) -> Iterator[str]:
    """The address that opens a trace in Perfetto, while the trace is served to that page on this machine alone.

    Raises `ViewerError` if the port is taken, for Perfetto reads from no other one.
    """
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Length": str(trace.stat().st_size),
        "Access-Control-Allow-Origin": PERFETTO,
        "Cache-Control": "no-cache",
    }
    path = "/trace.pftrace"
    with _serving(path, lambda: trace.open("rb"), headers, PERFETTO_PORT):
        yield f"{PERFETTO}/#!/?url=http://{LOOPBACK}:{PERFETTO_PORT}{path}"


@contextmanager
def _serving(
    path: str, content: Callable[[], BinaryIO], headers: Mapping[str, str], port: int
) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
            if host not in _LOCAL_NAMES:
                # A foreign page whose name resolves to this machine must not read the report.
                self.send_error(403)
            elif self.path.partition("?")[0] != path:
                self.send_error(404)
            else:
                self.send_response(200)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                with content() as file:
                    shutil.copyfileobj(file, self.wfile)

        def log_message(self, *_: object) -> None:
            """Log no request."""

    try:
        server = ThreadingHTTPServer((LOOPBACK, port), Handler)
    except OSError as error:
        raise ViewerError(f"cannot serve at port {port}: {error.strerror}") from error
    with server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def show(address: str) -> bool:
    """Open the page in the user's browser; False without one on a display: one in the terminal would take it over."""
    is_desktop = sys.platform in ("darwin", "win32")
    try:
        return (is_desktop or any(map(os.environ.get, _DISPLAYS))) and webbrowser.open(address)
    except webbrowser.Error:
        return False


# In the process of a viewer. XProf's server and its second server of remote calls accept connections from every network, and
# no option of theirs changes that.


def _serve_xprof(logdir: str, port: str) -> None:
    server: Any = import_module("xprof.server")
    server._get_wildcard_address = lambda _: LOOPBACK
    converter = getattr(server, "_pywrap_profiler_plugin", None)
    if converter is not None and hasattr(converter, "start_grpc_server"):
        # For several machines that convert together; pages come without it.
        converter.start_grpc_server = lambda *_, **__: None
    sys.argv = ["xprof", "--logdir", logdir, "--port", port]
    sys.exit(server.main())


def _serve_tensorboard(logdir: str, port: str) -> None:
    tensorboard: Any = import_module("tensorboard.main")
    sys.argv = ["tensorboard", "--logdir", logdir, "--port", port, "--host", LOOPBACK]
    tensorboard.run_main()


def _end_with_the_starter() -> None:
    """Standard input is a pipe that nobody writes to: when it closes, the starter has ended."""
    os.read(0, 1)
    os._exit(0)


if __name__ == "__main__":
    Thread(target=_end_with_the_starter, daemon=True).start()
    {"xprof": _serve_xprof, "tensorboard": _serve_tensorboard}[sys.argv[1]](*sys.argv[2:])
