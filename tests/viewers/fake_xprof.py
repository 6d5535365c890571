"""A stand-in for XProf, for tests where it is not installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

VERSION: Final = "9.9.9"

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

_CONVERTER: Final = """
import json
from pathlib import Path


def xspace_to_tool_data(files, tool, params):
    print("flood of messages")
    for file in files:
        Path(file).with_name("cache.pb").write_bytes(Path(file).read_bytes()[:1])
    page = json.loads(Path(__file__).with_name("pages.json").read_text()).get(tool)
    return (None if page is None else json.dumps(page).encode()), "application/json"
"""


def table(columns: list[str], rows: list[list[Any]], **said: str) -> dict[str, Any]:
    """A table as XProf sends it to its web page."""
    return {
        "cols": [{"id": column} for column in columns],
        "rows": [{"c": [{"v": value} for value in row]} for row in rows],
        "p": said or None,
    }


def write_fake(
    folder: Path,
    pages: dict[str, Any] | None = None,
    *,
    server: str = SERVER,
    converter: str = _CONVERTER,
) -> Path:
    """A module `xprof` in a folder that can stand on the path of Python; `pages` is what it answers."""
    convert = folder / "xprof" / "convert"
    convert.mkdir(parents=True)
    (folder / "xprof" / "__init__.py").touch()
    (folder / "xprof" / "server.py").write_text(server, encoding="utf-8")
    (convert / "__init__.py").touch()
    (convert / "raw_to_tool_data.py").write_text(converter, encoding="utf-8")
    (convert / "pages.json").write_text(json.dumps(pages or {}), encoding="utf-8")
    about = folder / f"xprof-{VERSION}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: xprof\nVersion: {VERSION}\n")
    return folder
