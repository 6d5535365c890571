"""A store that changes, is silent or is not there ends a command in one line, and no line repeats what gives access."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command import Command
from tests.store.conftest import FIXTURE, TRACE
from traceview.store import service
from traceview.store.address import location_of

pytestmark = [pytest.mark.cloud, pytest.mark.usefixtures("no_terminal")]

CHANGED = "the file changed while it was read"


def after_the_first_read(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]) -> None:
    """Change a store once a part of the trace has been read."""
    read = service.Service.read
    changes = [change]

    def reading(self: service.Service, path: str, *arguments: Any) -> bytes:
        data = read(self, path, *arguments)
        if path.endswith(TRACE) and changes:
            changes.pop()()
        return data

    monkeypatch.setattr(service.Service, "read", reading)


@pytest.mark.usefixtures("in_small_ranges")
@pytest.mark.parametrize("size_of_more", [0, 1000, -1000, None])
def test_a_file_that_changes_between_two_ranges_is_said_to(
    size_of_more: int | None,
    command: Command,
    memory: Any,
    in_memory: str,
    recorded: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None: it is deleted."""

    def change() -> None:
        if size_of_more is None:
            memory.rm_file(f"/logs/{TRACE}")
        else:
            memory.pipe_file(f"/logs/{TRACE}", bytes(len(recorded[TRACE]) + size_of_more))

    after_the_first_read(monkeypatch, change)
    done = command("analyze", in_memory)
    assert (done.code, done.out) == (11, "")
    message, hint = done.err.splitlines()
    assert message == f"traceview: error: memory://logs/{TRACE}: {CHANGED}"
    assert hint == "hint: read it again when nothing writes it any more"


@pytest.mark.usefixtures("in_small_ranges")
def test_a_version_of_s3_tells_that_a_file_has_changed(
    command: Command, s3: Any, recorded: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in recorded.items():
        s3.put_object(Bucket="bucket", Key=f"logs/{name}", Body=content)
    assert command("analyze", "s3://bucket/logs").code == 0
    other = bytes(len(recorded[TRACE]))
    after_the_first_read(
        monkeypatch, lambda: s3.put_object(Bucket="bucket", Key=f"logs/{TRACE}", Body=other)
    )
    done = command("analyze", "s3://bucket/logs")
    assert (done.code, CHANGED in done.err) == (11, True)


# Silence


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that takes connections and says nothing; a second is long to wait."""
    monkeypatch.setattr(service, "LONGEST_WAIT_S", 1)
    monkeypatch.setattr(service, "_opened", {})
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_store_that_says_nothing_ends_the_command(
    command: Command, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", silent)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    place = "s3://bucket/logs"
    begun = time.monotonic()
    done = command("analyze", place)
    assert (done.code, done.err) == (
        11,
        f"traceview: error: {place}: the store did not answer in time\n",
    )
    assert time.monotonic() - begun < 60


# What gives access

SECRET = "wJalr/XUt+nFEMI"  # a slash, as half of all secrets of AWS have one


@pytest.mark.parametrize(
    "address",
    [
        f"s3://AKIAKEY:{SECRET}@bucket/logs",
        f"s3:/AKIAKEY:{SECRET}@bucket/logs",
        f" s3://AKIAKEY:{SECRET}@bucket/logs",
        f"S3://AKIAKEY:{SECRET}@bucket/report.json",
        f"s3a://AKIAKEY:{SECRET}@bucket/logs",
        f"gs://AKIAKEY:{SECRET}@bucket/logs",
        f"az://AKIAKEY:{SECRET}@container/logs",
        f"https://AKIAKEY:{SECRET}@127.0.0.1:1/logs",
        "s3://AKIAKEY@bucket/logs",
    ],
)
def test_no_message_repeats_a_key(address: str, command: Command, fixtures: Any) -> None:
    logs = str(fixtures / FIXTURE)
    for words in (
        ("analyze", address),
        ("analyze", logs, "--baseline", address),
        ("analyze", logs, address),
        ("analyze", logs, "-o", address),
        ("report", logs, "-o", address),
        ("compare", logs, address),
        ("gate", logs, "--baseline", address),
        ("watch", address, "--once"),
        (address,),
    ):
        done = command(*words)
        assert done.code not in (0, 1)
        for part in ("AKIA", "wJalr", "nFEMI"):
            assert part not in done.out + done.err, done.err


def test_an_access_point_and_a_container_of_an_account_are_no_keys() -> None:
    for address in (
        "s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/mine/logs",
        "abfs://container@account.dfs.core.windows.net/logs",
    ):
        assert not isinstance(location_of(address), Path)
