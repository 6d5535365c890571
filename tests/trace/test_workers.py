"""Several processes read the files of hosts: the report is that of one process, whatever becomes of a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.bench_trace import START_NS, Shape, trace_bytes, varint
from scripts.scenarios import SCENARIOS
from scripts.shapes import write_hosts
from tests.command import Command
from tests.trace.test_parts import report_of
from traceview.base.errors import StoreError, TraceFormatError, WorkerError
from traceview.report.build import analyze
from traceview.report.saved import to_json
from traceview.trace.model import Trace
from traceview.trace.reading import workers
from traceview.trace.reading.load import load

ROOT = Path(__file__).resolve().parents[2]
OF_SEVERAL_HOSTS = sorted(
    name for name in SCENARIOS if "host" in name or "cluster" in name or "clock" in name
)


def loaded_by_processes(logdir: Path, *, salvage: bool = False) -> Trace:
    """Read even a single file in a process of its own."""
    trace = load(logdir, salvage=salvage, readers=workers.Workers(2, fewest=1))
    assert not processes_below(os.getpid())
    return trace


def report_by_processes(logdir: Path) -> str:
    return to_json(analyze(loaded_by_processes(logdir)))


def processes_below(parent: int) -> list[int]:
    """The processes that a process has started and that have not ended."""
    children = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, of_parent = status.read_text().rpartition(") ")[2].split()[:2]
        except OSError:
            continue
        if int(of_parent) == parent and state != "Z":
            children.append(int(status.parent.name))
    return children


def eventually(is_true: Callable[[], object]) -> None:
    until = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.fixture
def large_hosts(tmp_path: Path) -> Path:
    """Six hosts that take a while to read."""
    content = b"".join(trace_bytes(Shape(steps=4)))
    folder = tmp_path / "logs" / "plugins" / "profile" / "run"
    folder.mkdir(parents=True)
    for host in range(6):
        path = folder / f"host{host}.xplane.pb"
        path.write_bytes(content.replace(varint(START_NS), varint(START_NS + 1000 * host)))
    return tmp_path / "logs"


# The same report


@pytest.mark.parametrize("name", OF_SEVERAL_HOSTS)
def test_scenarios_of_several_hosts(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    assert report_by_processes(tmp_path) == report_of(tmp_path)


@pytest.mark.shared
def test_a_shared_trace_of_two_hosts(shared_traces: Path) -> None:
    logdir = shared_traces / "bert-8xV100"
    assert report_by_processes(logdir) == report_of(logdir)


@pytest.mark.usefixtures("no_terminal")
@pytest.mark.parametrize(
    "words",
    [
        ("analyze", "--full"),
        ("analyze", "--format", "json"),
        ("report", "--format", "html"),
        ("export", "-o", "-"),
        ("show gaps", "--format", "csv"),
        ("show collectives", "--format", "json"),
    ],
)
def test_commands_on_sixteen_hosts_of_eight_gpus(
    words: tuple[str, ...], command: Command, tmp_path: Path
) -> None:
    logdir = str(write_hosts(tmp_path, 16))
    name, *options = words
    alone = command(*name.split(), logdir, *options)
    assert alone.code == 0, alone.err
    assert command(*name.split(), logdir, *options, "--workers", "3") == alone
    assert not processes_below(os.getpid())


# What cannot be read


def test_an_unreadable_host_is_a_problem_as_in_one_process(tmp_path: Path) -> None:
    logdir = write_hosts(tmp_path, 4)
    files = sorted(logdir.rglob("*.xplane.pb"))
    files[1].write_bytes(b"\x1f\x8b gzip")
    files[2].write_bytes(files[2].read_bytes()[:-1])
    files[3].write_bytes(files[0].read_bytes())
    trace = loaded_by_processes(logdir)
    assert [problem.code for problem in trace.problems] == [
        "damaged-file",
        "damaged-file",
        "duplicate-host-file",
    ]
    assert to_json(analyze(trace)) == report_of(logdir)


def test_all_hosts_damaged_is_the_error_of_the_first(tmp_path: Path) -> None:
    logdir = write_hosts(tmp_path, 3)
    for file in logdir.rglob("*.xplane.pb"):
        file.write_bytes(file.read_bytes()[:-1])
    messages = []
    for reading in (load, loaded_by_processes):
        with pytest.raises(TraceFormatError, match=r"host0\.xplane\.pb: byte \d+: ") as caught:
            reading(logdir)
        messages.append((str(caught.value), caught.value.hint, caught.value.offset))
    assert messages[0] == messages[1]
    assert loaded_by_processes(logdir, salvage=True).device_columns.count


def started_with(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """What a process does before it reads its first file."""
    begin = "import sys; sys.path[:] = sys.argv[1:]\nfrom traceview.trace.reading import worker\n"
    monkeypatch.setattr(workers, "START", f"{begin}{code}\nworker.main()")


def test_an_error_of_a_store_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
from traceview.base.errors import StoreError
def read_host(path, *, salvage):
    raise StoreError(f"{path.name}: denied", hint="log in")
worker.read_host = read_host"""
    started_with(monkeypatch, code)
    with pytest.raises(StoreError, match=r"host\d.xplane.pb: denied") as caught:
        loaded_by_processes(write_hosts(tmp_path, 2))
    assert caught.value.hint == "log in"


