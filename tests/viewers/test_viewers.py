"""A viewer gets a copy of a run in the layout that it expects, serves it to this machine alone, and leaves nothing behind."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.parse import unquote, urlparse
from urllib.request import Request, urlopen

import pytest

from tests.capture.conftest import started
from tests.command import Command
from traceview.base.errors import UsageError, ViewerError
from traceview.export import viewers
from traceview.export.viewers import (
    PERFETTO,
    PERFETTO_PORT,
    RunCopy,
    check_installed,
    copied_run,
    free_port,
    serving,
)
from traceview.trace.reading.locate import find_runs

pytestmark = pytest.mark.usefixtures("no_terminal")
ROOT = Path(__file__).resolve().parents[2]

# A stand-in for XProf, for tests where it is not installed

SERVER: Final = """
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def _get_wildcard_address(port):
    return "0.0.0.0"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        logdir = Path(sys.argv[sys.argv.index("--logdir") + 1])
        runs = [path.name for path in (logdir / "plugins" / "profile").iterdir()]
        for path in (logdir / "plugins" / "profile").rglob("*.xplane.pb"):
            path.with_name("cache.pb").write_bytes(path.read_bytes()[:1])
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(runs if self.path.endswith("/runs") else self.server.server_address[0]).encode())

    def log_message(self, *arguments):
        pass


def main():
    print("flood of messages", file=sys.stderr)
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer((_get_wildcard_address(port), port), Handler).serve_forever()
"""


def write_fake(folder: Path, server: str = SERVER) -> Path:
    """A module `xprof` in a folder that can stand on the path of Python."""
    (folder / "xprof").mkdir(parents=True)
    (folder / "xprof" / "__init__.py").touch()
    (folder / "xprof" / "server.py").write_text(server, encoding="utf-8")
    return folder


def snapshot(folder: Path) -> dict[str, tuple[str, int]]:
    """The hash and the time of change of each file, and the time of each folder."""
    return {
        path.relative_to(folder).as_posix(): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.stat().st_mtime_ns,
        )
        for path in [folder, *folder.rglob("*")]
    }


# Copies of runs


@pytest.mark.parametrize(
    ("name", "hosts"),
    [
        ("two\nlines", ("b#", "b#_2", "b_")),
        ("a b&c#d?", ("Host", "host")),
        ("x" * 200, ("a b", "a b_1", "a_b")),
        ("ядро", ("ho st", "ho\tst")),
        ("...", ("a",)),
    ],
)
def test_names_become_plain_and_no_file_of_a_run_takes_that_of_another(
    name: str, hosts: tuple[str, ...], fixtures: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "plugins" / "profile" / name
    folder.mkdir(parents=True)
    (source,) = (fixtures / "custom-loop-2").rglob("*.xplane.pb")
    for number, host in enumerate(hosts):
        (folder / f"{host}.xplane.pb").write_bytes(source.read_bytes() + bytes(2 * number))
    before = snapshot(tmp_path)
    (run,) = find_runs(tmp_path)
    with copied_run(run) as copy:
        assert copy.run.isascii()
        assert 0 < len(copy.run) <= 100
        assert not set(copy.run) & set(" \n&#?%/")
        assert not copy.run.startswith(".")
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
    monkeypatch.syspath_prepend(write_fake(tmp_path, server))
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


def test_a_port_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) > port
    assert free_port(port) == port

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


# `report --open` shows a run, prints its address and leaves nothing behind


def test_a_report_is_written_and_shown(
    command: Command, fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    def open_page(address: str) -> bool:
        shown.append(address)
        return True

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", open_page)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = command("report", str(fixtures / "custom-loop-2"), "--open", "report")
    assert (done.code, done.err) == (0, "")
    assert shown == [done.out.strip()]
    path = Path(unquote(urlparse(done.out.strip()).path))
    assert (path.parent.parent, path.name) == (tmp_path, "report.html")
    assert "2026_11_21_03_25_11" in path.read_text(encoding="utf-8")


def test_what_cannot_be_shown(
    command: Command, fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = str(fixtures / "custom-loop-2")
    assert command("report", str(tmp_path), "--open", "xprof").code == 3
    assert command("report", loop, "--run", "none", "--open", "report").code == 3
    monkeypatch.setattr(viewers, "find_spec", lambda _: None)
    for viewer in ("xprof", "tensorboard"):
        done = command("report", loop, "--open", viewer)
        assert (done.code, done.out) == (2, "")
        assert "pip install" in done.err
        assert "traceview[xprof]" in done.err


@contextmanager
def served(
    logdir: Path, tmp_path: Path, viewer: str, *options: str
) -> Iterator[tuple[subprocess.Popen[str], str, Path]]:
    """`report --open` a viewer, XProf a stand-in: its process, the address, the folder of temporary files."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    path = os.pathsep.join([str(write_fake(tmp_path / "fake")), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(temporary)}
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "traceview", "report", str(logdir), "--open", viewer, *options]
    with started(tmp_path, *command, environment=environment) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip(), temporary


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGHUP, 129)],
)
def test_a_viewer_is_served_until_a_signal(
    number: signal.Signals, code: int, fixtures: Path, tmp_path: Path
) -> None:
    logdir = tmp_path / "logs"
    shutil.copytree(fixtures / "custom-loop-2", logdir)
    before = snapshot(logdir)
    with served(logdir, tmp_path, "xprof", "--port", "0") as (process, address, temporary):
        assert address.endswith("/?run=2026_11_21_03_25_11")
        base = f"http://127.0.0.1:{urlparse(address).port}"
        with urlopen(f"{base}/data/plugin/profile/runs") as answer:
            assert answer.read() == b'["2026_11_21_03_25_11"]'
        # The viewer has written beside its copy, and not beside the trace.
        assert len(list(temporary.rglob("cache.pb"))) == 1
        assert snapshot(logdir) == before
        # The signal comes once all is said: it serves before it looks for a display.
        assert process.stderr is not None
        assert [process.stderr.readline(), process.stderr.readline()] == [
            "traceview: XProf shows a copy of run 2026_11_21_03_25_11; Ctrl-C stops\n",
            "traceview: no display to open it on\n",
        ]
        process.send_signal(number)
        assert process.communicate(timeout=60) == ("", "")
        assert process.returncode == code
        assert list(temporary.iterdir()) == []
        with pytest.raises(OSError, match="refused"):
            urlopen(f"{base}/data/plugin/profile/runs")


