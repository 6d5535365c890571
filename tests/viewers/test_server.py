"""A viewer serves the run to this machine alone, and its process ends with the command."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.viewers.fake_xprof import write_fake
from traceview.base.errors import UsageError, ViewerError
from traceview.export import viewers
from traceview.export.viewers import RunCopy, check_installed, copied_run, free_port, serving
from traceview.trace.reading.locate import find_runs


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