# Processes that die

KILLED_WHILE_DECODING = """
import os, signal
from pathlib import Path
from traceview.trace.reading import part
build_table = part.build_table
def killed(plane, lines, origin):
    mark = Path({mark!r})
    if {always} or not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return build_table(plane, lines, origin)
part.build_table = killed"""


def test_the_file_of_a_process_that_is_killed_is_read_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logdir = write_hosts(tmp_path / "logs", 5)
    mark = tmp_path / "killed"
    started_with(monkeypatch, KILLED_WHILE_DECODING.format(mark=str(mark), always=False))
    assert report_by_processes(logdir) == report_of(logdir)
    assert mark.exists()
    assert not processes_below(os.getpid())


def test_a_file_that_ends_two_processes_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logdir = write_hosts(tmp_path / "logs", 2)
    mark = str(tmp_path / "killed")
    started_with(monkeypatch, KILLED_WHILE_DECODING.format(mark=mark, always=True))
    with pytest.raises(
        WorkerError, match=r"host\d.xplane.pb: 2 processes that read it died, the last by SIGKILL"
    ):
        loaded_by_processes(logdir)
    assert not processes_below(os.getpid())


def test_no_process_at_all_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(WorkerError, match=r"no process can be started: .*no-python"):
        loaded_by_processes(write_hosts(tmp_path, 2))


# The command


def running(logdir: Path, output: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "traceview", "analyze", str(logdir), "--workers", "2"]
    process = subprocess.Popen(
        [*command, "-o", str(output)], cwd=ROOT, stderr=subprocess.PIPE, start_new_session=True
    )
    eventually(lambda: len(processes_below(process.pid)) == 2)
    return process


def test_a_killed_process_changes_nothing(large_hosts: Path, tmp_path: Path) -> None:
    process = running(large_hosts, tmp_path / "report.json")
    os.kill(processes_below(process.pid)[0], signal.SIGKILL)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert (tmp_path / "report.json").read_text() == report_of(large_hosts)


def test_ctrl_c_leaves_no_process_and_no_file(large_hosts: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    process = running(large_hosts, output / "report.json")
    readers = processes_below(process.pid)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.decode() == "traceview: interrupted; nothing was written\n"
    assert not [reader for reader in readers if Path(f"/proc/{reader}").exists()]
    assert not list(output.iterdir())


def test_processes_end_with_the_one_that_started_them(large_hosts: Path, tmp_path: Path) -> None:
    process = running(large_hosts, tmp_path / "report.json")
    readers = processes_below(process.pid)
    process.kill()
    process.communicate(timeout=60)
    eventually(lambda: not [reader for reader in readers if is_alive(reader)])


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False
