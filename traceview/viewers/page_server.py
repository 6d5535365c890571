"""Serves a page to a browser that cannot open the files of this machine, behind `ssh -L`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Final

from traceview.viewers.launch import LOOPBACK

_LOCAL_NAMES: Final = ("localhost", LOOPBACK, "[::1]")


@contextmanager
def serving_page(content: bytes, port: int) -> Iterator[str]:
    """The address of an HTML page on this machine alone, while it is served."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
            if host not in _LOCAL_NAMES:
                # A foreign page whose name resolves to this machine must not read the report.
                self.send_error(403)
            elif self.path.partition("?")[0] != "/":
                self.send_error(404)
            else:
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Log no request."""

    with ThreadingHTTPServer((LOOPBACK, port), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://localhost:{port}/"
        finally:
            server.shutdown()
            thread.join()
