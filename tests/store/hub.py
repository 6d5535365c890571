"""A stand-in for the Hugging Face Hub: one data set on this machine, with the requests that its client makes."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.store.any_request import AnyRequest

REPO = "datasets/ann/runs"
_COMMIT = "0" * 40


@dataclass
class Hub:
    """The files of the data set by path. `token`: who does not send it is not let in, if it is set."""

    files: dict[str, bytes] = field(default_factory=dict)
    token: str | None = None
    requests: list[str] = field(default_factory=list)
    sent_bytes: dict[str, int] = field(default_factory=dict)

    def entries(self, paths: list[str]) -> list[dict[str, Any]]:
        """What the Hub says of files and folders; nothing of those that are not there."""
        rows: list[dict[str, Any]] = []
        for path in paths:
            content = self.files.get(path)
            if content is not None:
                oid = hashlib.sha1(content).hexdigest()  # as git has it
                rows.append({"type": "file", "path": path, "size": len(content), "oid": oid})
            elif any(name.startswith(f"{path}/") for name in self.files):
                rows.append({"type": "directory", "path": path, "oid": _COMMIT, "size": 0})
        return rows

    def listed(self, folder: str) -> list[dict[str, Any]]:
        """What lies in a folder."""
        prefix = f"{folder}/" if folder else ""
        below = (name[len(prefix) :] for name in self.files if name.startswith(prefix))
        return self.entries(sorted({prefix + name.partition("/")[0] for name in below}))


def handler_of(hub: Hub) -> type[BaseHTTPRequestHandler]:
    """Handles the requests to a hub."""

    class Handler(AnyRequest):
        def begin(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(f"{self.command} {path}")
            if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
                self._error(401, "RepoNotFound", "Invalid username or password.")
            elif re.fullmatch(f"/api/{REPO}(/revision/main)?", path):
                self._json({"id": REPO.partition("/")[2], "sha": _COMMIT, "siblings": []})
            elif path.startswith(f"/api/{REPO}/tree/main"):
                folder = path.removeprefix(f"/api/{REPO}/tree/main").strip("/")
                rows = hub.listed(folder)
                self._json(rows) if rows else self._error(404, "EntryNotFound", "not there")
            elif path == f"/api/{REPO}/paths-info/main":
                self._json(hub.entries(self._paths(body)))
            elif path == f"/api/{REPO}/preupload/main":
                names = [file["path"] for file in json.loads(body)["files"]]
                mode = {"uploadMode": "regular", "shouldIgnore": False}
                self._json({"files": [{"path": name, **mode} for name in names]})
            elif path == f"/api/{REPO}/commit/main":
                self._commit(body)
            elif path.startswith(f"/{REPO}/resolve/main/"):
                self._content(path.removeprefix(f"/{REPO}/resolve/main/"))
            else:
                self._error(404, "RepoNotFound", "Repository not found")

        def _paths(self, body: bytes) -> list[str]:
            if "json" in self.headers.get("Content-Type", ""):
                return list(json.loads(body)["paths"])
            return parse_qs(body.decode())["paths"]

        def _commit(self, body: bytes) -> None:
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    hub.files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "deletedFile":
                    del hub.files[value["path"]]
            link = f"https://huggingface.co/{REPO}/commit/{_COMMIT}"
            self._json({"commitOid": _COMMIT, "commitUrl": link, "hookOutput": ""})

        def _content(self, name: str) -> None:
            content = hub.files.get(name)
            if content is None:
                self._error(404, "EntryNotFound", "Entry not found")
                return
            status, wanted = 200, self.headers.get("Range")
            if wanted:
                first, last = wanted.removeprefix("bytes=").split("-")
                status, content = 206, content[int(first) : int(last) + 1]
            self._send(status, content, {"ETag": '"1"', "X-Repo-Commit": _COMMIT})
            if self.command == "GET":
                hub.sent_bytes[name] = hub.sent_bytes.get(name, 0) + len(content)

        def _json(self, value: object) -> None:
            self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _error(self, status: int, code: str, message: str) -> None:
            self._send(status, b"", {"X-Error-Code": code, "X-Error-Message": message})

        def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, text in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, text)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
