"""Stores on this machine: the memory of the process, and a server that speaks S3's protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from traceview.store import remote, service

FIXTURE = "slow-input-2"
TRACE = "plugins/profile/2026_11_21_07_57_19/host-a.xplane.pb"


@pytest.fixture
def memory() -> Any:
    """The empty memory of the process, as fsspec sees it."""
    import fsspec

    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]
    return filesystem


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
def in_small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads files in many requests, as large ones are."""
    monkeypatch.setattr(remote, "BLOCK_BYTES", 1 << 14)
    monkeypatch.setattr(remote, "RANGE_BYTES", 1 << 15)


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
