"""Stand-ins for Google Cloud Storage and Azure Blob Storage: one bucket on this machine, and the requests of their clients."""

from __future__ import annotations

import json
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

BUCKET = "bucket"
_DATE = "Sun, 22 Nov 2026 10:00:00 GMT"


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server on this machine; its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@dataclass
class Objects:
    """The objects of the bucket by name. `is_closed`: nobody is let in."""

    content: dict[str, bytes] = field(default_factory=dict)
    is_closed: bool = False
    ranges: list[str] = field(default_factory=list)
    blocks: dict[str, bytes] = field(default_factory=dict)
    """Of an object that is written in blocks, what has come of it."""


class _Handler(BaseHTTPRequestHandler, ABC):
    """Keeps connections open, as the clients of stores expect."""

    protocol_version = "HTTP/1.1"
    objects: Objects

    def begin(self) -> None:
        """Read a request and answer it."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        split = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(split.query).items()}
        self.answer(unquote(split.path), body)

    @abstractmethod
    def answer(self, path: str, body: bytes) -> None:
        """Answer one request."""

    def listed(self) -> tuple[list[str], list[str]]:
        """The names with the prefix that is asked for, and the folders among them."""
        prefix, delimiter = (self.query.get(key, "") for key in ("prefix", "delimiter"))
        found = [name for name in sorted(self.objects.content) if name.startswith(prefix)]
        cut = re.compile(f"{re.escape(prefix)}.*?{re.escape(delimiter)}" if delimiter else "(?!)")
        folders = {match[0] for match in map(cut.match, found) if match}
        return [name for name in found if not cut.match(name)], sorted(folders)

    def send_part(self, name: str, headers: dict[str, str]) -> None:
        """Send an object, or the range of it that is asked for."""
        content, status = self.objects.content[name], 200
        wanted = self.headers.get("x-ms-range") or self.headers.get("Range")
        if wanted:
            self.objects.ranges.append(wanted)
            first, last = wanted.removeprefix("bytes=").split("-")
            end = min(int(last) + 1, len(content)) if last else len(content)
            headers["Content-Range"] = f"bytes {first}-{end - 1}/{len(content)}"
            status, content = 206, content[int(first) : end]
        self.send(status, content, headers)

    def send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        """Send an answer."""
        self.send_response(status)
        for name, text in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


for command in ("GET", "HEAD", "POST", "PUT", "DELETE"):
    setattr(_Handler, f"do_{command}", _Handler.begin)


class GoogleHandler(_Handler):
    """Answers as Google's JSON API does."""

    def answer(self, path: str, body: bytes) -> None:
        if self.objects.is_closed:
            self._json({"error": {"code": 403, "message": "no access to the bucket"}}, 403)
            return
        place = path.partition("storage/v1/b/")[2]
        bucket, _, name = place.partition("/o/")
        bucket = bucket.removesuffix("/o")
        if path.startswith("/upload/"):
            self._store(body)
        elif bucket != BUCKET or (name and name not in self.objects.content):
            self._json({"error": {"code": 404, "message": "not there"}}, 404)
        elif self.command == "DELETE":
            del self.objects.content[name]
            self.send(204, b"")
        elif path.startswith("/download/"):
            self.send_part(name, {"Content-Type": "application/octet-stream"})
        elif name:
            self._json(self._row(name))
        else:
            names, folders = self.listed()
            self._json({"items": [self._row(name) for name in names], "prefixes": folders})

    def _store(self, body: bytes) -> None:
        kind = self.headers["Content-Type"]
        boundary = kind.partition("boundary=")[2].strip('"').encode()
        _, described, sent, _ = body.split(b"--" + boundary)
        name = json.loads(re.split(rb"\r?\n\r?\n", described, maxsplit=1)[1])["name"]
        content = re.split(rb"\r?\n\r?\n", sent, maxsplit=1)[1]
        self.objects.content[name] = re.sub(rb"\r?\n\Z", b"", content)
        self._json(self._row(name))

    def _row(self, name: str) -> dict[str, str]:
        size = str(len(self.objects.content[name]))
        return {"name": name, "bucket": BUCKET, "size": size, "generation": "1"}

    def _json(self, value: object, status: int = 200) -> None:
        self.send(status, json.dumps(value).encode(), {"Content-Type": "application/json"})


class AzureHandler(_Handler):
    """Answers as Azure's REST API does, to an account `account`."""

    def answer(self, path: str, body: bytes) -> None:
        if self.objects.is_closed:
            self._error(403, "AuthorizationFailure")
            return
        bucket, _, name = path.removeprefix("/account/").partition("/")
        action = self.query.get("comp")
        if bucket != BUCKET:
            self._error(404, "ContainerNotFound")
        elif action == "list":
            self._list()
        elif not name:
            self.send(200, b"", {"Last-Modified": _DATE, "ETag": '"1"'})
        elif self.command == "PUT":
            self._store(name, action, body)
        elif name not in self.objects.content:
            self._error(404, "BlobNotFound")
        elif self.command == "DELETE":
            del self.objects.content[name]
            self.send(202, b"")
        else:
            self._show(name)

    def _store(self, name: str, action: str | None, body: bytes) -> None:
        if action == "block":
            self.objects.blocks[self.query["blockid"]] = body
        elif action == "blocklist":
            ids = re.findall(r"<(?:Latest|Uncommitted)>([^<]*)<", body.decode())
            self.objects.content[name] = b"".join(self.objects.blocks.pop(one) for one in ids)
        else:
            self.objects.content[name] = body
        self.send(201, b"", {"Last-Modified": _DATE, "ETag": '"1"'})

    def _show(self, name: str) -> None:
        headers = {
            "Last-Modified": _DATE,
            "ETag": '"1"',
            "x-ms-blob-type": "BlockBlob",
            "Content-Type": "application/octet-stream",
        }
        if self.command == "HEAD":
            size = str(len(self.objects.content[name]))
            self.send(200, b"", {**headers, "Content-Length": size})
        else:
            self.send_part(name, headers)

    def _list(self) -> None:
        names, folders = self.listed()
        blobs = "".join(
            f"<Blob><Name>{escape(name)}</Name><Properties><Last-Modified>{_DATE}</Last-Modified><Etag>1</Etag>"
            f"<Content-Length>{len(self.objects.content[name])}</Content-Length><BlobType>BlockBlob</BlobType>"
            "</Properties></Blob>"
            for name in names
        )
        prefixes = "".join(f"<BlobPrefix><Name>{escape(n)}</Name></BlobPrefix>" for n in folders)
        text = (
            f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="{BUCKET}">'
            f"<Blobs>{blobs}{prefixes}</Blobs><NextMarker/></EnumerationResults>"
        )
        self.send(200, text.encode(), {"Content-Type": "application/xml"})

    def _error(self, status: int, code: str) -> None:
        text = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'
        headers = {"Content-Type": "application/xml", "x-ms-error-code": code}
        self.send(status, text.encode(), headers)