def test_a_report_is_served_to_this_machine_alone(fixtures: Path, tmp_path: Path) -> None:
    logs, options = fixtures / "custom-loop-2", ("--port", "0")
    with served(logs, tmp_path, "report", *options) as (process, address, temporary):
        base = f"http://127.0.0.1:{urlparse(address).port}"
        with urlopen(f"{base}/?x=1") as answer:
            assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
            assert b"2026_11_21_03_25_11" in answer.read()
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{base}/etc/passwd")
        with pytest.raises(HTTPError, match="403"):
            urlopen(Request(base, headers={"Host": f"evil.example:{urlparse(address).port}"}))
        assert list(temporary.iterdir()) == []
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "")
        assert err.startswith("traceview: serving the report; Ctrl-C stops\n")


def test_perfetto_reads_the_trace_from_this_machine_alone(fixtures: Path, tmp_path: Path) -> None:
    with served(fixtures / "custom-loop-2", tmp_path, "perfetto") as (process, address, temporary):
        page, _, trace = address.partition("/#!/?url=")
        assert (page, trace) == (PERFETTO, f"http://127.0.0.1:{PERFETTO_PORT}/trace.pftrace")
        with urlopen(trace) as answer:
            assert answer.headers["Access-Control-Allow-Origin"] == PERFETTO
            content = answer.read()
        assert len(content) == int(answer.headers["Content-Length"]) > 1000
        with pytest.raises(HTTPError, match="403"):
            urlopen(Request(trace, headers={"Host": f"evil.example:{PERFETTO_PORT}"}))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert (process.returncode, list(temporary.iterdir())) == (0, [])


@pytest.mark.xprof
def test_xprof_shows_the_overview(fixtures: Path, tmp_path: Path) -> None:
    logdir = tmp_path / "logs"
    shutil.copytree(fixtures / "slow-input-2", logdir)
    before = snapshot(logdir)
    (run,) = find_runs(logdir)
    with copied_run(run) as copy, serving("xprof", copy, free_port(0)) as viewer:
        base, _, query = viewer.address.partition("/?")
        page = f"{base}/data/plugin/profile/data?{query}&tag=overview_page&host=host-a"
        with urlopen(page) as answer:
            assert answer.status == 200
            assert len(answer.read()) > 1000
    assert snapshot(logdir) == before
