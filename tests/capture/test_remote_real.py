"""A real server in a real training process, which is captured by steps at the same time."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import traceview
from tests.capture.conftest import environment_with
from traceview.base.errors import CaptureError
from traceview.capture.remote.jobs import RemoteCapture, capture_remote
from traceview.capture.remote.profiler_service import Address

pytestmark = pytest.mark.tensorflow

SCRIPT = """
import sys, time
from pathlib import Path
import tensorflow as tf

# After the server has started, devices can still be set up.
cpu, two = tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
with strategy.scope():
    weights = tf.Variable(tf.ones([8, 8]))

def replica(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((x @ weights) ** 2)
    gradient = tape.gradient(loss, weights)
    weights.assign_sub(1e-6 * tf.distribute.get_replica_context().all_reduce("sum", gradient))

@tf.function
def train_step(x):
    strategy.run(replica, args=(x,))

features, steps = tf.ones([4, 8]), 0
end = time.monotonic() + 120
while not Path("stop").exists() and time.monotonic() < end:
    # The window opens and closes when the test wants it to.
    if steps < 15 or Path("go").exists():
        train_step(features)
        steps += 1
    time.sleep(0.01)
sys.exit(3)
"""
WINDOW = "20:120"


class Job:
    """The training process. `out`: where its own window goes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "steps"
        with socket.socket() as probe:
            probe.bind(("", 0))
            self.address = Address("localhost", probe.getsockname()[1])
        (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
        options = ["--serve", str(self.address.port), "--steps", WINDOW, "--out", str(self.out)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "traceview", "capture", *options, "train.py"],
            cwd=folder,
            env=environment_with(TF_CPP_MIN_LOG_LEVEL="3"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def state(self) -> str:
        """How far its window has come."""
        with suppress(FileNotFoundError):  # moved just now
            for path in self.out.rglob("*.traceview.json"):
                return str(json.loads(path.read_text("utf-8"))["state"])
        return "none"

    def tell(self, name: str) -> None:
        (self.folder / name).touch()

    def end(self) -> tuple[int, str]:
        self.tell("stop")
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    (tmp_path / "job").mkdir()
    job = Job(tmp_path / "job")
    try:
        yield job
    finally:
        job.end()


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def ask(job: Job, out: Path, duration_ms: int = 300) -> RemoteCapture:
    def ignore(_: Any) -> None:
        return

    return capture_remote(
        [job.address], out, duration_ms=duration_ms, timeout_ms=60_000, say=ignore, progress=ignore
    )


def test_steps_and_requests_of_one_job(job: Job, tmp_path: Path) -> None:
    # The server is waited for, and there before the first step.
    before = ask(job, tmp_path)
    job.tell("go")
    until(lambda: job.state == "recording")
    with pytest.raises(CaptureError, match="another profile is running there"):
        ask(job, tmp_path)
    until(lambda: job.state == "saved")
    after = ask(job, tmp_path)
    code, err = job.end()

    assert code == 3
    assert before.run != after.run
    (own,) = (job.out / "plugins" / "profile").iterdir()
    assert err.splitlines()[-1] == str(own)
    steps = traceview.load(own).steps["number"].tolist()
    assert set(range(20, 120)) <= set(steps)
    (trace,) = after.run.glob("*.xplane.pb")
    assert trace.name == f"{job.address.file_stem}.xplane.pb"
    # Every step is a call of the one function, in both of its replicas.
    report = traceview.analyze(after.run)
    assert report.results.device_time is not None
    assert [row.device for row in report.results.device_time.devices] == ["replica:0", "replica:1"]
    assert len(traceview.load(after.run).steps) > 5
    sidecar = json.loads(next(after.run.glob("*.traceview.json")).read_text("utf-8"))
    version = json.loads(next(own.glob("*.traceview.json")).read_text("utf-8"))["versions"]
    major, minor, *_ = map(int, version["tensorflow"].split("."))
    # Servers of older versions write the trace themselves.
    assert sidecar["remote"]["is_sent"] == ((major, minor) >= (2, 21))
