"""A log directory in a store is read, and reports are written there, as on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import Command
from tests.store.conftest import FIXTURE, TRACE
from traceview.store import service

pytestmark = [pytest.mark.cloud, pytest.mark.usefixtures("no_terminal")]


def report_of(command: Command, logdir: str) -> Any:
    """The report as data, without the place that was read."""
    done = command("analyze", logdir, "--format", "json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    run = report["source"]["run"].rpartition("/")[2]
    return {**report, "command": None, "source": {**report["source"], "logdir": "", "run": run}}


@pytest.fixture
def local_report(command: Command, fixtures: Path) -> Any:
    return report_of(command, str(fixtures / FIXTURE))


# Reading


def test_a_report_from_s3_is_the_local_one(
    command: Command, s3: Any, recorded: dict[str, bytes], local_report: Any
) -> None:
    for name, content in recorded.items():
        s3.put_object(Bucket="bucket", Key=f"logs/{name}", Body=content)
    for place in ("s3://bucket", "s3://bucket/logs", f"s3://bucket/logs/{TRACE}"):
        assert report_of(command, place) == local_report
    runs = command("show", "runs", "s3://bucket/logs", "--format", "json")
    assert json.loads(runs.out)["rows"][0]["bytes"] == len(recorded[TRACE])


def test_only_the_newest_run_is_looked_into(
    command: Command, memory: Any, recorded: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in ("2026_01_01_00_00_00", "2026_01_03_00_00_00", "2026_01_02_00_00_00"):
        memory.pipe_file(f"/logs/plugins/profile/{run}/host-a.xplane.pb", recorded[TRACE])
    memory.pipe_file("/logs/plugins/profile/2026_01_04_00_00_00/host-a.xplane.pb", b"<html>")
    read: list[str] = []
    ask = service.Service.read

    def watched(self: service.Service, path: str, *arguments: Any) -> bytes:
        read.append(path.split("/")[4])
        return ask(self, path, *arguments)

    monkeypatch.setattr(service.Service, "read", watched)
    done = command("analyze", "memory://logs", "--format", "json")
    assert json.loads(done.out)["source"]["run"] == "2026_01_03_00_00_00"
    assert set(read) == {"2026_01_03_00_00_00", "2026_01_04_00_00_00"}
    (newer,) = [
        problem
        for problem in json.loads(done.out)["capture"]["problems"]
        if problem["code"] == "newer-run-unreadable"
    ]
    assert "2026_01_04_00_00_00" in newer["recorded"]


# Writing


def test_a_report_is_written_to_s3_and_read_again(
    command: Command, s3: Any, fixtures: Path, tmp_path: Path
) -> None:
    logs = str(fixtures / FIXTURE)
    done = command("report", logs, "-o", "s3://bucket/reports/today")
    assert done.code == 0, done.err
    assert command("report", logs, "-o", str(tmp_path / "report")).code == 0
    keys = [row["Key"] for row in s3.list_objects_v2(Bucket="bucket")["Contents"]]
    names = ["report.html", "report.json", "report.md"]
    assert sorted(keys) == [f"reports/today/{name}" for name in names]
    for name in names:
        stored = s3.get_object(Bucket="bucket", Key=f"reports/today/{name}")["Body"].read()
        assert stored == (tmp_path / "report" / name).read_bytes()
    again = command("report", logs, "-o", "s3://bucket/reports/today")
    assert (again.code, again.err) == (
        6,
        "traceview: error: s3://bucket/reports/today/report.html exists\nhint: --force replaces it\n",
    )
    shown = command("analyze", "s3://bucket/reports/today/report.json")
    assert shown.code == 0, shown.err
    assert "wait 41.2 of 65.4 ms (63%) for input" in shown.out


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("analyze", "report.json"),
        ("show gaps", "gaps.csv"),
        ("report --format html", "report.html"),
        ("export", "trace.pftrace"),
    ],
)
def test_a_file_in_a_store_is_the_local_one(
    words: str, name: str, command: Command, memory: Any, fixtures: Path, tmp_path: Path
) -> None:
    logs = str(fixtures / FIXTURE)
    for place in (str(tmp_path), "memory://out"):
        done = command(*words.split(), logs, "-o", f"{place}/{name}")
        assert done.code == 0, done.err
    assert memory.cat_file(f"/out/{name}") == (tmp_path / name).read_bytes()
    again = command(*words.split(), logs, "-o", f"memory://out/{name}")
    assert (again.code, "--force" in again.err) == (6, True)
    assert command(*words.split(), logs, "-o", f"memory://out/{name}", "--force").code == 0


# What goes wrong


def test_without_credentials(command: Command, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    done = command("analyze", "s3://bucket/logs")
    assert (done.code, done.out) == (11, "")
    message, hint = done.err.splitlines()
    assert message == (
        "traceview: error: s3://bucket/logs: access denied: Unable to locate credentials"
    )
    assert hint.startswith("hint: run aws configure")


@pytest.mark.parametrize(
    "command_line", ["analyze", "compare s3://bucket", "watch --once --every 1s"]
)
@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("s3://bucket/none", "no such file or directory"),
        ("s3://bucket/none/report.json", "no such file"),
        ("s3://bucket", "no *.xplane.pb below it"),
        ("s3://no-such-bucket", "no such file or directory"),
        ("s3://no-such-bucket/logs", "no such file or directory"),
        ("s3://no-such-bucket/report.json", "no such file"),
    ],
)
def test_nothing_there_in_s3(
    command_line: str, place: str, said: str, command: Command, s3: Any
) -> None:
    done = command(*command_line.split(), place)
    assert done.code == 3
    if command_line == "analyze":
        assert f"traceview: error: {place}: {said}" in done.err


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ftp://host/logs", "ftp://: no such kind of store"),
        ("s3://", "s3://: names no bucket"),
        ("https://host/logs", "https://: no such kind of store"),
        ("s3://bucket/../logs", "a store has no folder .."),
    ],
)
def test_addresses_of_nothing(address: str, said: str, command: Command) -> None:
    done = command("analyze", address)
    assert (done.code, said in done.err) == (2, True)


# Hostile stores


def test_names_of_files_reach_no_terminal(
    command: Command, memory: Any, recorded: dict[str, bytes]
) -> None:
    run = "/logs/plugins/profile/\x1b[2Jrun\n"
    memory.pipe_file(f"{run}/h\x1b]0;x\x07.xplane.pb", recorded[TRACE])
    for words in ("show runs", "analyze", "analyze --full"):
        done = command(*words.split(), "memory://logs")
        assert done.code == 0, done.err
        assert not {"\x1b", "\x07"} & set(done.out + done.err)


class Endless:
    """A store in which each folder holds others without an end, and one file whose size is a lie."""

    def __init__(self, folders: int) -> None:
        self.folders = folders

    def info(self, path: str) -> dict[str, Any]:
        return {"name": path, "type": "directory"}

    def ls(self, path: str, detail: bool) -> list[dict[str, Any]]:
        folder = path.removeprefix("memory://").rstrip("/")
        names = [f"{folder}/{number}" for number in range(self.folders)]
        names += [f"{folder}/..", f"{folder}/", f"{folder}/a/b", "/elsewhere", f"{folder}/\0"]
        return [{"name": name, "type": "directory", "size": 0} for name in names]

    def invalidate_cache(self) -> None:
        pass

    def _strip_protocol(self, path: str) -> str:
        return path.removeprefix("memory://").rstrip("/")


@pytest.mark.parametrize(
    ("folders", "said"),
    [(1, "no *.xplane.pb below it"), (200, "more than 10,000 folders below it")],
)
def test_folders_without_an_end(
    folders: int, said: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_filesystem", lambda *_: Endless(folders))
    done = command("analyze", "memory://logs")
    assert (done.code, said in done.err) == (3, True)


@pytest.mark.parametrize("claimed", [10**15, 10])
def test_a_size_that_is_a_lie(
    claimed: int, command: Command, in_memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = service._entry

    def lying(row: Any) -> service.Entry:
        honest = entry(row)
        return honest if honest.is_folder else service.Entry(claimed)

    monkeypatch.setattr(service, "_entry", lying)
    done = command("analyze", in_memory)
    assert done.code in (4, 11)
    assert done.err.count("\n") <= 2
    assert "Traceback" not in done.err
