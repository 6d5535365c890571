"""Two workers of a `MultiWorkerMirroredStrategy` read scans of a remote store; slow: each takes its part after the scans have been read, so that it reads those of both."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

WORKERS, BATCH, FEATURES, UNITS, SCANS, SECONDS = 2, 6, 512, 320, 600, 0.0012
"""`BATCH`: of one worker. `SECONDS`: how long the store takes to answer."""


def free_addresses() -> list[str]:
    sockets = [socket.socket() for _ in range(WORKERS)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return [f"127.0.0.1:{port}" for port in ports]


def work() -> None:
    import tensorflow as tf

    from scripts.real_runs.step_clock import STEPS, StepClock, run_blocks
    from scripts.real_runs.training import dense, numbers, step_of

    tf.config.threading.set_intra_op_parallelism_threads(1)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    store = numbers(SCANS, 8, FEATURES)

    def read(number: Any) -> Any:
        time.sleep(SECONDS)
        return store[number]

    def scan_of(number: Any) -> Any:
        scan = tf.numpy_function(read, [number], tf.float32)
        return tf.ensure_shape(scan, [8, FEATURES])

    def train(is_slow: bool, clock: StepClock) -> None:
        def dataset_of(context: Any) -> Any:
            part = context.num_input_pipelines, context.input_pipeline_id
            dataset = tf.data.Dataset.range(SCANS).repeat()
            dataset = (
                dataset.map(scan_of).shard(*part) if is_slow else dataset.shard(*part).map(scan_of)
            )
            return dataset.unbatch().batch(8 * BATCH, drop_remainder=True).prefetch(4)

        source = iter(strategy.distribute_datasets_from_function(dataset_of))
        train_step = step_of(strategy, *dense(strategy, FEATURES, UNITS, UNITS))
        for _ in range(STEPS):
            float(train_step(next(source)))
            clock.step_ended()

    run_blocks(train)


def main() -> None:
    """Train as the worker that `TF_CONFIG` names, or else as the first, which starts the other."""
    if "TF_CONFIG" in os.environ:
        work()
        return
    cluster = {"worker": free_addresses()}
    first, second = (
        json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        for index in range(WORKERS)
    )
    variables = {name: value for name, value in os.environ.items() if name != "STEP_TIMES"}
    os.environ["TF_CONFIG"] = first
    with subprocess.Popen(
        [sys.executable, __file__], env={**variables, "TF_CONFIG": second}
    ) as other:
        try:
            work()
        except BaseException:
            other.kill()
            raise


if __name__ == "__main__":
    main()
