"""A real scheduler and workers, as processes on this machine, read hosts: the report is that of one process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from socket import socket

import pytest

from scripts.bench_trace import START_NS, Shape, trace_bytes
from scripts.scenarios import SCENARIOS
from scripts.shapes import write_hosts
from scripts.xspace import varint
from tests.capture.conftest import ROOT, environment_with, run_process
from tests.command import Command
from tests.trace.test_parts import FIXTURES, report_of
from traceview.base.errors import WorkerError
from traceview.report.build import analyze
from traceview.report.saved import load_report, to_json
from traceview.trace.model import Trace
from traceview.trace.reading import cluster as reading
from traceview.trace.reading.load import load

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("no_terminal")]

DASK = Path(sys.executable).with_name("dask")
LOCAL = ("--no-dashboard", "--host", "127.0.0.1")
OF_SEVERAL_HOSTS = sorted(
    name for name in SCENARIOS if "host" in name or "cluster" in name or "clock" in name
)


class Cluster:
    """A scheduler and its workers; each worker is one process, without one that would start it again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def begin(self, *options: str) -> None:
        """Start the scheduler."""
        self.scheduler = self._start("scheduler", "--port", "0", *options)
        self.address = self._said(r"Scheduler at:\s+(\S+)")

    def add_worker(self, *options: str) -> subprocess.Popen[bytes]:
        local = ("--no-nanny", "--nthreads", "1", "--local-directory", str(self._folder))
        worker = self._start("worker", self.address, *local, *options)
        self._said(r"(Registered to)")
        return worker

    def _start(self, command: str, *options: str) -> subprocess.Popen[bytes]:
        self._log = self._folder / f"{len(self._processes)}.log"
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                [DASK, command, *options, *LOCAL],
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        return process

    def _said(self, pattern: str) -> str:
        """What the last process has said of itself; waits until it has."""
        until = time.monotonic() + 60
        while True:
            text = self._log.read_text()
            match = re.search(pattern, text)
            if match:
                return match[1]
            assert time.monotonic() < until, text
            assert self._processes[-1].poll() is None, text
            time.sleep(0.05)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two workers, that no test kills."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.begin()
        cluster.add_worker()
        cluster.add_worker()
        yield cluster


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A scheduler without workers."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.begin()
        yield cluster


def loaded_by(cluster: Cluster, logdir: Path) -> Trace:
    return load(logdir, readers=reading.Cluster(cluster.address).read)


def report_by(cluster: Cluster, logdir: Path) -> str:
    return to_json(analyze(loaded_by(cluster, logdir)))


# The same report


