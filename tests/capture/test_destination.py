from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from traceview.base.errors import CaptureError
from traceview.capture.record.destination import KEPT, Destination, RunChoice, has_trace
from traceview.capture.sidecar.file import SCHEMA_VERSION, Sidecar


def prepared(out: Path) -> Destination:
    destination = Destination(out)
    destination.prepare()
    return destination


def written(destination: Destination, content: str = "trace") -> Path:
    folder = destination.private / "profile" / "plugins" / "profile" / "run"
    folder.mkdir(parents=True)
    (folder / "node.xplane.pb").write_text(content, encoding="utf-8")
    destination.sidecar.write_text("{}", encoding="utf-8")
    return destination.written(destination.private / "profile")


def kept(destination: Destination, content: str = "trace", suffix: str = "") -> Path:
    """The trace in its run."""
    choice = RunChoice(destination, "together", print)
    choice.suffix = suffix
    return choice.keep(written(destination, content))


@pytest.mark.parametrize("has_links", [True, False])
def test_a_named_run_is_shared_and_nothing_in_it_replaced(
    has_links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unlinked(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    if not has_links:
        monkeypatch.setattr("os.link", unlinked)
    first, second, third = (prepared(tmp_path) for _ in range(3))
    trace = kept(first, "one")
    other = kept(second, "two", suffix="_w1")
    assert other.parent == trace.parent
    assert other.name == "node_w1.xplane.pb"
    with pytest.raises(CaptureError, match="already exists and is not replaced") as raised:
        kept(third, "three")
    assert str(third.private) in (raised.value.hint or "")
    assert trace.read_text("utf-8") == "one"
    assert has_trace(third.private)


def test_a_file_where_the_run_should_be(tmp_path: Path) -> None:
    destination = prepared(tmp_path)
    (tmp_path / "plugins" / "profile").mkdir(parents=True)
    (tmp_path / "plugins" / "profile" / "together").touch()
    with pytest.raises(CaptureError, match="File exists") as raised:
        kept(destination)
    assert str(destination.private) in (raised.value.hint or "")


@pytest.fixture
def taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of this host in the run that is chosen."""
    monkeypatch.setattr("socket.gethostname", lambda: "node")
    trace = tmp_path / "plugins" / "profile" / "together" / "node.xplane.pb"
    trace.parent.mkdir(parents=True)
    trace.touch()
    return trace


def test_a_trace_of_another_program_takes_no_sidecar(taken: Path, tmp_path: Path) -> None:
    os.utime(taken, (1, 1))
    destination = prepared(tmp_path)
    with pytest.raises(CaptureError, match="already exists and is not replaced"):
        kept(destination)
    assert [*taken.parent.iterdir()] == [taken]
    assert destination.sidecar.exists()


@pytest.mark.parametrize("name", ["node.xplane.pb", "node.traceview.json"])
def test_a_process_that_runs_beside_keeps_nobody_out(
    name: str, taken: Path, tmp_path: Path
) -> None:
    """Nor does one that has moved its sidecar and not yet its trace."""
    taken.rename(taken.with_name(name))
    RunChoice(Destination(tmp_path), "together", print).check()
    for number in (2, 3):
        trace = kept(prepared(tmp_path))
        assert trace.name == f"node_p{number}.xplane.pb"
        KEPT.remove(trace)


WORKER = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}


@pytest.mark.parametrize("whose", ["earlier", "own", "a worker's"])
def test_any_other_file_does(
    whose: str, taken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.utime(taken, None if whose == "own" else (1, 1))
    if whose == "own":
        KEPT.add(taken)
    choice = RunChoice(Destination(tmp_path), "together", print)
    if whose == "a worker's":
        taken.rename(taken.with_name("node_w1.xplane.pb"))
        choice.check()
        monkeypatch.setenv("TF_CONFIG", json.dumps(WORKER))
    with pytest.raises(CaptureError, match="already exists and is not replaced"):
        choice.check()


@pytest.mark.parametrize(
    ("out", "why"),
    [("file/b", "Not a directory"), ("file", "Not a directory"), ("new", "Permission")],
)
def test_the_output_folder_is_checked_first(
    out: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    mkdir = Path.mkdir

    def refused(path: Path, *arguments: Any, **options: Any) -> None:
        if path.parent.name == "new":
            raise PermissionError(13, "Permission denied")
        mkdir(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(CaptureError, match=why):
        prepared(tmp_path / out)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_folders_around_the_output_folder_are_made_and_removed_if_nothing_is_kept(
    tmp_path: Path,
) -> None:
    (tmp_path / "here").mkdir()
    destination = prepared(tmp_path / "here" / "a" / "b")
    assert destination.private.parent == tmp_path / "here" / "a" / "b"
    destination.clean()
    assert list((tmp_path / "here").iterdir()) == []


def test_a_folder_that_another_capture_removes_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = Path.mkdir

    def removed_once(path: Path, *arguments: Any, **options: Any) -> None:
        if path.parent.name == "new":
            monkeypatch.setattr(Path, "mkdir", mkdir)
            (tmp_path / "new").rmdir()
        mkdir(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", removed_once)
    assert prepared(tmp_path / "new").private.is_dir()


def test_a_disk_that_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceview.capture.record.destination.FREE_BYTES", 1 << 62)
    with pytest.raises(CaptureError, match="MiB are free"):
        prepared(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("host", "pid", "age_s", "is_left"),
    [
        pytest.param(None, os.getpid(), 99_999, False, id="this process"),
        (None, 2**22 + 1, 0, True),
        ("elsewhere", 1, 0, False),
        ("elsewhere", 1, 99_999, True),
        (None, "?", 0, False),
        (None, 2**80, 99_999, True),
    ],
)
def test_a_capture_is_left_behind_if_nobody_runs_it(
    host: str | None, pid: object, age_s: float, is_left: bool, tmp_path: Path
) -> None:
    other = prepared(tmp_path)
    sidecar = Sidecar()
    sidecar.add("process", {"host": host or socket.gethostname(), "pid": pid})
    sidecar.write(other.sidecar)
    then = time.time() - age_s
    os.utime(other.private, (then, then))
    assert prepared(tmp_path).left_behind() == ([other.private] if is_left else [])


def test_where_workers_met_a_day_ago_is_left_behind(tmp_path: Path) -> None:
    met = [tmp_path / f".traceview-cluster-{number}" for number in range(2)]
    for folder in met:
        folder.mkdir()
        (folder / "1").touch()
    old_s = time.time() - 86_500
    os.utime(met[0], (old_s, old_s))
    assert prepared(tmp_path).left_behind() == met[:1]


def test_a_trace_must_be_one(tmp_path: Path) -> None:
    destination = prepared(tmp_path)
    with pytest.raises(CaptureError, match="0 traces"):
        destination.written(destination.private)
    with pytest.raises(CaptureError):
        written(destination, "")


def test_the_sidecar_is_written_as_a_whole(tmp_path: Path) -> None:
    path, sidecar = tmp_path / "node.traceview.json", Sidecar()
    sidecar.add("window", {"asked": [1, 2]})
    sidecar.write(path)
    sidecar.add("window", {"got": None})
    sidecar.add("host", {"path": Path("x"), "odd": "\udcff"})
    sidecar.state = "saved"
    sidecar.write(path)
    assert [path.name for path in tmp_path.iterdir()] == ["node.traceview.json"]
    assert json.loads(path.read_text("utf-8")) == {
        "schema_version": SCHEMA_VERSION,
        "state": "saved",
        "window": {"asked": [1, 2], "got": None},
        "host": {"path": "x", "odd": "?"},
    }
