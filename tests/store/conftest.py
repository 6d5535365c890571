"""Stores on this machine: the memory of the process, a server of files, and one that speaks S3's protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.store.object_server import served
from traceview.store import ranges

FIXTURE = "slow-input-2"


@dataclass
class Requests:
    """What a server was asked for: methods with paths, and the bytes that it sent of each file."""

    lines: list[str] = field(default_factory=list)
    sent_bytes: dict[str, int] = field(default_factory=dict)
    failures: int = 0
    """How many requests for content are to fail from now on."""


@dataclass(frozen=True)
class FileServer:
    """A server of the files in `folder`, at `address`."""

    address: str
    folder: Path
    requests: Requests


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """No test is answered by what another has read."""
    ranges.forget()
    yield
    ranges.forget()


@pytest.fixture
def memory() -> Iterator[Any]:
    """The empty memory of the process, as fsspec sees it."""
    import fsspec

    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]
    yield filesystem
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]


@pytest.fixture
def recorded(fixtures: Path) -> dict[str, bytes]:
    """The files of a recorded log directory, by their path in it."""
    folder = fixtures / FIXTURE
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def in_memory(memory: Any, recorded: dict[str, bytes]) -> str:
    """The address of the recorded log directory in memory."""
    for name, content in recorded.items():
        memory.pipe_file(f"/logs/{name}", content)
    return "memory://logs"


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., FileServer]]:
    """Starts servers of files; `knows_ranges`: whether parts of a file can be asked for."""
    with ExitStack() as servers:
        folders = count()

        def start(*, knows_ranges: bool = True) -> FileServer:
            folder = tmp_path / f"served-{next(folders)}"
            folder.mkdir()
            requests = Requests()
            handler = _handler(folder, requests, knows_ranges)
            return FileServer(servers.enter_context(served(handler)), folder, requests)

        yield start


def _handler(
    folder: Path, requests: Requests, knows_ranges: bool
) -> type[SimpleHTTPRequestHandler]:
    class Handler(SimpleHTTPRequestHandler):
        """Python's own server of files, with ranges."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(folder))

        def do_GET(self) -> None:
            path = Path(self.translate_path(self.path))
            if not path.is_file():
                super().do_GET()
                return
            if requests.failures > 0:
                requests.failures -= 1
                self.send_error(503)
                return
            content = path.read_bytes()
            status, wanted = 200, self.headers.get("Range")
            if wanted and knows_ranges:
                first, last = wanted.removeprefix("bytes=").split("-")
                status, content = 206, content[int(first) : int(last) + 1]
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            sent = requests.sent_bytes.get(path.name, 0)
            requests.sent_bytes[path.name] = sent + len(content)

        def log_error(self, *_: Any) -> None:
            pass

        def log_request(self, *_: Any) -> None:
            requests.lines.append(f"{self.command} {self.path}")

    return Handler


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """A server that speaks S3's protocol; its address."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of that server, with an empty bucket `bucket`; the variables that lead every client there are set."""
    import boto3

    from traceview.store import service

    for name, value in {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(service, "_opened", {})
    client = boto3.client("s3")
    client.create_bucket(Bucket="bucket")
    yield client
    for row in client.list_objects_v2(Bucket="bucket").get("Contents", []):
        client.delete_object(Bucket="bucket", Key=row["Key"])
    client.delete_bucket(Bucket="bucket")
