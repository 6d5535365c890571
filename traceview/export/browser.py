"""Opens a page in the browser of the user, and serves one to this machine, or to another one behind `ssh -L`."""

from __future__ import annotations

import os
import socket
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import BinaryIO, Final

from traceview.base.errors import UsageError, ViewerError

LOOPBACK: Final = "127.0.0.1"
_LOCAL_NAMES: Final = ("localhost", LOOPBACK, "[::1]")

PERFETTO: Final = "https://ui.perfetto.dev"
PERFETTO_PORT: Final = 9001
"""The only port of this machine that the page of Perfetto may read from (its Content-Security-Policy)."""

_TRIED_PORTS: Final = 100
"""That many servers run on no machine; then something else is wrong."""


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
def serving(folder: Path, port: int, reader: str = "") -> Iterator[str]:
    """The address at which this machine alone is served the files of a folder. `reader`: the site that may read them.

    Raises `ViewerError` if the port is taken.
    """

    class Handler(SimpleHTTPRequestHandler):
        def send_head(self) -> BytesIO | BinaryIO | None:
            host = self.headers.get("Host", "")
            if (host.rpartition(":")[0] or host) in _LOCAL_NAMES:
                return super().send_head()
            # A foreign page whose name resolves to this machine must not read the report.
            self.send_error(HTTPStatus.FORBIDDEN)
            return None

        def end_headers(self) -> None:
            if reader:
                self.send_header("Access-Control-Allow-Origin", reader)
            super().end_headers()

        def log_message(self, *_: object) -> None:
            """Log no request."""

    try:
        server = ThreadingHTTPServer((LOOPBACK, port), partial(Handler, directory=folder))
    except OSError as error:
        raise ViewerError(f"cannot serve at port {port}: {error.strerror}") from error
    with server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://localhost:{port}/"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def serving_to_perfetto(trace: Path) -> Iterator[str]:
    """The address that opens a trace in Perfetto, while its folder is served to that page on this machine alone.

    Raises `ViewerError` if the port is taken, for Perfetto reads from no other one.
    """
    with serving(trace.parent, PERFETTO_PORT, PERFETTO):
        yield f"{PERFETTO}/#!/?url=http://{LOOPBACK}:{PERFETTO_PORT}/{trace.name}"


_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def has_display() -> bool:
    """Whether a browser has a display: without one a browser in the terminal would take it over."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in _DISPLAYS)


def show(address: str) -> bool:
    """Open the page in the user's browser; False where there is none."""
    try:
        return has_display() and webbrowser.open(address)
    except webbrowser.Error:
        return False
