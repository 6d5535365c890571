"""Real hangs under `traceview capture --on-hang`: what the report says of each, with real TensorFlow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import traceview
from tests.capture.conftest import (
    CAPTURE,
    QUIET,
    TWO_REPLICAS,
    Captured,
    line_of,
    run_python,
    run_together,
)
from tests.capture.recorded_markers import markers_of
from tests.capture.test_hang import reports
from tests.capture.test_workers import TRAIN, free_addresses
from traceview.capture.process.saying import VARIABLE

pytestmark = pytest.mark.tensorflow

START = (
    TWO_REPLICAS
    + """
with strategy.scope():
    weights = tf.Variable(tf.ones((8, 1)))
queue = tf.queue.FIFOQueue(9, [tf.float32], shapes=[(8, 1)])
batch = tf.ones((4, 8))

def of_replica(batch, waits):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((batch @ weights) ** 2)
    gradient = tape.gradient(loss, weights)
    replica = tf.distribute.get_replica_context()
    if replica.replica_id_in_sync_group == 1:
        gradient = tf.cond(waits, queue.dequeue, lambda: gradient)
    weights.assign_sub(0.01 * replica.all_reduce("mean", gradient))
    return loss

@tf.function
def train_step(batch, waits=tf.constant(False)):
    return strategy.run(of_replica, args=(batch, waits))
"""
)
GENERATOR = """
import queue as queues
source = queues.Queue()
for _ in range(6): source.put(1)

def read_batches():
    while True:
        source.get()  # waits
        yield [[1.0] * 8] * 4

data = tf.data.Dataset.from_generator(read_batches, output_signature=tf.TensorSpec((4, 8)))
for batch in strategy.experimental_distribute_dataset(data): train_step(batch)
"""
DEQUEUE = """
batches = tf.queue.FIFOQueue(9, [tf.float32], shapes=[(4, 8)])
for _ in range(6): batches.enqueue(batch)
while True: train_step(batches.dequeue())
"""
BRANCH = """
for number in range(20): train_step(batch, tf.constant(number == 6))
"""
NATIVE = """
import ctypes
def on_batch_end():
    ctypes.PyDLL(None).sleep(5)  # holds Python's lock
for number in range(20):
    train_step(batch)
    if number == 5: on_batch_end()
"""
SAVING = """
import tempfile
value = tf.Variable(tf.zeros((20_000_000,)))
def on_epoch_end():
    with tempfile.TemporaryDirectory() as folder:
        import time
        end = time.monotonic() + 5
        while time.monotonic() < end:
            tf.train.Checkpoint(value=value).write(folder + "/checkpoint")
for number in range(20):
    train_step(batch)
    if number == 5: on_epoch_end()
"""
LIMIT = "2s"


@dataclass(frozen=True)
class Hung(Captured):
    """The reports of a run, in order."""

    reports: list[dict[str, Any]]

    @property
    def last(self) -> dict[str, Any]:
        """The report of the last hang; TensorFlow's own import may take longer than the limit."""
        return self.reports[-1]

    @property
    def finding(self) -> dict[str, Any]:
        (finding,) = self.last["findings"]
        assert isinstance(finding, dict)
        return finding


