"""`gs://` and `az://` work for reading and writing, against stand-ins for both on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command import Command
from tests.store.conftest import FIXTURE, TRACE
from tests.store.object_server import AzureHandler, GoogleHandler, Objects, served
from traceview.store import service

pytestmark = [pytest.mark.cloud, pytest.mark.usefixtures("no_terminal")]

_HANDLERS = {"gs": GoogleHandler, "az": AzureHandler}


@pytest.fixture
def objects(recorded: dict[str, bytes]) -> Objects:
    """A bucket with the recorded log directory."""
    return Objects({f"logs/{name}": content for name, content in recorded.items()})


@pytest.fixture(params=list(_HANDLERS))
def bucket(
    request: pytest.FixtureRequest, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The address of the bucket in a store of either kind."""
    handler = type("Handler", (_HANDLERS[request.param],), {"objects": objects})
    with served(handler) as address:
        account = f"AccountName=account;AccountKey=a2V5;BlobEndpoint={address}/account;"
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
        monkeypatch.setenv(
            "AZURE_STORAGE_CONNECTION_STRING", f"DefaultEndpointsProtocol=http;{account}"
        )
        monkeypatch.setattr(service, "_opened", {})
        yield f"{request.param}://bucket"


def results_of(command: Command, logdir: str) -> Any:
    done = command("analyze", logdir, "--format", "json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    return report["results"], report["findings"]


@pytest.mark.usefixtures("in_small_ranges")
def test_a_report_is_the_local_one_and_is_read_in_ranges(
    command: Command, bucket: str, objects: Objects, fixtures: Path
) -> None:
    assert results_of(command, f"{bucket}/logs") == results_of(command, str(fixtures / FIXTURE))
    assert len(objects.ranges) > 5
    assert results_of(command, bucket) == results_of(command, f"{bucket}/logs/{TRACE}")


def test_nothing_there(command: Command, bucket: str) -> None:
    other = bucket.replace("bucket", "other-bucket")
    for place in (f"{bucket}/none", f"{other}/logs"):
        done = command("analyze", place)
        assert (done.code, done.out) == (3, "")
        assert done.err == f"traceview: error: {place}: no such file or directory\n"


def test_without_rights(command: Command, bucket: str, objects: Objects, fixtures: Path) -> None:
    objects.is_closed = True
    for words in (
        ("analyze", f"{bucket}/logs"),
        ("show", "gaps", str(fixtures / FIXTURE), "-o", f"{bucket}/gaps.csv"),
    ):
        done = command(*words)
        assert (done.code, done.out) == (11, "")
        message, hint = done.err.splitlines()
        assert message.startswith(f"traceview: error: {words[-1]}: access denied: ")
        assert hint.startswith("hint: ")
        assert "a2V5" not in done.err


def test_tables_and_reports_are_written(
    command: Command, bucket: str, objects: Objects, fixtures: Path, tmp_path: Path
) -> None:
    logs = str(fixtures / FIXTURE)
    for place in (str(tmp_path), f"{bucket}/out"):
        assert command("show", "gaps", logs, "-o", f"{place}/gaps.csv").code == 0
        done = command("report", logs, "-o", f"{place}/report")
        assert done.code == 0, done.err
    written = {name for name in objects.content if name.startswith("out/")}
    names = ("report.html", "report.json", "report.md")
    assert written == {"out/gaps.csv", *(f"out/report/{name}" for name in names)}
    for name in written:
        assert objects.content[name] == (tmp_path / name.removeprefix("out/")).read_bytes()
    again = command("show", "gaps", logs, "-o", f"{bucket}/out/gaps.csv")
    assert (again.code, "--force replaces it" in again.err) == (6, True)
    assert command("report", logs, "-o", f"{bucket}/out/report", "--force").code == 0
