"""Every kind of launcher with the real TensorFlow: the same results as without a capture, and its steps."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import traceview
from tests.capture.conftest import CAPTURE, QUIET, line_of, run_process
from tests.capture.recorded_markers import markers_of
from tests.capture.test_with_tensorflow import RESULT, SEED, START
from traceview.capture.process.saying import VARIABLE
from traceview.document import screen as terminal
from traceview.report.document import document_of

pytestmark = pytest.mark.tensorflow

WINDOW = [*range(9, 16)]

PARAMETER_SERVER = (
    SEED
    + START
    + """
import socket
def address():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return f"localhost:{probe.getsockname()[1]}"
cluster = tf.train.ClusterSpec({"worker": [address()], "ps": [address()]})
servers = [tf.distribute.Server(cluster, job_name=job, task_index=0) for job in ("worker", "ps")]
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope(): weights = tf.Variable(tf.ones([8, 1]))
@tf.function
def train_step(iterator):
    return strategy.run(train, args=next(iterator))
def batches():
    return tf.data.Dataset.from_tensors((tf.ones([8, 8]), tf.ones([8, 1]))).repeat()
iterator = iter(coordinator.create_per_worker_dataset(batches))
for epoch in range(3):
    for _ in range(10): loss = coordinator.schedule(train_step, args=(iterator,))
    coordinator.join()
loss = loss.fetch()
"""
    + RESULT
)
THREADS = "config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4)"


def run(
    folder: Path, command: Sequence[str], value: str | None = None
) -> tuple[int, list[str], str]:
    """Exit code, results and standard error of a command."""
    variables = QUIET() if value is None else QUIET(**{VARIABLE: value})
    done = run_process(folder, *command, environment=variables)
    results = [line for line in done.out.splitlines() if line.startswith("RESULT ")]
    return done.code, results, done.err


def runs_below(folder: Path) -> list[Path]:
    return sorted((folder / "logs" / "plugins" / "profile").iterdir())


def test_the_variable_changes_nothing_but_the_trace(tmp_path: Path) -> None:
    script = PARAMETER_SERVER + "__import__('sys').exit(3)\n"
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "train.py"]
    code, results, err = run(tmp_path, command)
    assert (code, len(results)) == (3, 1)
    *same, said = run(tmp_path, command, "--steps 10:15 --output logs")
    assert same == [code, results]
    # TensorFlow logs times and numbers of threads.
    own = (line for line in said.splitlines() if not line.startswith("traceview["))
    alone, others = (
        # Servers of a cluster log in turn.
        sorted(re.sub(r"\s*\d+", "", line) for line in lines)
        for lines in (err.splitlines(), own)
    )
    assert others == alone
    (captured,) = runs_below(tmp_path)
    assert markers_of(captured) == WINDOW
    # Another thread runs the steps; the main thread waits in `coordinator.join`, and keeps nobody waiting there.
    waits = line_of(script, "coordinator.join()")
    assert f"train.py:{waits}" not in traceview.analyze(captured).to_json()


def test_steps_of_two_workers_are_those_of_one_and_the_others_are_mentioned(tmp_path: Path) -> None:
    two = PARAMETER_SERVER.replace('"worker": [address()]', '"worker": [address(), address()]')
    # Where there are fewer cores than workers, each would wait for the other's threads.
    two = two.replace("servers = [", f"{THREADS}\nservers = [").replace(
        'job_name=job, task_index=0) for job in ("worker", "ps")',
        'job_name=job, task_index=index, config=config) for job, index in (("worker", 0), ("worker", 1), ("ps", 0))',
    )
    script = two.replace("range(10)", "range(100)")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    command = [sys.executable, *CAPTURE, "--steps", "40:50", "train.py"]
    code, _, err = run(tmp_path, command)
    assert code == 0, err
    (captured,) = runs_below(tmp_path)
    assert markers_of(captured) == [*range(39, 51)]
    (count,) = re.findall(r"meanwhile other threads called train_step (\d+) times", err)
    assert int(count) > 1
    document = document_of(traceview.analyze(captured))
    page = " ".join(terminal.render(document, width=200, color=False, most_lines=10**6).split())
    assert "The steps here are those of one worker" in page
