"""What is said of the input of programs that run now: the same work in a Python generator, and as the advice says."""

from __future__ import annotations

import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import traceview
from tests.capture.conftest import environment_with, run_command
from traceview.analysis.gpu_time.input_rules import INPUT_BOUND

pytestmark = pytest.mark.tensorflow

STEPS = 40
PROGRAM = (
    """
import math
import multiprocessing
import sys
import time

COUNT, WORK = 32, 20000


def make_batch(key):
    \"\"\"Work in Python, which holds its lock.\"\"\"
    return [[sum(math.sin(key + row + place) for place in range(WORK))] * 64 for row in range(COUNT)]


def main(pipeline):
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    going = [True]

    def keys():
        key = 0
        while going:
            yield key
            key += 1

    def in_python():
        for key in keys():
            yield make_batch(key)

    def in_processes():
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            yield from pool.imap(make_batch, range(STEPS + 20))

    def in_tensorflow(key):
        places = tf.range(float(WORK)) + tf.range(float(COUNT))[:, None] + tf.cast(key, tf.float32)
        return tf.tile(tf.reduce_sum(tf.sin(places), axis=1, keepdims=True), [1, 64])

    batch = tf.TensorSpec([COUNT, 64], tf.float32)
    if pipeline == "generator":
        dataset = tf.data.Dataset.from_generator(in_python, output_signature=batch)
    elif pipeline == "processes":
        dataset = tf.data.Dataset.from_generator(in_processes, output_signature=batch)
    else:
        dataset = tf.data.Dataset.from_generator(keys, output_signature=tf.TensorSpec([], tf.int64))
        dataset = dataset.map(in_tensorflow, num_parallel_calls=tf.data.AUTOTUNE)
    with strategy.scope():
        weights = [tf.Variable(tf.random.normal([64, 64]) / 8.0) for _ in range(40)]

    @tf.function
    def train_step(batch):
        def replica(batch):
            with tf.GradientTape() as tape:
                value = batch
                for weight in weights:
                    value = tf.nn.relu(value @ weight)
                loss = tf.reduce_mean(value)
            context = tf.distribute.get_replica_context()
            gradients = context.all_reduce("sum", tape.gradient(loss, weights))
            for weight, gradient in zip(weights, gradients):
                weight.assign_sub(0.001 * gradient)
            return loss

        return strategy.run(replica, args=(batch,))

    batches = iter(strategy.experimental_distribute_dataset(dataset.prefetch(tf.data.AUTOTUNE)))
    for step in range(STEPS):
        begin = time.perf_counter_ns()
        with tf.profiler.experimental.Trace("train", step_num=step, _r=1):
            train_step(next(batches))
        print("step_ns", time.perf_counter_ns() - begin, flush=True)
    going.clear()


if __name__ == "__main__":
    main(sys.argv[1])
"""
).replace("STEPS", str(STEPS))


@dataclass(frozen=True)
class Run:
    """A report, and the median step of the program by its own clock where nothing was recorded."""

    report: traceview.Report
    step_ns: float


def recorded(pipeline: str, folder: Path) -> Run:
    (folder / "train.py").write_text(PROGRAM, encoding="utf-8")
    captured = run_command(
        folder,
        ["--steps", "24:36", "train.py", pipeline],
        environment_with(folder),
    )
    assert captured.code == 0, captured.err[-2000:]
    return Run(traceview.analyze(captured.run), step_of(captured.out))


def step_of(out: str) -> float:
    """Without the steps that a filled buffer serves, and without those that are recorded."""
    steps = [int(line.split()[1]) for line in out.splitlines() if line.startswith("step_ns")]
    assert len(steps) == STEPS
    return statistics.median(steps[10:24])


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return recorded("generator", tmp_path_factory.mktemp("generator"))


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return recorded("tensorflow", tmp_path_factory.mktemp("tensorflow"))


def test_a_python_generator_that_computes_makes_the_run_input_bound(slow: Run, mended: Run) -> None:
    assert slow.report.verdict.finding == "input-bound"
    (bound,) = [finding for finding in slow.report.findings if finding.code == "input-bound"]
    assert bound.action == INPUT_BOUND.actions["generator"][0].replace("`", "")
    assert bound.loss is not None
    # Replicas on the CPU also compute more slowly beside the generator, which the cost leaves out. The truth is measured
    # without the profiler, and varies with what else the machine does.
    true_ratio = 1 - mended.step_ns / slow.step_ns
    assert 0.5 * true_ratio < bound.loss.ratio < 1.2 * true_ratio


def test_the_same_work_in_ops_of_tensorflow_costs_little(slow: Run, mended: Run) -> None:
    """It takes some percent of the two cores."""
    assert mended.report.results.input is not None
    lost = [
        {finding.code: finding.loss.ratio for finding in run.report.findings if finding.loss}
        for run in (slow, mended)
    ]
    assert "cpu-heavy-op" not in lost[1]
    assert lost[1].get("input-bound", 0.0) < lost[0]["input-bound"]


def test_a_generator_may_take_its_batches_from_several_processes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "train.py", "processes"],
        cwd=tmp_path,
        env=environment_with(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert step_of(done.stdout) > 0
