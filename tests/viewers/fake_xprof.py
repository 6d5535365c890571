"""A stand-in for XProf, for tests where it is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SERVER: Final = """
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def _get_wildcard_address(port):
    return "0.0.0.0"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        logdir = Path(sys.argv[sys.argv.index("--logdir") + 1])
        runs = [path.name for path in (logdir / "plugins" / "profile").iterdir()]
        for path in (logdir / "plugins" / "profile").rglob("*.xplane.pb"):
            path.with_name("cache.pb").write_bytes(path.read_bytes()[:1])
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(runs if self.path.endswith("/runs") else self.server.server_address[0]).encode())

    def log_message(self, *arguments):
        pass


def main():
    print("flood of messages", file=sys.stderr)
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer((_get_wildcard_address(port), port), Handler).serve_forever()
"""


def write_fake(folder: Path, *, server: str = SERVER) -> Path:
    """A module `xprof` in a folder that can stand on the path of Python."""
    (folder / "xprof").mkdir(parents=True)
    (folder / "xprof" / "__init__.py").touch()
    (folder / "xprof" / "server.py").write_text(server, encoding="utf-8")
    return folder