@pytest.mark.parametrize("name", OF_SEVERAL_HOSTS)
def test_scenarios_of_several_hosts(name: str, two_workers: Cluster, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    assert report_by(two_workers, tmp_path) == report_of(tmp_path)


def test_commands_on_sixteen_hosts_of_eight_gpus(
    two_workers: Cluster, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths below the folder of the user mean the same where the workers are."""
    write_hosts(tmp_path / "logs", 16)
    monkeypatch.chdir(tmp_path)
    for words in (("analyze", "logs", "--full"), ("show", "gaps", "logs", "--format", "csv")):
        alone = command(*words)
        assert alone.code == 0, alone.err
        assert command(*words, "--workers", two_workers.address) == alone


# What a cluster may lack


def large_hosts(logdir: Path) -> Path:
    content = b"".join(trace_bytes(Shape(steps=4)))
    folder = logdir / "plugins" / "profile" / "run"
    folder.mkdir(parents=True)
    for host in range(8):
        path = folder / f"host{host}.xplane.pb"
        path.write_bytes(content.replace(varint(START_NS), varint(START_NS + 1000 * host)))
    return logdir


def analyzing(logdir: Path, address: str, output: Path) -> subprocess.Popen[bytes]:
    words = ["-m", "traceview", "analyze", str(logdir), "--workers", address, "-o", str(output)]
    return subprocess.Popen([sys.executable, *words], cwd=ROOT, stderr=subprocess.PIPE)


def wait_for(address: str, *, has_work: bool, then: Callable[[], object] = lambda: None) -> None:
    """Until the workers have files to read, or have none any more; then do something, in the middle of the reading."""
    from distributed import Client

    with Client(address) as client:
        until = time.monotonic() + 60
        while any(client.processing().values()) is not has_work:
            assert time.monotonic() < until
            time.sleep(0.001)
        then()


def test_the_files_of_a_killed_worker_are_read_by_another(cluster: Cluster, tmp_path: Path) -> None:
    first = cluster.add_worker()
    logdir, output = large_hosts(tmp_path / "logs"), tmp_path / "report.json"
    process = analyzing(logdir, cluster.address, output)
    wait_for(cluster.address, has_work=True, then=first.kill)
    cluster.add_worker()
    _, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (0, b"")
    assert output.read_text() == report_of(logdir)


ENDS = {
    "worker": "the cluster has no workers any more",
    "scheduler": "the scheduler has gone away",
}


@pytest.mark.parametrize("what", ENDS)
def test_what_goes_away_ends_the_command(what: str, cluster: Cluster, tmp_path: Path) -> None:
    worker, output = cluster.add_worker(), tmp_path / "report.json"
    process = analyzing(large_hosts(tmp_path / "logs"), cluster.address, output)
    ended = cluster.scheduler if what == "scheduler" else worker
    wait_for(cluster.address, has_work=True, then=ended.kill)
    _, said = process.communicate(timeout=60)
    assert process.returncode == WorkerError.exit_code, said
    assert ENDS[what] in said.decode()
    assert len(said.splitlines()) <= 2
    assert not output.exists()


OTHER_FILES = {
    "no right to read": (
        "import traceview.trace.reading.part as part\n"
        "from traceview.base.errors import TraceNotFoundError\n"
        "def read_file(path, **_):\n"
        "    raise TraceNotFoundError(f'{path}: Permission denied')\n"
        "part.read_file = read_file\n"
    ),
    "a sidecar that is cut off": (
        "import traceview.trace.reading.cluster as cluster\n"
        "cluster.sizes_of = lambda path: (path.stat().st_size, cluster.sidecar_of(path).stat().st_size // 2)\n"
    ),
}
"""What another machine has in the place of the files."""


@pytest.mark.parametrize("name", OTHER_FILES)
def test_a_file_that_a_worker_does_not_have_is_an_error(
    name: str, cluster: Cluster, tmp_path: Path
) -> None:
    preload = tmp_path / "other_files.py"
    preload.write_text(OTHER_FILES[name])
    cluster.add_worker("--preload", str(preload))
    write_hosts(tmp_path, 2)
    for path in sorted(tmp_path.rglob("*.xplane.pb")):
        path.with_name(path.name.replace(".xplane.pb", ".traceview.json")).write_text("{}")
    with pytest.raises(WorkerError, match=r"host\d\.xplane\.pb: a worker .* does not have it"):
        loaded_by(cluster, tmp_path)


def test_results_that_go_with_their_workers(cluster: Cluster, tmp_path: Path) -> None:
    """All has been read, and nothing of it fetched, when the only worker dies."""
    worker, output = cluster.add_worker(), tmp_path / "report.json"
    process = analyzing(large_hosts(tmp_path / "logs"), cluster.address, output)
    stop = partial(process.send_signal, signal.SIGSTOP)
    wait_for(cluster.address, has_work=True, then=stop)
    wait_for(cluster.address, has_work=False)
    worker.kill()
    worker.wait()
    process.send_signal(signal.SIGCONT)
    begun = time.monotonic()
    _, said = process.communicate(timeout=60)
    assert (process.returncode, output.exists()) == (WorkerError.exit_code, False)
    assert "the cluster has no workers any more" in said.decode().splitlines()[0]
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("stopped", ["worker", "scheduler"])
def test_what_stopped_before_ends_the_command(
    stopped: str, cluster: Cluster, tmp_path: Path
) -> None:
    worker, output = cluster.add_worker(), tmp_path / "report.json"
    (worker if stopped == "worker" else cluster.scheduler).send_signal(signal.SIGSTOP)
    process = analyzing(write_hosts(tmp_path / "logs", 2), cluster.address, output)
    _, said = process.communicate(timeout=60)
    assert process.returncode == WorkerError.exit_code
    assert b"does not answer" in said.splitlines()[0]


def test_ctrl_c_ends_the_command(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_worker()
    output = tmp_path / "report.json"
    process = analyzing(large_hosts(tmp_path / "logs"), cluster.address, output)
    interrupt = partial(process.send_signal, signal.SIGINT)
    wait_for(cluster.address, has_work=True, then=interrupt)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.decode() == "traceview: interrupted; nothing was written\n"
    assert not output.exists()
    # The files that had not been begun are not read any more.
    wait_for(cluster.address, has_work=False)


def test_the_job_of_slurm(tmp_path: Path) -> None:
    """With a stand-in for `srun`, which starts a worker for each of two nodes of this machine."""
    page = (ROOT / "docs" / "stores.md").read_text(encoding="utf-8")
    job = page.partition("#!/bin/bash\n")[2].partition("```")[0]
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/bash\n"$@" --no-dashboard &\n"$@" --no-dashboard &\nwait\n')
    srun.chmod(0o755)
    write_hosts(tmp_path / "logs", 3)
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shown = {"8786": port, "$(hostname)": "127.0.0.1", "/shared/logs": str(tmp_path / "logs")}
    for word, place in shown.items():
        assert word in job
        job = job.replace(word, place)
    path = f"{tmp_path}:{DASK.parent}:{os.environ['PATH']}"
    environment = environment_with(PATH=path, SLURM_NNODES="2")
    run_process(tmp_path, "bash", "-c", job, environment=environment, code=0)
    read, expected = load_report(tmp_path / "report/report.json"), analyze(load(tmp_path / "logs"))
    assert len(read.capture.hosts) == 3
    assert read.verdict == expected.verdict
    assert read.results.device_time == expected.results.device_time


def test_a_cluster_without_workers(cluster: Cluster, fixtures: Path) -> None:
    with pytest.raises(WorkerError, match="the cluster has no workers"):
        loaded_by(cluster, fixtures / FIXTURES[0])


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "127.0.0.1:1", "a://b:1"])
def test_no_scheduler(address: str, command: Command, fixtures: Path) -> None:
    begun = time.monotonic()
    done = command("analyze", str(fixtures / FIXTURES[0]), "--workers", address)
    assert time.monotonic() - begun < 60
    assert (done.code, done.out) == (WorkerError.exit_code, "")
    line, hint = done.err.splitlines()
    assert line.startswith(f"traceview: error: --workers {address}: no scheduler answers there")
    assert "dask scheduler" in hint


def test_a_scheduler_that_is_not_there_leaves_no_thread(
    fixtures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks every minute, as `watch` does, would gather them."""
    monkeypatch.setattr(reading, "PATIENCE_SECONDS", 0.5)
    before = set(threading.enumerate())
    with pytest.raises(WorkerError):
        load(fixtures / FIXTURES[0], readers=reading.Cluster("tcp://127.0.0.1:1").read)
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("code", "version"),
    [
        ("import traceview.base.version; traceview.base.version.VERSION = '0.0.9'", r"0\.0\.9"),
        (
            "import sys; sys.modules['traceview.trace.reading.cluster'] = None",
            "not installed, or another",
        ),
    ],
)
@pytest.mark.parametrize("place", ["worker", "scheduler"])
def test_another_version(
    place: str,
    code: str,
    version: str,
    tmp_path: Path,
    fixtures: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A scheduler on a busy machine may take longer; how long it may take is not what is tested.
    monkeypatch.setattr("traceview.trace.reading.cluster.PATIENCE_SECONDS", 60)
    preload = tmp_path / "other_version.py"
    preload.write_text(code)
    options = ("--preload", str(preload))
    with Cluster(tmp_path) as cluster:
        cluster.begin(*(options if place == "scheduler" else ()))
        cluster.add_worker(*(options if place == "worker" else ()))
        message = rf"the {place}.*: its traceview is {version}.*; here it is \d"
        with pytest.raises(WorkerError, match=message) as caught:
            loaded_by(cluster, fixtures / FIXTURES[0])
        assert "same version" in (caught.value.hint or "")
