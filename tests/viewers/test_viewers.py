"""A viewer gets a copy of a run in the layout that it expects, serves it to this machine alone, and leaves nothing behind."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.viewers.fake_xprof import write_fake
from tests.viewers.snapshot import snapshot
from traceview.base.errors import UsageError, ViewerError
from traceview.export import viewers
from traceview.export.viewers import RunCopy, check_installed, copied_run, free_port, serving
from traceview.trace.reading.locate import find_runs


@pytest.mark.parametrize("name", ["two\nlines", "a b&c#d?", "ядро", "%2e%2e", "x" * 200, "..."])
def test_names_that_an_address_cannot_hold_become_plain(
    name: str, fixtures: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "plugins" / "profile" / name
    folder.mkdir(parents=True)
    (source,) = (fixtures / "custom-loop-2").rglob("*.xplane.pb")
    for host in ("ho st", "ho\tst"):
        shutil.copy(source, folder / f"{host}.xplane.pb")
    (run,) = find_runs(tmp_path)
    with copied_run(run) as copy:
        assert copy.run.isascii()
        assert 0 < len(copy.run) <= 100
        assert not set(copy.run) & set(" \n&#?%/")
        assert not copy.run.startswith(".")
        assert len({path.name for path in copy.files}) == 2
        assert {path.read_bytes() for path in copy.files} == {source.read_bytes()}


@pytest.mark.parametrize("hosts", [("b#", "b#_2", "b_"), ("Host", "host"), ("a b", "a b_1", "a_b")])
def test_no_file_of_a_run_takes_the_name_of_another(
    hosts: tuple[str, ...], fixtures: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "plugins" / "profile" / "run"
    folder.mkdir(parents=True)
    (source,) = (fixtures / "custom-loop-2").rglob("*.xplane.pb")
    for number, host in enumerate(hosts):
        (folder / f"{host}.xplane.pb").write_bytes(source.read_bytes() + bytes(2 * number))
    before = snapshot(tmp_path)
    (run,) = find_runs(tmp_path)
    with copied_run(run) as copy:
        assert len({path.name.casefold() for path in copy.files}) == len(run.paths)
        assert [path.read_bytes() for path in copy.files] == [p.read_bytes() for p in run.paths]
        copy.files[0].with_name("host.op_stats.pb").write_bytes(b"cache")
        folder = copy.logdir.parent
        assert copy.logdir not in copy.scratch.parents
    assert not folder.exists()
    assert snapshot(tmp_path) == before


def test_files_are_copied_where_there_are_no_links(
    fixtures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(Path, "symlink_to", refuse)
    (run,) = find_runs(fixtures / "custom-loop-2")
    with copied_run(run) as copy:
        assert not copy.files[0].is_symlink()
        assert copy.files[0].read_bytes() == run.paths[0].read_bytes()


# Servers


@pytest.fixture
def copy(fixtures: Path) -> Iterator[RunCopy]:
    (run,) = find_runs(fixtures / "custom-loop-2")
    with copied_run(run) as copy:
        yield copy


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ("raise ImportError('no such wheel')", "XProf ended with 1 .*: ImportError: no such wheel"),
        ("def main(): raise SystemExit(3)", "XProf ended with 3 .*: it printed nothing"),
    ],
)
def test_a_viewer_that_ends_shows_its_last_line(
    server: str, message: str, copy: RunCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(write_fake(tmp_path, server=server))
    with pytest.raises(ViewerError, match=message), serving("xprof", copy, free_port(0)):
        pass


def test_a_viewer_that_ends_later_is_an_error(
    copy: RunCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(write_fake(tmp_path))
    with serving("xprof", copy, free_port(0)) as served:
        served.process.kill()
        with pytest.raises(ViewerError, match="XProf ended: flood of messages"):
            served.wait()


def test_a_port_that_is_taken_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) > port
    assert free_port(port) == port


def test_nothing_lies_beyond_the_last_port(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(UsageError, match="--port 65535"):
        free_port(65535)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for installed, viewer, message in (
        ((), "xprof", "XProf is not"),
        (("tensorboard",), "tensorboard", "XProf is not"),
        (("xprof",), "tensorboard", "TensorBoard is not"),
    ):
        monkeypatch.setattr(viewers, "find_spec", dict.fromkeys(installed, "found").get)
        with pytest.raises(UsageError, match=message) as missing:
            check_installed(viewer)
        assert "traceview[xprof]" in (missing.value.hint or "")
    check_installed("xprof")
