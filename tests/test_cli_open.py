"""`report --open` shows a run, prints its address and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import unquote, urlparse
from urllib.request import Request, urlopen

import pytest

from tests.command import Command
from tests.viewers.fake_xprof import write_fake
from tests.viewers.snapshot import snapshot
from traceview.export import viewers
from traceview.export.viewers import PERFETTO, PERFETTO_PORT, copied_run, free_port, serving
from traceview.trace.reading.locate import find_runs

pytestmark = pytest.mark.usefixtures("no_terminal")
ROOT = Path(__file__).resolve().parent.parent


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
    fake = write_fake(tmp_path / "fake")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    path = os.pathsep.join([str(fake), str(ROOT)])
    command = ["report", str(logdir), "--open", viewer, *options]
    environment = {name: value for name, value in os.environ.items() if "DISPLAY" not in name}
    environment.pop("BROWSER", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "traceview", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, "PYTHONPATH": path, "TMPDIR": str(temporary)},
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip(), temporary
    finally:
        process.kill()
        process.communicate()


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
        assert process.communicate(timeout=20) == ("", "")
        assert process.returncode == code
        assert list(temporary.iterdir()) == []
        with pytest.raises(OSError, match="refused"):
            urlopen(f"{base}/data/plugin/profile/runs")


def test_a_report_is_served_to_this_machine_alone(fixtures: Path, tmp_path: Path) -> None:
    with served(fixtures / "custom-loop-2", tmp_path, "report", "--port", "0") as (
        process,
        address,
        temporary,
    ):
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
        out, err = process.communicate(timeout=20)
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
        process.communicate(timeout=20)
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
