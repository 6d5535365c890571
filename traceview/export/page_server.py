"""Opens a page in the browser of the user, or serves it to a browser on another machine, behind `ssh -L`."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from shutil import copyfileobj
from threading import Thread
from typing import BinaryIO, Final

from traceview.base.errors import ViewerError
from traceview.export.viewers import LOOPBACK

_LOCAL_NAMES: Final = ("localhost", LOOPBACK, "[::1]")

PERFETTO: Final = "https://ui.perfetto.dev"
PERFETTO_PORT: Final = 9001
"""The only port of this machine that the page of Perfetto may read from (its Content-Security-Policy)."""


@contextmanager
def serving_page(content: bytes, port: int) -> Iterator[str]:
    """The address of an HTML page on this machine alone, while it is served."""
    headers = {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Length": str(len(content)),
    }
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
    """Serve one content at one path."""

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
                    copyfileobj(file, self.wfile)

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
