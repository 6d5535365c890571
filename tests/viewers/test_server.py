"""A viewer serves the run to this machine alone, and its process ends with the command."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.viewers.fake_xprof import SERVER, write_fake
from traceview.base.errors import UsageError, ViewerError
from traceview.export import viewers
from traceview.export.viewer_server import RunCopy, copied_run, free_port, serving
from traceview.trace.reading.locate import find_runs


@pytest.fixture
def copy(fixtures: Path) -> Iterator[RunCopy]:
    (run,) = find_runs(fixtures / "custom-loop-2")
    with copied_run(run) as copy:
        yield copy


def test_a_server_of_before_2_21_is_started_by_its_function(
    copy: RunCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = SERVER.replace("def main():", "def launch_server(logdir, port):")
    older = older.replace('int(sys.argv[sys.argv.index("--port") + 1])', "port")
    older = older.replace('Path(sys.argv[sys.argv.index("--logdir") + 1])', "Path(sys.argv[2])")
    assert "--" not in older
    monkeypatch.syspath_prepend(write_fake(tmp_path, server=older))
    with serving("xprof", copy, free_port(0)) as served:
        assert served.process.poll() is None


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


def only(*names: str) -> Callable[[str], object | None]:
    """A search for modules that finds these."""
    return lambda name: name if name in names else None


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewers, "find_spec", only())
    with pytest.raises(UsageError) as missing:
        viewers.xprof_module()
    assert missing.value.hint == "pip install 'traceview[xprof]'"
    with pytest.raises(UsageError, match="TensorBoard is not installed"):
        viewers.check_tensorboard()
    monkeypatch.setattr(viewers, "find_spec", only("tensorboard"))
    with pytest.raises(UsageError, match="not its plugin"):
        viewers.check_tensorboard()
    monkeypatch.setattr(viewers, "find_spec", only("tensorboard", "tensorboard_plugin_profile"))
    viewers.check_tensorboard()
    assert viewers.xprof_module() == "tensorboard_plugin_profile"