def hung(
    folder: Path,
    script: str,
    *options: str,
    end: signal.Signals = signal.SIGKILL,
    command: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Hung:
    """Run a script until it reports a hang after step 5, and end it by a signal. `command`: another than the capture of it."""
    (folder / "train.py").write_text(START + script, encoding="utf-8")
    capture = (sys.executable, *CAPTURE, "--on-hang", LIMIT, *options, "train.py")
    with (folder / "out.txt").open("w+") as out, (folder / "err.txt").open("w+") as err:
        process = subprocess.Popen(
            command or capture, cwd=folder, env=environment or QUIET(), stdout=out, stderr=err
        )
        deadline = time.monotonic() + 60
        try:
            while process.poll() is None and time.monotonic() < deadline:
                pids = [row["pid"] for row in reports(folder / "logs") if row["step_count"] == 6]
                if pids:
                    os.kill(pids[0], end)
                    break
                time.sleep(0.2)
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
        finally:
            process.kill()
            code = process.wait()
        said, told = ((folder / name).read_text("utf-8") for name in ("out.txt", "err.txt"))
        return Hung(code, said, told, folder / "logs", reports(folder / "logs"))


def finished(folder: Path, script: str, *options: str) -> Hung:
    command = (*CAPTURE, "--on-hang", LIMIT, *options, "train.py")
    done = run_python(folder, *command, script=START + script, code=0)
    return Hung(0, done.out, done.err, done.logdir, reports(done.logdir))


def test_a_profile_that_ran_when_the_step_hung_is_kept(tmp_path: Path) -> None:
    run = hung(tmp_path, BRANCH, "--steps", "4:20", end=signal.SIGTERM)
    assert run.finding["title"].startswith("The step's call of train_step has not returned")
    (trace,) = tmp_path.glob("logs/plugins/profile/*/*.xplane.pb")
    assert markers_of(trace)


PYTHON_OP = """
import threading
lock = threading.Lock()
plain = tf.Variable(tf.ones((8, 1)))
calls = 0
def scale(x):
    if calls == 6:
        lock.acquire()
        lock.acquire()  # waits
    return x
@tf.function
def train_with_python(batch):
    batch = tf.ensure_shape(tf.py_function(scale, [batch], tf.float32), (4, 8))
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((batch @ plain) ** 2)
    plain.assign_sub(0.01 * tape.gradient(loss, plain))
for calls in range(20): train_with_python(batch)
"""
EAGER = """
import time
def search():
    matrix, end = tf.ones((200, 200)), time.monotonic() + 60
    while time.monotonic() < end: matrix = matrix @ matrix * 0.001  # computes
for number in range(20):
    train_step(batch)
    if number == 5: search()
"""


def test_python_inside_of_the_step_is_the_step(tmp_path: Path) -> None:
    run = hung(tmp_path, PYTHON_OP)
    line = line_of(START + PYTHON_OP, "# waits")
    assert run.finding["title"].startswith("The step has waited")
    assert run.finding["title"].endswith(f"for its own Python in scale, train.py:{line}")


def test_an_eager_loop_that_computes_does_not_wait_for_a_lock(tmp_path: Path) -> None:
    run = hung(tmp_path, EAGER)
    assert run.finding["code"] == "long-pause"
    assert run.last["threads"][0]["wait"] == "computing"


@pytest.mark.parametrize(
    ("script", "options", "said"),
    [
        # In the window and before it.
        (DEQUEUE, "--steps 4:20", "in queue_dequeue_v2"),
        (GENERATOR, "--steps 100:110", "The thread waits for a lock"),
    ],
    ids=["a queue", "a generator"],
)
def test_a_script_below_a_shell_reports_its_hang_and_dies_of_a_signal(
    tmp_path: Path, script: str, options: str, said: str
) -> None:
    shell = f"'{sys.executable}' train.py\necho \"$?\"\n"
    (tmp_path / "train.sh").write_text(shell, encoding="utf-8")
    run = hung(
        tmp_path,
        script,
        command=("bash", "train.sh"),
        environment=QUIET(**{VARIABLE: f"--on-hang {LIMIT} {options} --output logs"}),
        end=signal.SIGTERM,
    )
    assert (run.finding["code"], run.last["step_count"]) == ("hang", 6)
    assert said in json.dumps(run.last)
    assert f"traceview[{run.last['pid']}]: hang: {run.finding['title']}" in run.err
    # A shell says "Terminated" only of what died of the signal.
    assert run.out.split() == [str(128 + signal.SIGTERM)]
    assert run.err.splitlines()[-1].endswith("Terminated")
    if script == GENERATOR:
        line = line_of(START + GENERATOR, "# waits")
        assert run.finding["title"].endswith(f"is in read_batches, train.py:{line}")
        assert run.last["threads"][0]["wait"] == "lock"


def test_a_native_call_with_the_lock_of_python_is_reported(tmp_path: Path) -> None:
    run = finished(tmp_path, NATIVE, "--steps", "10:12")
    (report,) = (report for report in run.reports if report["is_lock_held"])
    (finding,) = report["findings"]
    line = line_of(START + NATIVE, "# holds")
    assert finding["title"].startswith("No Python could run for ")
    assert finding["title"].endswith(f"the main thread was in on_batch_end, train.py:{line}")
    assert report["state"] == "went-on"
    told = run.err.index("no Python has run for 2 s: a native call holds Python's lock")
    assert told < run.err.index("No Python ran for")
    assert not list(tmp_path.glob("logs/.traceview-*"))


def test_a_checkpoint_that_takes_long_is_no_hang(tmp_path: Path) -> None:
    run = finished(tmp_path, SAVING, "--steps", "10:12")
    (report,) = (report for report in run.reports if report["step_count"] == 6)
    (finding,) = report["findings"]
    assert (finding["code"], finding["severity"]) == ("long-pause", "info")
    assert "a checkpoint is being written" in finding["title"]
    assert report["state"] == "went-on"
    # The steps are counted four times a second, and less often while a report is written.
    assert 4 <= report["total_ns"] / 1e9 < 15
    assert "training went on after" in run.err
    # The window that opens later shares the run of the report, and the analysis shows both.
    (trace,) = tmp_path.glob("logs/plugins/profile/*/*.xplane.pb")
    assert list(trace.parent.glob("*.hang*.json"))
    results: Any = traceview.analyze(tmp_path / "logs").results
    assert [hang.state for hang in results.hangs.hangs][-1] == "went-on"


WORKERS = f"""{TRAIN}
import time
def write_summary(number):
    if sys.argv[1] == "1" and number == 5:
        time.sleep(6)

for number in range(10):
    train_step(next(batches))
    write_summary(number)
"""


def test_the_worker_that_did_not_come_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WORKERS, encoding="utf-8")
    addresses = free_addresses(2)
    options = ("--on-hang", "3s", "--steps", "20:22", "train.py")
    commands = [[*CAPTURE, *options, str(index), *addresses] for index in range(2)]
    done = run_together(tmp_path, commands, [QUIET()] * 2)
    found = [report for report in reports(tmp_path / "logs") if report["step_count"] == 6]
    by_task = {report["task"]: report for report in found}
    assert set(by_task) == {"worker 0", "worker 1"}, [each.err for each in done]
    (waiting,) = by_task["worker 0"]["findings"]
    (late,) = by_task["worker 1"]["findings"]
    line = line_of(WORKERS, "time.sleep")
    assert (waiting["code"], waiting["confidence"]) == ("hang", "high")
    place = f"write_summary, train.py:{line}"
    title = f"worker 1 did not reach a collective: it is in {place} without a step"
    assert waiting["title"].startswith(title)
    assert late["code"] == "hang"
    assert late["title"].startswith(f"The main thread has been in {place}")
    assert late["explanation"].endswith("The thread sleeps. It keeps worker 0 waiting in a step.")
    assert {report["state"] for report in found} == {"went-on"}
